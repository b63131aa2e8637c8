"""Rows of your own tables, CSV or Parquet, by a schema that all sites agree on.

`--schema FILE` says what columns there are (`mdgan schema draft` makes one from a table), `--target
COLUMN` which of them is asked for, and `--data-dir` where the rows are: a file, or a folder of
them; `{rank}` in it stands for the number of the site. Each site has rows of its own; to try
several sites with the rows of one file, divide it: `--partition iid`.
"""

from mdgan.data.table_source import prepare_table as prepare

__all__ = ["DEFAULTS", "prepare"]

DEFAULTS = {"architecture": "table", "partition": "none"}

"""Rows of your own tables, CSV or Parquet, by a schema that all sites agree on.

`--schema FILE` names the columns (`mdgan schema draft` writes a schema for a table), and `--target
COLUMN` the one to predict. `--data-dir` names a file of rows, or a folder of such files; `{rank}`
in it stands for the number of the site. Each site has its own rows. To try several sites with the
rows of one file, divide it: `--partition iid`.
"""

from mdgan.data.table_source import prepare_table as prepare

__all__ = ["DEFAULTS", "prepare"]

DEFAULTS = {"architecture": "table", "partition": "none"}

"""Adds files outside docs/ to the documentation site; mkdocs.yml names this file.

A link between two files of the repository becomes a link between their pages, so that links work
both in the repository and on the site.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from mdgan.cli.help import full_help
from mdgan.launch.given import known_settings
from mdgan.settings.declare import GROUPS
from mdgan.spelling import flag, key

REPOSITORY = Path(__file__).resolve().parent.parent

PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.txt",
    "CITATION.cff": "citation.txt",
    "deploy/haproxy.cfg": "haproxy.txt",
    "examples/README.md": "examples/index.md",
    "examples/results.md": "examples/results.md",
    "examples/tables/README.md": "examples/tables.md",
}
"""From a file's path in the repository to its path on the site; those in docs/ keep theirs."""

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds these pages, and the page of all settings."""
    for path, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(REPOSITORY / path)))
    files.append(File.generated(config, "reference/settings.md", content=settings_page()))
    return files


def settings_page() -> str:
    """All settings in the groups of `mdgan train --help-all`, each under its own heading."""
    lines = [
        "# Settings",
        "",
        "Each is a key of `--config` files, too; `--set KEY=VALUE` sets any.",
    ]
    settings = known_settings().values()
    for group, heading in GROUPS.items():
        lines += ["", f"## {heading}"]
        for item in sorted(
            (one for one in settings if one.group == group), key=lambda one: one.name
        ):
            name = flag(item.name) if item.has_flag else key(item.name, item.metavar or "…")
            words = full_help(item).replace("<", "&lt;").replace("*", "\\*")
            lines += ["", f"### `{name!s}`", "", words]
    return "\n".join(lines)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links between files into links between pages."""
    del config, files
    if page.file.abs_src_path is None:
        return markdown
    source = Path(page.file.abs_src_path).relative_to(REPOSITORY).as_posix()
    folder = posixpath.dirname(page.file.src_uri)

    def to_page(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        return posixpath.relpath(PAGES.get(path, path.removeprefix("docs/")), folder or ".")

    return _LINK.sub(to_page, markdown)

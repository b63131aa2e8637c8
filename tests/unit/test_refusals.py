"""Refusals are data: they mention settings and commands, spelled as each reader can type them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from mdgan.families import registry
from mdgan.launch.settings import LaunchSettings
from mdgan.settings.declare import Settings
from mdgan.spelling import command, flag
from tests.misspelled import misspelled, plainly_named
from tests.unit.test_house import PACKAGE, modules, room_of

REFUSING = ("BadInput", "ValueError", "users_code", "Condition", "Excludes", "table", "number")
"""What is called with a text that becomes a refusal, or a part of one."""


def texts_of(path: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Where a text of a refusal stands, and its constant parts."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in REFUSING and (name != "number" or room_of(path) != "cli"):  # click has one, too
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield f"{path.relative_to(PACKAGE)}:{part.lineno}", part.value


def test_no_text_of_a_refusal_spells_out_a_flag_or_a_command() -> None:
    plain = [
        f"{where}: {named}"
        for path, tree in modules()
        for where, text in texts_of(path, tree)
        for named in plainly_named(text)
    ]
    assert not plain, plain


def test_texts_of_the_table_mention_settings_that_there_are() -> None:
    entries = {**registry.declared_settings(), **LaunchSettings.declared()}
    kinds: list[type[Settings]] = [registry.algorithm(name).settings for name in registry.names()]
    kinds.append(LaunchSettings)
    texts = {row.text for kind in kinds for row, _ in kind.rows()}
    fields = {field for text in texts for _, field, _, _ in Formatter().parse(text) if field}
    mentions = {field.partition("=")[0] for field in fields - {"when"}}
    assert len(mentions) > 20
    spelled_by = {f"{'' if item.has_flag else 'set '}{name}" for name, item in entries.items()}
    assert mentions <= spelled_by, mentions - spelled_by


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        ("give --batch-size", True),
        ("give --set quorum=1", True),
        ("see mdgan report runs/a", True),
        (f"give {flag('batch_size', 3)}", False),
        (f"see {command('report', 'runs/a')}", False),
        (f"cut off {flag('batch_size'):}"[:-1], True),
        ("see --help-all, or mdgan plan", False),
    ],
)
def test_what_a_python_program_could_not_type_is_found(text: str, is_wrong: bool) -> None:
    assert bool(misspelled(f"WHAT: {text}", "settings")) == is_wrong

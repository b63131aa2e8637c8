"""The rules of the house that a program can check: floors, names, sizes, printing."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from mdgan.families import registry
from tests.processes import REPOSITORY

PACKAGE = REPOSITORY / "mdgan"
FLOORS = [
    {"settings", "errors", "spelling", "messages", "timeouts", "version", "system"},
    {"credentials", "storage", "transport", "gan", "privacy"},
    {"samples"},
    {"models", "data"},
    {"metrics", "records"},
    {"observe"},
    {"engine"},
    {"families"},
    {"launch", "report"},
    {"inspect", "plan"},
    {"comparison", "chaos", "audit", "release", "nvflare"},
    {"cli", "interface"},
]
"""From the lowest to the highest; a room imports rooms of its own floor or below."""

MOST_LINES, MOST_LINES_OF_FUNCTION, MOST_PARAMETERS = 400, 60, 8
LOOPS = {"advance"}
"""Functions that read as the paper's pseudocode may be longer."""


@cache
def modules() -> list[tuple[Path, ast.Module]]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


@cache
def nodes(tree: ast.Module) -> list[ast.AST]:
    return list(ast.walk(tree))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported(tree: ast.Module) -> list[str]:
    results = list[str]()
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            results += (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            results += (alias.name for alias in node.names)
    return results


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(path) for path, _ in modules()} - {"__init__", "__main__"}
    assert rooms <= set().union(*FLOORS)


def test_a_room_imports_no_room_above_it() -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    upwards = [
        f"{path.relative_to(REPOSITORY)} imports {name}"
        for path, tree in modules()
        if room_of(path) in floor
        for name in imported(tree)
        if name.startswith("mdgan.") and floor.get(name.split(".")[1], -1) > floor[room_of(path)]
    ]
    assert not upwards, upwards


def test_no_module_of_the_engine_imports_another_in_a_circle() -> None:
    """Nor for types alone, or in a function."""
    trees = {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts): tree
        for path, tree in modules()
        if room_of(path) == "engine"
    }
    arrows = {
        name: {
            other
            for other in trees
            for used in imported(tree)
            if f"{used}.".startswith(f"{other}.")
        }
        for name, tree in trees.items()
    }
    TopologicalSorter(arrows).prepare()  # raises CycleError, which names them


def test_families_do_not_know_each_other() -> None:
    strangers = [
        f"{path.relative_to(REPOSITORY)} imports {name}"
        for path, tree in modules()
        if room_of(path) == "families" and len(path.relative_to(PACKAGE).parts) > 2
        for name in imported(tree)
        if name.startswith("mdgan.families.")
        and name.split(".")[2] not in (path.relative_to(PACKAGE).parts[1], "contract")
    ]
    assert not strangers, strangers


def test_no_algorithm_is_named_outside_its_folder() -> None:
    named = [
        f"{path.relative_to(REPOSITORY)} names {name}"
        for path, tree in modules()
        if room_of(path) not in ("families",)
        for node in nodes(tree)
        for name in algorithms_in(node)
        if (path.name, name) not in NO_ALGORITHMS
    ]
    assert not named, named


ALGORITHMS = set(registry.names()) - {"mdgan"}
NO_ALGORITHMS = {("partition.py", "fegan")}
"""A way to divide data that is called like an algorithm."""


def algorithms_in(node: ast.AST) -> Iterator[str]:
    """Names of algorithms; `mdgan` is the program's too, so it counts where it is compared."""
    if isinstance(node, ast.Constant) and node.value in ALGORITHMS:
        yield node.value
    if isinstance(node, ast.Compare):
        values = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
        yield from (value for value in values if value == "mdgan")


OF_SOME_SYSTEMS = re.compile(
    r"\b(sched_[gs]et\w+|pidfd_\w+|SO_PEERCRED|TCP_DEFER_ACCEPT|MSG_NOSIGNAL|CDLL|mallopt|prctl"
    r"|os\.fork|get_context|sys\.platform|os\.name|hasattr\((os|signal|socket))\b|/proc/"
)
"""What Linux has and macOS lacks, or where forks are unsafe. Other names, such as `fcntl`, `killpg`
or `AF_UNIX`, are of every system but Windows, where `refuse_windows` ends each command."""
USES_WHAT_THERE_IS = {
    "settings/machine.py": {"sched_setaffinity"},  # after `check_cores` has asked PINS_PROCESSES
    "families/data_parallel/meeting.py": {"get_context"},  # a launcher that may fork makes one
    "families/data_parallel/together.py": {"pidfd_open", "pidfd_send_signal"},  # HOLDS_PROCESSES
    "families/federated/slots.py": {"os.fork"},  # its builder has asked `may_fork`
    "launch/forks.py": {"get_context"},  # starts all other processes
    "plan/short_run.py": {"get_context"},  # refuses where it may not fork
}


def test_one_room_asks_what_the_system_has() -> None:
    used = {
        str(path.relative_to(PACKAGE)): {match[0] for match in OF_SOME_SYSTEMS.finditer(text)}
        for path, _ in modules()
        if path.name != "system.py" and OF_SOME_SYSTEMS.search(text := path.read_text("utf-8"))
    }
    assert used == USES_WHAT_THERE_IS


def test_files_and_functions_can_be_read_in_one_go() -> None:
    too_long = {
        str(path.relative_to(PACKAGE)): too_long
        for path, tree in modules()
        if (too_long := list(lengths(tree, len(path.read_text(encoding="utf-8").splitlines()))))
    }
    assert not too_long


def lengths(tree: ast.Module, num_lines: int) -> Iterator[str]:
    """What is too long in a file, and how long."""
    if num_lines > MOST_LINES:
        yield f"{num_lines} lines"
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in LOOPS:
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_LINES_OF_FUNCTION:
                yield f"{node.name} has {lines} lines"


def test_no_two_classes_have_the_same_name() -> None:
    places = defaultdict(list)
    for path, tree in modules():
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(PACKAGE)))
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_constructors_have_few_parameters() -> None:
    results = {
        f"{path.relative_to(PACKAGE)}: {node.name}": len(init.args.args)
        + len(init.args.kwonlyargs)
        - 1
        for path, tree in modules()
        for node in nodes(tree)
        if isinstance(node, ast.ClassDef)
        for init in node.body
        if isinstance(init, ast.FunctionDef) and init.name == "__init__"
    }
    assert not {name: number for name, number in results.items() if number > MOST_PARAMETERS}


def test_only_the_command_line_prints() -> None:
    printing = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path, tree in modules()
        if room_of(path) != "cli"
        for node in nodes(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    ]
    assert not printing, printing


def test_each_public_method_is_documented_where_it_is_first_defined() -> None:
    """One that overrides a documented method need not say so."""
    classes = {
        node.name: node
        for _, tree in modules()
        for node in nodes(tree)
        if isinstance(node, ast.ClassDef)
    }

    def methods(name: str) -> Iterator[ast.FunctionDef]:
        """Those of a class of mdgan, and of all that it is derived from."""
        for node in classes[name].body if name in classes else ():
            if isinstance(node, ast.FunctionDef):
                yield node
        for base in classes[name].bases if name in classes else ():
            yield from methods(ast.unparse(base).partition("[")[0].rpartition(".")[2])
        # Or of the one that its docstring names, whose methods it has without being derived.
        docstring = ast.get_docstring(classes[name]) if name in classes else None
        for other in re.findall(r"[Ss]ee `([A-Z]\w+)`", docstring or ""):
            yield from methods(other)

    missing = [
        f"{name}.{node.name}"
        for name, found in classes.items()
        if not name.startswith("_")
        for node in found.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if node.name != "forward"  # torch documents it
        if not any(m.name == node.name and ast.get_docstring(m) for m in methods(name))
    ]
    assert not missing, missing

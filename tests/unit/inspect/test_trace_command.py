import json
from pathlib import Path

from click.testing import CliRunner, Result

from mdgan.cli.inspect import trace
from mdgan.errors import BadInput
from mdgan.inspect.chrome_trace import chrome_trace
from mdgan.records.recorded_run import RecordedRun
from tests.unit.observe.fake_run import FakeRun


def command(*arguments: object) -> Result:
    return CliRunner().invoke(trace, [str(argument) for argument in arguments])


def test_the_command_writes_into_the_run_and_says_where_to_open_it(tmp_path: Path) -> None:
    run = FakeRun(workers=2, iterations=20).write(tmp_path / "run")
    done = command(run)
    assert done.exit_code == 0
    written = json.loads((run / "trace.json").read_text())
    assert written == chrome_trace(RecordedRun.read(run))
    number = sum(event["ph"] == "X" for event in written["traceEvents"])
    told = f"{run / 'trace.json'}: {number:,} spans; open it at https://ui.perfetto.dev\n"
    assert done.stdout == told
    assert done.stderr == ""
    assert not [path for path in run.iterdir() if path.name.endswith(".tmp")]


def test_the_command_writes_where_it_is_told_to(tmp_path: Path) -> None:
    run = FakeRun(workers=2, iterations=20).write(tmp_path / "run")
    before = set(run.iterdir())
    assert command(run, "-o", tmp_path / "here.json").exit_code == 0
    assert json.loads((tmp_path / "here.json").read_text())["traceEvents"]
    assert set(run.iterdir()) == before


def test_the_command_names_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    run = FakeRun(workers=2, iterations=20).write(tmp_path / "run")
    done = command(run, "-o", tmp_path / "nowhere" / "trace.json")
    assert isinstance(done.exception, BadInput)
    nowhere = tmp_path / "nowhere" / "trace.json"
    why = "cannot write there (No such file or directory); name another place"
    told = f"-o {nowhere}: {why}"
    assert str(done.exception) == told


def test_the_command_names_what_is_no_run(tmp_path: Path) -> None:
    done = command(tmp_path)
    assert isinstance(done.exception, BadInput)
    assert str(done.exception).startswith(f"{tmp_path}: not a run")


def test_the_command_tells_of_damage_and_shows_the_rest(tmp_path: Path) -> None:
    run = FakeRun(workers=2, iterations=20).write(tmp_path / "run")
    with (run / "trace" / "server.jsonl").open("a") as file:
        file.write('{"iteration": 21, "sta')
    done = command(run)
    assert done.exit_code == 0
    assert done.stderr == (
        f"mdgan: warning: {run / 'trace' / 'server.jsonl'}: ends in the middle of a line, "
        "which is left out\n"
    )

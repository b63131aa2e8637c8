"""How sentences name settings and commands on the command line and in Python."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.spelling import command, flag, key, spelled

_GIVE = f"give {flag('iterations', 9)}, {key('quorum', 0.5)}"
_WAY_OUT = f"{_GIVE}, or leave {flag('merge_halves')} out"


def test_a_refusal_is_data_that_two_readers_see_in_their_own_words() -> None:
    error = BadInput(flag("batch_size", 0), "must be at least 1", _WAY_OUT)
    assert (error.setting, error.value, error.why) == ("batch_size", "0", "must be at least 1")
    assert str(error) == (
        "--batch-size 0: must be at least 1; give --iterations 9, --set quorum=0.5, or leave "
        "--merge-halves out"
    )
    error.is_for_python = True
    assert str(error) == (
        "batch_size=0: must be at least 1; give iterations=9, quorum=0.5, or leave merge_halves out"
    )


def test_a_refusal_within_another_keeps_its_marks() -> None:
    inner = BadInput(flag("out", "runs/a"), "is in use", _WAY_OUT)
    outer = BadInput(flag("config", "a.json"), inner.marked)
    outer.is_for_python = True
    assert str(outer).startswith("config=a.json: out=runs/a: is in use; give iterations=9, ")


def test_a_refusal_goes_to_another_process_whole() -> None:
    error = BadInput(flag("batch_size", 0), "must be\nat least 1", _WAY_OUT)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.setting, copy.value, copy.marked) == ("batch_size", "0", error.marked)
    assert "\n" not in str(copy)


def test_commands_become_calls_with_what_only_the_program_has() -> None:
    text = f"{command('resume', 'runs/a', iterations=9)}, {command('report', 'runs/a')}"
    assert spelled(text) == "mdgan train --resume runs/a --iterations 9, mdgan report runs/a"
    assert spelled(text, in_python=True, objects="data=…") == (
        'mdgan.Run.open("runs/a", data=…).resume(iterations=9), mdgan.Run.open("runs/a").report()'
    )


def test_a_command_in_a_refusal_keeps_what_only_the_program_has() -> None:
    error = BadInput("runs/a", "is there", f"go on with {command('resume', 'runs/a')}")
    said = spelled(" ".join(error.marked.split()), in_python=True, objects="data=…")
    assert said == 'runs/a: is there; go on with mdgan.Run.open("runs/a", data=…).resume()'


@given(st.text(), st.text())
def test_values_of_strangers_stay_values(value: str, why: str) -> None:
    assert str(BadInput(flag("out", value), why)).startswith("--out ")


def test_a_command_in_a_refusal_becomes_a_call_too() -> None:
    again = command("resume", "runs/a", trains_by="standalone")
    error = BadInput("runs/a", "is not over", f"go on with {again}")
    assert str(error).endswith("; go on with mdgan standalone --resume runs/a")
    error.is_for_python = True
    assert str(error).endswith('; go on with mdgan.Run.open("runs/a").resume()')

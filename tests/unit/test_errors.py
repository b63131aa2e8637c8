"""Refusals, trouble that recurs, and warnings of libraries."""

import threading
import warnings

import pytest

from mdgan.errors import BadInput, Folded, without_warnings
from mdgan.spelling import flag


@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\x02b", "a\0b", "a\udcffb", "a\x85b"])
def test_a_refusal_moves_no_terminal(name: str) -> None:
    refused = BadInput(name, f"is no {flag('dataset', name)}", f"name another than {name!r}")
    for is_for_python in (False, True):
        refused.is_for_python = is_for_python
        message = str(refused)
        assert message.isprintable()
        assert repr(refused) == f"BadInput({message!r})"
        assert f"{flag('dataset')}" not in message
        message.encode()


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (BadInput("/home/eve/s3.csv", "has 3 rows"), "s3.csv: has 3 rows"),
        (BadInput(flag("data_dir", "../a/b"), "(in ./x/y.csv)"), "--data-dir b: (in y.csv)"),
        (BadInput("a\x1b[2J\nb", "c" * 999), f"a?[2J b: {'c' * 291}"),
        (
            BadInput(flag("data_dir", "s3.csv"), "row 7: Smith").keep_here(),
            "--data-dir: the line at its machine says why",
        ),
        (BadInput("row 7", "Smith").keep_here(), "its data: the line at its machine says why"),
    ],
)
def test_another_machine_is_told_no_folder_and_nothing_of_what_samples_hold(
    refused: BadInput, told: str
) -> None:
    assert refused.told_elsewhere == told


def refuse_anew() -> None:
    try:
        raise BadInput("row 7", "Smith").keep_here()
    except BadInput as error:
        raise BadInput("the data", error.marked) from error


def test_a_refusal_of_another_hides_what_that_hides() -> None:
    with pytest.raises(BadInput, match="Smith") as caught:
        refuse_anew()
    assert "Smith" not in caught.value.told_elsewhere


def test_what_happens_again_and_again_is_told_less_and_less_often() -> None:
    folded = Folded()
    told = [folded.line("refused", "a") for _ in range(1000)]
    assert [n for n, line in enumerate(told, 1) if line] == [2**k for k in range(10)]
    assert told[0] == "refused"
    assert told[511] == "refused (512 times so far)"
    assert folded.line("refused", "b") == "refused", "each source is counted apart"


def test_something_new_each_time_counts_as_one_in_the_end() -> None:
    folded = Folded(most_sources=10, most_texts=4)
    told = [folded.line(f"refused {n}", "a") for n in range(10_000)]
    assert sum(map(bool, told)) < 4 + 15
    assert folded.line("refused", "b") == "refused", "it silences no other source"
    told = [folded.line(f"refused {n}", n) for n in range(10_000)]
    assert sum(map(bool, told)) < 10 + 4 + 15


def test_a_thread_that_hides_warnings_does_not_show_those_of_another() -> None:
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))
    raised: list[Warning] = []

    def first() -> None:
        with without_warnings():
            first_is_in.set()
            second_is_in.wait(0.5)  # it cannot be: blocks do not overlap
        first_is_out.set()

    def second() -> None:
        first_is_in.wait()
        with without_warnings(UserWarning):
            second_is_in.set()
            first_is_out.wait()
            try:
                warnings.warn("of a library", stacklevel=1)
            except UserWarning as warning:
                raised.append(warning)

    threads = [threading.Thread(target=act) for act in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not raised

"""What commands say, as a Python program is told it."""

import pytest

from mdgan.interface.wording import in_python


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("--iterations 0: must be at least 1", "iterations=0: must be at least 1"),
        ("--set quorum=2: must be at most 1", "quorum=2: must be at most 1"),
        ("give --set connect_timeout=SECONDS", "give connect_timeout=SECONDS"),
        ("--merge-halves: leave it out", "merge_halves: leave it out"),
        ("--workers-per-host 1 gives each its own", "workers_per_host=1 gives each its own"),
        ("or leave --out out", "or leave out out"),
        ("see --help-all", "see --help-all"),
        ("[b, Z_DIM=5]", "[b, z_dim=5]"),
        ("report  mdgan report runs/a", 'report  mdgan.Run.open("runs/a").report()'),
        (
            "none (--eval-interval 5; mdgan evaluate runs/a.b)",
            'none (eval_interval=5; mdgan.Run.open("runs/a.b", data=…).evaluate())',
        ),
        ("go on (mdgan train --resume a)", 'go on (mdgan.Run.open("a", data=…).resume())'),
        ("mdgan train --resume a", 'mdgan.Run.open("a", data=…).resume()'),
        (
            "mdgan train --resume a --iterations 9",
            'mdgan.Run.open("a", data=…).resume(iterations=9)',
        ),
    ],
)
def test_python_speaks_python(said: str, told: str) -> None:
    assert in_python(said, "data=…") == told

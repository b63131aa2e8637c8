"""Values that few rows have, and conditions that few rows meet."""

import csv
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.gallery import Gallery
from tests.integration.test_tables import QUICK
from tests.processes import check_refused, ended_well, read_events, run_here

SCHEMA = {
    "columns": [
        {"kind": "whole", "name": "age", "low": 0, "high": 99},
        {"kind": "category", "name": "ward", "categories": ["A", "B", "C"]},
        {"kind": "number", "name": "dose", "low": 0, "high": 9, "decimals": 1, "common": [0.0]},
    ]
}
NUM_ROWS, RARE = 500, 4


@pytest.fixture(scope="session")
def rare(gallery: Gallery) -> Path:
    """A run on two sites, of whose thousand rows four are of ward C."""

    def make(folder: Path) -> None:
        (folder / "study.json").write_text(json.dumps(SCHEMA))
        for name, youngest in (("site-1", 20), ("site-2", 20), ("held-out", 80)):
            lines = ["age,ward,dose"]
            for i in range(NUM_ROWS):
                ward = "C" if i < RARE / 2 else "AB"[i % 2]
                age = youngest + i % (60 if youngest == 20 else 19)
                lines.append(f"{age},{ward},{'0' if i % 3 else f'{i % 9}.{i % 10}'}")
            (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
        flags = ["train", "--dataset", "table", "--schema", "study.json", *QUICK]
        flags += ["--data-dir", "site-{rank}.csv", "--world-size", "3", "--transport", "memory"]
        flags += ["--held-out", "held-out.csv", "--eval-interval", "4", "--out", "run"]
        ended_well(run_here(*flags, cwd=folder), folder / "run", 4)

    return gallery.show("rare", make)


def wards(path: Path) -> Counter[str]:
    with path.open() as file:
        return Counter(row["ward"] for row in csv.DictReader(file))


def test_scores_samples_and_bundles_agree_on_rare_values(rare: Path) -> None:
    evaluated = run_here("evaluate", "run", "-n", "10000", "--json", cwd=rare)
    assert evaluated.status == 0, evaluated
    (output,) = json.loads(evaluated.output)["rare"]
    assert (output["column"], output["value"], output["expected"]) == ("ward", "C", 40)
    assert 20 <= output["generated"] <= 60
    (trained,) = [row for row in read_events(rare / "run", "scores") if row.get("by") is None]
    assert trained["rare"][0]["value"] == "C"
    seed = str(json.loads((rare / "run" / "config.json").read_text())["seed"])
    for name in ("one.csv", "two.csv"):
        flags = ["-n", "10000", "--seed", seed, "-o", name]
        assert run_here("sample", "run", *flags, cwd=rare).status == 0
    assert wards(rare / "one.csv") == wards(rare / "two.csv")
    assert wards(rare / "one.csv")["C"] == output["generated"]

    shown = run_here("evaluate", "run", "-n", "1000", cwd=rare)
    assert re.search(r"ward = C +4\.0 +\d+", shown.output), shown
    assert run_here("report", "run", cwd=rare).status == 0
    assert "rows expected" in (rare / "run" / "report.html").read_text()


def test_a_stranger_draws_rare_values_with_torch_alone(rare: Path, tmp_path: Path) -> None:
    (tmp_path / "any.toml").write_text("require = []")
    bundle = tmp_path / "bundle"
    flags = ["-o", str(bundle), "--policy", str(tmp_path / "any.toml"), "--samples", "2000"]
    released = run_here("release", "run", *flags, cwd=rare)
    assert released.status == 0, released
    verified = run_here("verify", str(bundle), "--unsigned", *flags[2:4], cwd=rare)
    assert "samples.csv: made again, every bit is the same" in verified.output, verified
    (lines,) = re.findall(r"```python\n(.*?)```", (bundle / "card.md").read_text(), re.DOTALL)
    program = f"{lines}torch.save(samples, {str(tmp_path / 'samples.pt')!r})"
    subprocess.run([sys.executable, "-I", "-c", program], cwd=bundle, check=True, timeout=300)
    output = str(tmp_path / "s.npz")
    assert run_here("sample", "run", "-n", "300", "-o", output, cwd=rare).status == 0
    theirs = torch.load(tmp_path / "samples.pt", weights_only=True)
    assert torch.equal(theirs, torch.from_numpy(np.load(output)["images"]))
    own_file = tmp_path / "own.csv"
    assert run_here("sample", "run", "-n", "2000", "-o", str(own_file), cwd=rare).status == 0
    assert wards(own_file)["C"] == wards(bundle / "samples.csv")["C"] > 0
    assert "expected" not in (bundle / "evidence.json").read_text()


def test_conditions_that_few_rows_fulfil_say_how_long_they_take(rare: Path) -> None:
    done = run_here("sample", "run", "-n", "400", "--where", "ward=C", "-o", "c.csv", cwd=rare)
    assert done.status == 0, done
    assert wards(rare / "c.csv") == {"C": 400}
    message = (
        r"--where ward=C: holds for \d+ of 65,536 draws, about 1 of \d+; 400 take [\d,]+, \d+ s"
    )
    assert re.search(message, done.errors), done
    quick = run_here("sample", "run", "-n", "9", "--where", "ward=A", "-o", "a.csv", cwd=rare)
    assert quick.status == 0, quick
    assert "draws" not in quick.errors


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        (["age<=19"], ""),
        (["age>=50", "age<=40"], "age>=50 for 48 %, age<=40 for 38 %"),
        (["ward=C", "age=20", "dose=8.9"], "ward=C for 0.4 %, age=20 for 1.8 %"),
    ],
)
def test_conditions_that_no_draw_fulfils_are_refused(
    rare: Path, conditions: list[str], told: str
) -> None:
    flags = [part for condition in conditions for part in ("--where", condition)]
    refused = run_here("sample", "run", "-n", "5", *flags, "-o", "none.csv", cwd=rare)
    check_refused(refused, " ".join(flags), "holds for none of 65,536 samples", told)
    assert not (rare / "none.csv").exists()

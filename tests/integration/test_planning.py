"""`mdgan plan`: its output and refusals; `benchmarks/planning.py` compares plans with runs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from mdgan.cli import main
from tests.processes import run
from tests.unit.dataset_formats import write_image_folder

UNITS = {"ms": 1e-3, "s": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def figures(text: str) -> dict[str, float]:
    """The rows of a plan that have a number with a unit, in seconds or bytes."""
    rows = re.findall(r"^  (\S.*?) {2,}([\d.,]+) (ms|s|B|kB|MB|GB)\b", text, re.MULTILINE)
    return {name: float(value.replace(",", "")) * UNITS[unit] for name, value, unit in rows}


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert {path.name for path in tmp_path.iterdir()} <= {"settings.json"}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--bandwidth", "0"], ["--bandwidth 0", "leave it out"]),
        (["--bandwidth", "-3"], ["--bandwidth -3"]),
        (["--bandwidth", "nan"], ["--bandwidth nan"]),
        (["--bandwidth", "inf"], ["--bandwidth inf"]),
        (["--bandwidth", "fast"], ["--bandwidth", "'fast'"]),
        (["--price-per-gb", "-1"], ["--price-per-gb -1", "0 or more"]),
        (["--price-per-gb", "inf"], ["--price-per-gb inf", "0 or more"]),
        (["--latency", "-1"], ["--latency -1", "0 or more"]),
        (["--latency", "nan"], ["--latency nan"]),
        (["--machines", "two"], ["--machines", "'two'", "each"]),
        (["--machines", "2x fast:0"], ["--machines 2x fast:0", "above 0"]),
        (["--shard-size", "0"], ["--shard-size"]),
        (["--dataset", "digit"], ["digit", "did you mean 'digits'?"]),
        (["--datasets-dir", "nowhere"], ["--datasets-dir nowhere"]),
        (["--world-size", "1"], ["--world-size 1", "at least 2"]),
        (["--kappa", "5"], ["--kappa 5", "4 worker(s)"]),
        (["--threads", "0"], ["--threads 0"]),
        (["--workers-per-host", "0"], ["--workers-per-host 0"]),
        (["--config", "none.json"], ["none.json", "cannot read"]),
        (["--out", "run"], ["--out"]),
        (["--algorithm", "standalone"], ["--algorithm standalone", "nothing to plan"]),
        (["--secure-aggregation"], ["--secure-aggregation", "twice the bytes"]),
        (["--dp-epsilon", "8"], ["--dp-epsilon 8", "add --dp-delta"]),
        (
            ["--algorithm", "fl-gan", "--dataset", "mnist"],
            ["--set round_epochs=1", "--shard-size or --round-iterations"],
        ),
        (["--updates", "arrival"], ["a server that waits for no worker"]),
        (
            ["--algorithm", "paragan", "--updates", "async", "--generator-ranks", "1..1"],
            ["workers in groups"],
        ),
    ],
    ids=" ".join,
)
def test_refuses(
    capsys: pytest.CaptureFixture[str], empty_folder: Path, flags: list[str], says: list[str]
) -> None:
    line = refusal(capsys, *flags)
    for part in says:
        assert part in line


def test_refuses_a_device_that_it_cannot_measure(
    capsys: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    (empty_folder / "settings.json").write_text('{"device": "cuda"}')
    assert "--device cuda" in refusal(capsys, "--config", "settings.json")


@pytest.mark.slow
def test_models_that_fail_with_this_batch(tmp_path: Path) -> None:
    """`check_models` tries a batch of two; this one fails with more."""
    (tmp_path / "picky.py").write_text(
        "from torch import nn\nSHAPE = (1, 4, 4)\nZ_DIM = 5\nPartitioner = None\n"
        "class Generator(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Linear(5, 16), nn.Tanh(), nn.Unflatten(1, SHAPE))\n"
        "class Discriminator(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.layer = nn.Linear(16, 1)\n"
        "    def forward(self, images):\n"
        "        assert len(images) < 7, 'too many\\nat once'\n"
        "        return self.layer(images.flatten(1))\n"
    )
    flags = ["--dataset", "picky", "--datasets-dir", ".", "--batch-size", "8"]
    result = run("plan", *flags, cwd=tmp_path)
    assert result.status == 2, result
    assert result.output == ""
    assert result.errors.count("\n") == 1
    assert "--batch-size 8" in result.errors
    assert "AssertionError: too many at once" in result.errors


def refusal(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """The one line with which the command is refused."""
    with pytest.raises(SystemExit) as ended:
        main(["plan", *flags])
    captured = capsys.readouterr()
    assert ended.value.code == 2, captured
    assert captured.out == ""
    assert captured.err.startswith("mdgan: ")
    assert captured.err.count("\n") == 1, captured.err
    return captured.err


@pytest.mark.parametrize(
    ("flags", "size"),
    [
        pytest.param([], "3.07 kB", id="8"),
        pytest.param(["--machines", "each"], "197 kB", id="64", marks=pytest.mark.slow),
        pytest.param(["--set", "image_size=16"], "12.3 kB", id="16", marks=pytest.mark.slow),
    ],
)
def test_pictures_have_the_size_that_training_gives_them(
    tmp_path: Path, flags: list[str], size: str
) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(3):
        Image.new("L", (8, 8)).save(tmp_path / "photos" / f"{number}.png")
    named = ["--dataset", "folder", "--data-dir", "photos", "--batch-size", "2"]
    planned = run("plan", *named, "--world-size", "2", *flags, cwd=tmp_path)
    assert planned.status == 0, planned
    assert f"Table III: {size}, 2bdN" in planned.output
    assert ("are trained on as 8×8" in planned.errors) == (not flags)


def test_swaps_are_foretold_from_data_that_are_here(tmp_path: Path) -> None:
    """As the run would swap where the user names no rhythm: 1,438 samples, 3 workers, b = 60."""
    flags = ["--world-size", "4", "--batch-size", "60", "--workers-per-host", "1"]
    flags += ["--iterations", "800", "--price-per-gb", "2"]
    result = run("plan", *flags, cwd=tmp_path)
    assert result.status == 0, result
    assert re.search(r"every +8 +iterations, part of the time above", result.output), result
    rows = figures(result.output)
    # 100 swaps, in each of which the two workers of a pair send theirs, and the third none.
    between = 100 * 2 * rows["a discriminator"]
    served = 800 * (rows["server sends"] + rows["server receives"])
    said = re.search(
        r"move ([\d.]+) (MB|GB) over the server's links and ([\d.]+) (MB|GB) between workers "
        r"\(([\d.]+) at 2 a GB\)",
        result.output,
    )
    assert said is not None, result
    assert float(said[1]) * UNITS[said[2]] == pytest.approx(served, rel=0.02)
    assert float(said[3]) * UNITS[said[4]] == pytest.approx(between, rel=0.02)
    assert float(said[5]) == pytest.approx(2 * (served + between) / 1e9, abs=0.02)


def test_means_of_discriminators_are_foretold_without_data(tmp_path: Path) -> None:
    flags = ["--dataset", "mnist", "--world-size", "3", "--batch-size", "2"]
    for form, every in (("means", r"25 +iterations, part of"), ("pairs", r"\? +not part of")):
        result = run("plan", *flags, "--swap", form, cwd=tmp_path)
        assert result.status == 0, result
        assert re.search(rf"every +{every} the time above", result.output), result


def test_pictures_of_many_classes_are_planned_by_a_process_of_its_own(tmp_path: Path) -> None:
    """What looks at them must leave no pool of threads: the processes that play could not begin."""
    write_image_folder(tmp_path / "pictures", "abcdefghij", 40, size=8)
    flags = ["--dataset", "folder", "--data-dir", "pictures", "--world-size", "3"]
    planned = run("plan", *flags, cwd=tmp_path)
    assert planned.status == 0, planned
    assert figures(planned.output)["a discriminator"] < 100e3, "that of 64×64 has 33 MB"


@pytest.mark.slow
def test_digits_with_the_settings_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(
        '{"world_size": 4, "transport": "memory", "ranks": null, "batch_size": 16}'
    )
    flags = ["--config", "settings.json", "--kappa", "2", "--bandwidth", "0.1"]
    flags += ["--workers-per-host", "1"]
    result = run("plan", *flags, "--latency", "10", "--shard-size", "480", cwd=tmp_path)
    assert result.status == 0, result
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]
    assert "digits: 3 worker(s) in 3 host(s)" in result.output
    assert "b = 16, κ = 2" in result.output
    output = figures(result.output)
    batch = 4 * 16 * 64
    generated = 2 * batch  # X^(g) and X^(d) of its worker
    assert output["server sends"] == pytest.approx(3 * generated, rel=0.1)
    assert output["server receives"] == pytest.approx(3 * batch, rel=0.15)
    assert output["host receives"] == pytest.approx(generated, rel=0.1)
    assert f"Table III: {3 * 2 * batch / 1000:.1f} kB, 2bdN" in result.output
    for way, what in (("out", "sends"), ("back", "receives")):
        seconds = 8 * output[f"server {what}"] / 1e5 / 0.94
        assert output[f"the server's link, {way}"] == pytest.approx(seconds, rel=0.05)
    assert output["latency"] == pytest.approx(0.02)
    assert output["all of it"] > output["server sends"] * 8 / 1e5 + 0.02
    assert re.search(r"every +30 +iterations", result.output)  # 480 / 16
    assert output["the server's process"] < output["all together"]
    assert output["a further worker in it"] < output["a host's process"] < output["all together"]
    answer, bottleneck = result.output.splitlines()[1:3]
    assert bottleneck.startswith("bottleneck: the server's link")
    assert re.match(
        r"[\d,]+ iterations will take .* and move .*; memory of all processes: ", answer
    )


@pytest.mark.slow
def test_differential_privacy_is_played_and_its_refusals_are_told_as_they_are(
    tmp_path: Path,
) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    flags = ["plan", "--world-size", "3", "--dp-delta", "0.0001", "--dp-epsilon"]
    played = run(*flags, "8", cwd=tmp_path)
    assert played.status == 0, played
    for name in ("server sends", "server receives", "host sends", "host receives"):
        assert figures(played.output)[name] > 0
    assert "FID about" in played.output  # the samples are here, so their number is known
    refused = run(*flags, "0.0001", cwd=tmp_path)
    assert refused.status == 2, refused
    assert refused.errors.startswith("mdgan: --dp-epsilon 0.0001: too small for ")
    assert refused.errors.count("\n") == 1


@pytest.mark.slow
def test_a_machine_each(tmp_path: Path) -> None:
    flags = ["--world-size", "7", "--workers-per-host", "2", "--machines", "each"]
    result = run("plan", *flags, cwd=tmp_path)
    assert result.status == 0, result
    output = figures(result.output)
    assert "6 worker(s) in 3 host(s) and the server, on machines of their own" in result.output
    stages = [name for name in output if name.startswith("worker: ")]
    assert "worker: feedback" in stages
    one = sum(output[stage] for stage in stages)
    assert output["the workers"] == pytest.approx(2 * one + output["host: messages"], rel=0.02)
    assert output["all of it"] >= max(output["the workers"], output["the server"]) * 0.99
    assert "all together" not in output
    assert re.search(r"every +\d+ +iterations", result.output)  # the samples are here


@pytest.mark.slow
def test_rounds(tmp_path: Path) -> None:
    flags = ["--algorithm", "fl-gan", "--world-size", "4", "--batch-size", "8"]
    result = run("plan", *flags, "--shard-size", "160", "--bandwidth", "1", cwd=tmp_path)
    assert result.status == 0, result
    assert list(tmp_path.iterdir()) == []
    output = figures(result.output)
    assert "\na round\n" in result.output
    assert "\na round waits longest for the server's link, out and back: " in result.output
    assert "bottleneck" not in result.output
    assert re.search(r"all of it .* rounds/s\n", result.output)
    assert output["server sends"] == pytest.approx(3 * output["host receives"], rel=0.01)
    assert "a worker, |θ| + |w|" in result.output
    assert output["worker: train"] > 0
    assert "a swap" not in result.output


@pytest.mark.slow
def test_clients_placed_on_uneven_machines(tmp_path: Path) -> None:
    flags = ["--algorithm", "fl-gan", "--clients", "40", "--participation", "0.5"]
    flags += ["--round-iterations", "4", "--batch-size", "8", "--slots", "1"]
    result = run("plan", *flags, "--machines", "1x fast, 2x slow:0.5/2", cwd=tmp_path)
    assert result.status == 0, result
    assert "20 of 40 clients in 3 host(s)" in result.output
    output = figures(result.output)
    assert output["server sends"] == pytest.approx(3 * output["host receives"], rel=0.05)
    assert max(output["1x fast"], output["2x slow"]) < output["all of it"]
    assert re.search(r"2x slow +.*2 slot\(s\), (6|6\.5|7) client\(s\)", result.output)
    assert 0 < output["each of its slots"] < output["a host's process"]


@pytest.mark.slow
def test_workers_shared_out_to_uneven_machines(tmp_path: Path) -> None:
    flags = ["--world-size", "7", "--machines", "1x fast, 2x slow:0.25"]
    result = run("plan", *flags, cwd=tmp_path)
    assert result.status == 0, result
    assert "6 worker(s) in 3 host(s)" in result.output
    assert "worker(s); --ranks 1..4" in result.output
    assert "worker(s); --ranks 5..5, 6..6" in result.output

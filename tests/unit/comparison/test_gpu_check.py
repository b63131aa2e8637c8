"""`make gpu-check` without a GPU, and when its time is over."""

import subprocess
import sys

import pytest
import torch


def _run(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="looks for the refusal without a GPU")
def test_without_a_gpu_one_line_says_so() -> None:
    ended = _run()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "gpu-check: no CUDA GPU found here\n"


def test_the_table_is_printed_when_the_time_is_over() -> None:
    ended = _run("--device", "cpu", "--minutes", "0")
    assert ended.returncode == 1, ended.stderr
    assert "what is missing was not measured" in ended.stdout
    rows = [line for line in ended.stdout.splitlines() if line.startswith("| MD-GAN")]
    assert len(rows) == 4
    assert {row.split("|", 2)[2].strip() for row in rows} == {"|  |  |  |"}

"""`--device cuda` without a GPU: whole runs that mix no devices, with the CPU's bits.

What is new gets a line in `RUNS`, or in `SLOW_RUNS` if another line has most of it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.fake_cuda import CUDA, fake_cuda
from tests.processes import Finished, generator_bytes, run_here

_SHORT = [
    *("train", "--transport", "memory", "--iterations", "2", "--batch-size", "4", "--threads", "1"),
    *("--sample-interval", "0", "--eval-interval", "0", "--checkpoint-interval", "0"),
]
_WASSERSTEIN = "--discriminator-loss wasserstein --generator-loss wasserstein"

RUNS = {
    "md-gan": "--world-size 3 --workers-per-host 1 --swap-interval 1 --augment ada --r1 0.1 --ema 3"
    " --spectral-norm --discriminator-optimizer lookahead:adabelief:clip_norm=1",
}
SLOW_RUNS = {
    "all at once": "--world-size 3 --workers-per-host 2 --vectorize --swap-interval 1 "
    f"--gradient-penalty 10 {_WASSERSTEIN}",
    "fl-gan": "--algorithm fl-gan --world-size 3 --round-iterations 2 --generator-optimizer lamb "
    "--augment diffaugment",
    "scores": "--world-size 3 --eval-interval 2 --sample-interval 2 --checkpoint-interval 1",
    "stale": "--world-size 3 --stale 1",
    "arrival": "--world-size 3 --updates arrival --architecture acgan --width 4 --ema 2",
    "fegan": "--algorithm fegan --world-size 3 --round-iterations 2 --wire models=int8",
    "standalone": "--algorithm standalone --local-steps 2",
    "paragan": "--algorithm paragan --world-size 3",
    "paragan, a network each": "--algorithm paragan --world-size 4 --updates async "
    "--generator-ranks 1..1 --architecture acgan --width 4 --set label_prior=data",
    "paragan, asynchronous": "--algorithm paragan --world-size 3 --updates async --ema 2",
    **{
        name: f"--world-size 3 --architecture {name} --width 4 --local-steps 1 --swap-interval 1"
        for name in ("sngan", "biggan", "acgan", "md-gan-mlp", "md-gan-cnn")
    },
    "classes at once": "--world-size 4 --workers-per-host 3 --vectorize --architecture acgan "
    "--width 4 --set label_prior=data --set class_weight=0.5",
    "classes in rounds": "--algorithm fl-gan --world-size 3 --round-iterations 2 --architecture "
    "acgan --width 4",
    **{
        name: f"--world-size 3 --generator-optimizer {name}:schedule=cosine,warmup=2 "
        f"--discriminator-optimizer {name}"
        for name in ("radam", "adabelief", "lars", "lamb", "sgd", "lookahead:adam")
    },
    **{
        rule: f"--world-size 6 --workers-per-host 5 --aggregation {rule} --kappa {kappa}"
        for rule, kappa in (
            *(("median", 1), ("trimmed-mean:1", 2), ("krum:1", 1), ("krum:1", 2), ("clip:1", 1)),
            *(("f2u", 2), ("f2a:0.5", 2)),
        )
    },
    "models, krum": "--algorithm fl-gan --world-size 6 --round-iterations 2 --aggregation krum:1",
    **{
        codec: f"--world-size 3 --wire images={codec},feedback={codec}"
        for codec in ("bf16", "int8")
    },
    "topk": "--world-size 3 --wire feedback=topk:0.1",
    "convolutions": "--world-size 3 --architecture dcgan --width 4 --set channels_last=true",
    "fp16": "--world-size 3 --precision fp16",
    "bf16": "--world-size 3 --precision bf16",
    "merged": "--world-size 3 --merge-halves --swap-interval 1 --augment ada --spectral-norm",
}
_NOT_COMPARED = {"fp16", "bf16"}
"""No autocast on the GPU that is not there."""


@pytest.fixture
def device() -> Iterator[torch.device]:
    with fake_cuda() as device:
        yield device


def _here(folder: Path, name: str, *flags: str) -> bytes:
    result: Finished = run_here(*flags, "--out", name, cwd=folder)
    assert result.status == 0, result
    return generator_bytes(folder / name)


@pytest.mark.parametrize(
    "name", [*RUNS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_RUNS)]
)
def test_run_on_gpu_gives_bits_of_cpu(tmp_path: Path, name: str) -> None:
    flags = [*_SHORT, *(RUNS | SLOW_RUNS)[name].split()]
    with fake_cuda():
        on_gpu = _here(tmp_path, "gpu", *flags, "--device", "cuda")
    assert name in _NOT_COMPARED or on_gpu == _here(tmp_path, "cpu", *flags)


@pytest.mark.slow
def test_run_on_gpu_goes_on_and_is_looked_at(tmp_path: Path) -> None:
    flags = [*_SHORT, "--world-size", "3", "--ema", "2", "--checkpoint-interval", "1"]
    with fake_cuda():
        whole = _here(tmp_path, "whole", *flags, "--device", "cuda", "--iterations", "3")
        _here(tmp_path, "half", *flags, "--device", "cuda", "--iterations", "2")
        more = ["train", "--resume", "half", "--iterations", "3"]
        assert run_here(*more, cwd=tmp_path).status == 0
        assert generator_bytes(tmp_path / "half") == whole
        scored = run_here("evaluate", "half", "-n", "20", "--device", "cuda", cwd=tmp_path)
        assert scored.status == 0, scored


def test_devices_that_are_mixed_are_refused(device: torch.device) -> None:
    on_gpu, on_cpu = torch.ones(2, 3, device=device), torch.ones(2, 3)
    assert (on_gpu.device, on_gpu.cpu().device.type) == (CUDA, "cpu")
    assert torch.equal((on_gpu * 2).cpu(), on_cpu * 2)
    with pytest.raises(RuntimeError, match="devices"):
        on_gpu + on_cpu
    with pytest.raises(RuntimeError, match="device"):
        torch.nn.Linear(3, 2)(on_gpu)
    with pytest.raises(RuntimeError):
        on_gpu.numpy()

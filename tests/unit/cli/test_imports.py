"""What commands import: each takes seconds to start where a package is imported for nothing."""

import subprocess
import sys

import pytest

_SLOW = {"pytorch_optimizer", "scipy", "sklearn", "torch._dynamo", "torchmetrics", "torchvision"}


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("mdgan.cli", {"torch", "numpy", "rich", *_SLOW}),
        ("mdgan.inspect.describe, mdgan.launch.launcher, mdgan.launch.guests", {"rich", *_SLOW}),
        ("mdgan.inspect.evaluate, mdgan.inspect.sampling, mdgan.interface.train", _SLOW),
    ],
)
def test_what_few_commands_use_is_imported_where_it_is_used(modules: str, absent: set[str]) -> None:
    program = f"import sys, {modules}; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert not absent & set(ended.stdout.split())

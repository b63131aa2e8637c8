"""What `--dry-run` says of a run before it starts."""

from pathlib import Path
from typing import Any

import pytest

from mdgan.inspect.describe import describe
from mdgan.launch.checked import prepare
from mdgan.launch.given import Given

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

SORTED: dict[str, Any] = {"world_size": 5, "partition": "shards:2", "architecture": "md-gan-mlp"}


def test_under_privacy_no_swap_follows_classes(tmp_path: Path) -> None:
    private = {"dp_epsilon": 8.0, "dp_delta": 1e-4, "dp_ledger": str(tmp_path / "ledger")}
    because = "as workers hold different classes"
    assert because in describe(prepare(Given([SORTED]), show_all=True))
    said = describe(prepare(Given([{**SORTED, **private}]), show_all=True))
    assert because not in said
    assert "pairs swap every 6 iterations" in said

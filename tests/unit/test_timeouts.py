import pytest

from mdgan.timeouts import Timeouts


def test_time_limits_must_rise() -> None:
    Timeouts()
    for wrong in (
        {"farewell": 0.0},
        {"farewell": 31.0},
        {"link": 61.0},
        {"swap": 601.0},
        {"answer": 60.0},
    ):
        with pytest.raises(ValueError, match="time limits"):
            Timeouts(**wrong)


def test_patience_and_liveness_are_the_users_own() -> None:
    assert Timeouts(patience=0.0, liveness=1e-3, connect=1e-3).patience == 0.0

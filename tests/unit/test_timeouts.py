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

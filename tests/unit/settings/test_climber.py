"""One search finds all numbers that affect only speed."""

from mdgan.settings.climber import HillClimber


def climbed(scores: dict[str, float], gain: float, hopeless: float | None = None) -> str:
    """What is chosen, and after it the candidates that were tried."""
    climber = HillClimber(list(scores), gain, hopeless)
    while not climber.settled:
        climber.note(scores[climber.candidate])
    return climber.candidate + ":" + "".join(candidate for candidate, _ in climber.tried)


def test_it_stops_at_the_first_that_gains_too_little() -> None:
    assert climbed({"a": 1, "b": 2, "c": 2.05, "d": 9}, gain=1.1) == "b:abc"
    assert climbed({"a": 1, "b": 2, "c": 3}, gain=1.1) == "c:abc"
    assert climbed({"a": 5}, gain=1.1) == "a:"


def test_it_goes_on_until_a_candidate_is_hopeless() -> None:
    assert climbed({"a": 3, "b": 2.5, "c": 4, "d": 2, "e": 9}, 1.03, hopeless=2 / 3) == "c:abcd"
    assert climbed({"a": 3, "b": 0, "c": 9}, 1.03, hopeless=2 / 3) == "a:ab"


def test_without_a_gain_every_step_is_taken_and_can_be_taken_back() -> None:
    climber = HillClimber([1, 2, 3], gain=0.0)
    for score in (0.5, 0.1, 0.0):
        climber.note(score)
    assert (climber.candidate, climber.settled) == (3, True)
    climber.back()
    assert (climber.candidate, climber.settled) == (2, False)
    climber.back()
    climber.back()
    assert climber.candidate == 1

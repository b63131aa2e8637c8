"""What is done at certain intervals, also if training advances by many iterations at once."""


def passed(interval: int, before: int, now: int) -> bool:
    """Whether a multiple of an interval has been reached or passed.

    Args:
        interval: in iterations; 0 for never.
        before: the last iteration that was asked about; −1 if 0 counts, too.
        now: the last that is done.
    """
    return interval > 0 and now // interval > before // interval

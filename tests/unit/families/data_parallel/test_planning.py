"""What `mdgan plan` is told of ParaGAN."""

from typing import Any

import pytest

from mdgan.data import dataset_file
from mdgan.families.data_parallel.build import planning
from mdgan.families.data_parallel.settings import PARAGAN, DataParallelSettings
from mdgan.launch.models import models_of

DIGITS = dataset_file.load("digits", None)
ASYNC = {"updates": "async", "iterations": 100}


@pytest.mark.parametrize(
    ("changes", "questions", "updates"),
    [
        ({}, 2, "sync"),
        ({"local_steps": 3}, 4, "sync"),
        (ASYNC, 1, "async"),
        ({**ASYNC, "sync_after": 80}, 1, "async"),
        ({**ASYNC, "sync_after": 20}, 2, "sync"),
        ({**ASYNC, "image_buffer": 0}, 2, "sync"),
    ],
)
def test_it_plays_the_updates_that_most_iterations_have(
    changes: dict[str, Any], questions: int, updates: str
) -> None:
    settings = DataParallelSettings(**changes)
    planned = planning(settings, models_of(settings, DIGITS))
    assert (planned.questions, planned.settings.asynchrony.updates) == (questions, updates)
    assert ("local-step" in PARAGAN.phases(planned.settings)[0]) == (updates == "sync")

"""A search ends in time for its final checks, by a clock that only evaluations move."""

import asyncio

import drive
import pytest
import toy

from accelopt.evaluation import Scrutiny
from accelopt.stages.deadline import Deadline

SECONDS = {"start": 30.0, "build": 10.0, "everything": 15.0}
SETTINGS = drive.SETTINGS._replace(strategy="mcgs", evaluations=50, window=1, iterations=1000)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Slow(toy.ToyLanguage):
    """A start that takes long to judge, and builds that do not, as on a device."""

    clock = Clock()

    async def evaluate(self, case, source):
        if self.scrutiny is Scrutiny.FULL:
            kind = "everything"
        else:
            kind = "start" if toy.cost_of(source) == 100 else "build"
        self.clock.now += SECONDS[kind]
        verdict = await super().evaluate(case, source)
        return verdict.model_copy(update={"seconds": SECONDS[kind]})

    async def confirm(self, case, winner, parent):
        self.clock.now += SECONDS["build"] + SECONDS["start"]
        return await super().confirm(case, winner, parent)


def search(folder, seconds, window=1):
    """The outcome, how many evaluations were made now, and the time at the end."""
    Slow.clock.now = 0.0
    deadline = Deadline(seconds, Slow.clock)
    options = {"backend": "test_deadline:Slow", "screening": Scrutiny.QUICK, "deadline": deadline}
    found = drive.run_toy(folder, settings=SETTINGS._replace(window=window), **options)
    [outcome], shop = asyncio.run(found)
    return outcome, shop.evaluations.made, Slow.clock.now


@pytest.mark.parametrize("seconds", [165, 170, 174, 175])
def test_the_time_is_used_and_kept(tmp_path, seconds):
    """What is left over at the end is less than one build would take, and it is not too late."""
    outcome, made, now = search(tmp_path, seconds)
    assert outcome.best.latency < outcome.start.latency and outcome.confirmation.confirmed
    assert made - 1 == (seconds - SECONDS["start"] - 55) // 10
    assert seconds - SECONDS["build"] < now <= seconds
    assert outcome.ended == f"{seconds} seconds are over but for the final checks"


def test_what_was_begun_side_by_side_is_told(tmp_path):
    outcome, made, _ = search(tmp_path, 200, window=3)
    assert made > 3 and len(outcome.nodes) == made - 1


def test_where_there_is_no_time_for_a_build_none_is_begun(tmp_path):
    """The first might take as long as the start did, and so might each of its final checks."""
    outcome, made, now = search(tmp_path, 164)
    assert made == 1 and outcome.best is outcome.start
    assert now == SECONDS["start"] + SECONDS["everything"]


def test_what_was_done_before_is_told_again_without_any_time(tmp_path):
    before, made, _ = search(tmp_path, 180)
    again, none, now = search(tmp_path, 1)
    assert made > 1 and none == now == 0
    assert again.best.source == before.best.source and len(again.nodes) == len(before.nodes)
    more, some, _ = search(tmp_path, 80)
    assert some == 2 and len(more.nodes) == len(before.nodes) + some

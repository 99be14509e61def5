"""The offline proposer on toy rewrites: order, chains, what was tried, carrying out from text."""

import asyncio
from pathlib import Path

import toy

from accelopt.agents.offline import THEN, OfflineProposer
from accelopt.agents.proposer import KernelView, Pair, Tried
from accelopt.kernels.language import Rewrite


def rewrites(candidate, source):
    """Three ways down from each cost; the most promising is not the fastest."""
    cost = toy.cost_of(source)
    steps = {"Halve": (cost / 2, 0.3), "Shave": (cost - 1, 0.9), "Raise": (cost + 5, 0.5)}
    return [
        Rewrite(f"{name} {cost:g}.", toy.kernel(to), gain) for name, (to, gain) in steps.items()
    ]


async def predict(view, source):
    return toy.cost_of(source)


def view(tmp_path, **changes):
    candidate = toy.start(tmp_path)
    kernel = Path(candidate.kernel).read_text()
    return KernelView(candidate, toy.REFERENCE, kernel)._replace(**changes)


def plans(proposer, seen, draws=3):
    async def draw():
        return [await proposer.plan(seen, number, draws) for number in range(draws)]

    return [draft.text for draft in asyncio.run(draw())]


def test_predictions_order_the_rewrites_and_extend_them_into_chains(tmp_path):
    drawn = plans(OfflineProposer(rewrites, predict), view(tmp_path))
    assert drawn[0] == THEN.join(["Halve 100.", "Halve 50."])
    assert drawn[1] == THEN.join(["Shave 100.", "Halve 99."])
    assert drawn[2] == THEN.join(["Raise 100.", "Halve 105."])


def test_without_predictions_promise_decides_and_chains_have_one_step(tmp_path):
    assert plans(OfflineProposer(rewrites), view(tmp_path)) == [
        "Shave 100.",
        "Raise 100.",
        "Halve 100.",
    ]


def test_what_was_tried_or_misses_the_goal_is_not_proposed(tmp_path):
    proposer = OfflineProposer(rewrites, predict)
    tried = (Tried(THEN.join(["Halve 100.", "Halve 50."]), "failed"),)
    assert plans(proposer, view(tmp_path, tried=tried), 1) == ["Shave 100." + THEN + "Halve 99."]
    assert plans(proposer, view(tmp_path, goal=30.0)) == [
        "Halve 100." + THEN + "Halve 50.",
        None,
        None,
    ]
    assert plans(proposer, view(tmp_path, goal=10.0), 1) == [None]


def test_a_plan_is_carried_out_from_its_text_alone(tmp_path):
    seen = view(tmp_path)
    [plan] = plans(OfflineProposer(rewrites, predict), seen, 1)

    def carried_out(text, sample):
        return asyncio.run(OfflineProposer(rewrites).implement(seen, text, 0, sample))

    assert toy.cost_of(carried_out(plan, 0).source) == 25
    assert toy.cost_of(carried_out(plan, 1).source) == 50  # a shorter chain
    assert carried_out(plan, 1).plan == "Halve 100."
    assert toy.cost_of(carried_out("Please halve the cost of 100.", 0).source) == 50
    assert asyncio.run(OfflineProposer(lambda *_: []).implement(seen, plan, 0, 0)).source is None


def test_a_lesson_is_the_plan_with_its_lines(tmp_path):
    proposer = OfflineProposer(rewrites)
    pair = Pair("s/plan_0_0", toy.kernel(100), toy.kernel(50), 2.0, "Halve 100. It is large.")
    lesson = asyncio.run(proposer.summarize(pair))
    assert lesson.title == "**Halve 100**"
    assert "2.00 times as fast" in lesson.summary
    assert "# before\n    COST = 100" in lesson.summary
    assert "# after\n    COST = 50" in lesson.summary
    same = pair._replace(fast_kernel=pair.slow_kernel)
    assert asyncio.run(proposer.summarize(same)).summary is None

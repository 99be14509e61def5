"""Knobs of NKI kernels: fields of schedules where a kernel lifts, factors of moves elsewhere."""

import random

import pytest
from small_problem import KERNEL, REFERENCE
from test_language import node, with_language  # noqa: F401  (a fixture)

from accelopt.evaluation import Status
from accelopt.kernels.language import Configured
from accelopt.kernels.nki.knobs import FactorKnobs
from accelopt.kernels.nki.lift.scheduled_kernels import schedule_in
from accelopt.kernels.nki.moves.move import Facts
from accelopt.kernels.nki.moves.reading.shapes import kernel_arguments
from accelopt.nodes import Node, Reschedule


def test_a_kernel_that_lifts_is_set_by_the_fields_of_a_schedule(tmp_path, node):  # noqa: F811
    async def tried(nki):
        space = await nki.space(node)
        chance, found = random.Random(0), []
        for _ in range(4):
            made = await nki.configure(node, space.drawn(chance))
            found.append((made, made.source and await nki.evaluate(node.case, made.source)))
        default = await nki.configure(node, space.default)
        return space, found, default

    space, found, default = with_language(tmp_path, tried)
    assert space.size >= 4 and {"columns"} <= {knob.name for knob in space.knobs}
    assert default.source is not None and default.source != KERNEL
    points, prices = zip(*space.foretold, strict=True)
    assert points[0] == space.default and list(prices) == sorted(prices) and len(prices) > 1
    assert not any(space.faults(point) for point in points)
    for made, evaluation in found:
        assert (made.source is None) == bool(made.reason)
        assert evaluation is None or evaluation.status is Status.CORRECT, evaluation.message


def test_a_schedule_that_is_priced_far_beyond_the_cheapest_makes_no_kernel(
    tmp_path,
    node,  # noqa: F811
    monkeypatch,
):
    monkeypatch.setattr("accelopt.kernels.nki.knobs.FAR", 0.5)

    async def tried(nki):
        return await nki.configure(node, (await nki.space(node)).default)

    made = with_language(tmp_path, tried)
    assert made.source is None and "priced at" in made.reason and "1 times" in made.reason


def test_without_lookahead_actions_are_schedules_by_price_then_their_fields(tmp_path, node):  # noqa: F811
    async def tried(nki):
        first = await nki.actions(node)
        whole = next(action for action in first if action.method == "schedule")
        moved = next(action for action in first if action.method != "schedule")
        children = [
            Node(node.case, made.source, node.evaluation, node, made.change, "plan_0_0")
            for made in (whole, moved)
        ]
        below = [await nki.actions(child) for child in children]
        return first, *below, await nki.predict(node, KERNEL)

    first, beside, after, predicted = with_language(tmp_path, tried, lookahead=False)
    schedules = [[a.key for a in found if a.method == "schedule"] for found in (first, after)]
    assert schedules[0] == schedules[1]  # a kernel that was moved computes what it did
    assert predicted is None and all(action.predicted is None for action in first)
    assert any(action.method not in ("schedule",) for action in first)  # the moves' own
    fields = [action for action in beside if action.method.startswith("set_")]
    assert all(schedule_in(action.change) is not None for action in fields)
    assert fields and all(action.source not in ("", KERNEL) and action.touches for action in fields)
    assert len({action.key for action in fields}) == len(fields)


def test_factors_of_moves_make_a_kernel_or_say_why_not():
    facts = Facts(arguments=kernel_arguments(KERNEL, REFERENCE))
    knobs = FactorKnobs(KERNEL, facts)
    space = knobs.space("silu", {"M": 256})
    assert space.knobs and all(knob.values[0] in (1, False) for knob in space.knobs)
    assert knobs.configured(space.default) == Configured(KERNEL)
    for point in space.points():
        made = knobs.configured(point)
        assert made.reason if made.source is None else made.source.strip()
    assert any(knobs.configured(p).source not in (None, KERNEL) for p in space.points()), (
        "no factor can be set at all"
    )


@pytest.mark.parametrize("change", [None, Reschedule(schedule={"stages": []}, sentence="")])
def test_other_changes_have_no_schedule(change):
    assert schedule_in(change) is None

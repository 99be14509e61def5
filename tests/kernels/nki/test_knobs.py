"""Knobs of NKI kernels: primitives of nests that have values. And what can be done to a kernel without
looking ahead: nests, and what single primitives make of those."""

import random
from dataclasses import replace

import pytest
from small_problem import KERNEL
from test_language import node, with_language  # noqa: F401  (a fixture)
from timed_kernels import correct

from accelopt.evaluation import Case, Status
from accelopt.kernels.language import Configured
from accelopt.kernels.nki.rescheduling.schedule_candidates import nest_in
from accelopt.nodes import Node, Reschedule
from tests.kernels.nki.rescheduling.test_scheduled_kernels import BOTH_WAYS

KINDS = {"partition", "tile", "split", "columns", "at", "apart", "hold", "orient", "keep", "bring"}
SUMS = """import numpy as np


def get_inputs():
    return [np.random.normal(size=(128, 128)).astype(np.float32)]


def forward(x):
    return x.sum(axis=1), x.sum(axis=0)


def transform_nki_outputs(outputs, expected):
    return [out.reshape(one.shape) for out, one in zip(outputs, expected)]
"""


def test_a_kernel_that_lifts_is_set_by_primitives_of_its_nests(tmp_path, node):  # noqa: F811
    async def tried(nki):
        space = await nki.space(node)
        chance, found = random.Random(0), []
        for _ in range(4):
            made = await nki.configure(node, space.drawn(chance))
            found.append((made, made.source and await nki.evaluate(node.case, made.source)))
        default = await nki.configure(node, space.default)
        return space, found, default

    space, found, default = with_language(tmp_path, tried)
    meanings = {knob.name: knob.meaning for knob in space.knobs}
    assert space.size >= 4 and "how many elements a partition" in meanings["columns_out"]
    assert all(meanings.values())  # an expert is told them (issue 41)
    assert default.source is not None and default.source != KERNEL
    points, prices = zip(*space.foretold, strict=True)
    assert space.default in points and list(prices) == sorted(prices) and len(prices) > 1
    assert not any(space.faults(point) for point in points)
    for made, evaluation in found:
        assert (made.source is None) == bool(made.reason)
        assert evaluation is None or evaluation.status is Status.CORRECT, evaluation.message


def test_a_nest_that_is_priced_far_beyond_the_cheapest_makes_no_kernel(
    tmp_path,
    node,  # noqa: F811
    monkeypatch,
):
    monkeypatch.setattr("accelopt.kernels.nki.actions.knobs.FAR", 0.5)

    async def tried(nki):
        return await nki.configure(node, (await nki.space(node)).default)

    made = with_language(tmp_path, tried)
    assert made.source is None and "priced at" in made.reason and "1 times" in made.reason


def test_actions_are_nests_by_price_then_what_primitives_make_of_one(tmp_path, node):  # noqa: F811
    async def tried(nki):
        first = await nki.actions(node)
        whole = Node(node.case, first[0].source, node.evaluation, node, first[0].change, "plan_0_0")
        near = await nki.actions(whole)
        change = near[0].change
        further = await nki.actions(
            Node(node.case, near[0].source, node.evaluation, whole, change, "plan_0_0")
        )
        edited = replace(whole, source=f"{first[0].source}\n\nEDITED = True\n")
        return first, near, further, await nki.actions(edited), await nki.predict(node, KERNEL)

    first, near, further, edited, predicted = with_language(tmp_path, tried, lookahead=False)
    assert {action.method for action in first} == {"schedule"}
    assert predicted is None and all(action.predicted is None for action in first)
    assert near and all(action.touches and action.key for action in near)
    assert {action.method for action in near} <= KINDS
    assert len({action.key for action in near}) == len(near)
    assert further and all(action.method != "schedule" for action in further)
    # A kernel that somebody changed since is like any other: it computes what it was made of.
    assert [action.key for action in edited] == [action.key for action in first]


@pytest.fixture
def both_ways(tmp_path):
    """Sums over rows beside sums over columns."""
    (tmp_path / "kernel.py").write_text(BOTH_WAYS)
    (tmp_path / "reference.py").write_text(SUMS)
    case = Case(
        case_name="sums", problem="sums", values={}, task=str(tmp_path / "reference.py"),
        kernel=str(tmp_path / "kernel.py"),
    )  # fmt: skip
    return Node(case, BOTH_WAYS, correct(1.0))


def test_primitives_are_actions_and_knobs(tmp_path, both_ways):
    """Assumption: primitives keep what a nest computes; the referee judges each kernel that they make."""

    async def tried(nki):
        first = (await nki.actions(both_ways))[0]
        nest = Node(both_ways.case, first.source, both_ways.evaluation, both_ways, first.change)
        near = await nki.actions(nest)
        space, chance = await nki.space(both_ways), random.Random(1)
        points = [space.default, *(space.drawn(chance) for _ in range(3))]
        made = [await nki.configure(both_ways, point) for point in points]
        sources = [
            first.source,
            *(a.source for a in near[:3]),
            *(m.source for m in made if m.source),
        ]
        verdicts = [await nki.evaluate(both_ways.case, s) for s in {*sources}]
        return first, near, space, made, verdicts

    first, near, space, made, verdicts = with_language(tmp_path, tried, lookahead=False)
    assert near and {action.method for action in near} <= KINDS
    assert {knob.name.partition("_")[0] for knob in space.knobs} <= {"start", *KINDS}
    assert space.size > 3 and made[0].source == first.source  # the cheapest, as it is
    assert all((one.source is None) == bool(one.reason) for one in made)
    assert {one.status for one in verdicts} == {Status.CORRECT}, [one.message for one in verdicts]


def test_a_kernel_that_does_not_lift_has_no_knobs(tmp_path, node):  # noqa: F811
    source = KERNEL.replace("nl.exp(nl.negative(x_tile))", "nl.rand((128, 128))")

    async def asked(nki):
        drawn = replace(node, source=source)
        return await nki.space(drawn), await nki.configure(drawn, {}), await nki.actions(drawn)

    space, made, actions = with_language(tmp_path, asked, lookahead=False)
    assert space is None and made == Configured(None, "the kernel has no knobs") and actions == []


@pytest.mark.parametrize("change", [None, Reschedule(schedule={"rows": "m"}, sentence="")])
def test_other_changes_have_no_nest(change):
    assert nest_in(change) is None

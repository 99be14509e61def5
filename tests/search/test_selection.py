"""The published selection on a recorded output, and the elitist one that never loses the best."""

import pytest

from accelopt.kernel_source import fingerprint
from accelopt.published import ServiceResult
from accelopt.search.beam import Beam
from accelopt.search.selection import PARENT, select_elitist, select_published


def sample(latency, baseline=10.0, body=None):
    """A published record: a correct sample of `latency` ms, or a failed one."""
    record = {
        "body": body or f"kernel {latency}",
        "spec_code": "reference",
        "baseline": f"parent {baseline}",
        "baseline_latency": baseline,
        "problem": "p",
        "values": '{"N": 4}',
    }
    if latency is None:
        return {**record, "error": "wrong"}
    return {**record, "latency": latency, "speedup": baseline / latency}


MISSING = {"error": "No implementation found"}


def service(name="s0", case="p_N4", **samples):
    return ServiceResult.from_record({"service_name": name, "case_name": case, **samples})


def chosen(selected):
    return [(s.parent, s.plan_id, s.latency) for s in selected]


RECORDED = [
    service(
        "s0",
        plan_0_0=sample(8.0),
        plan_0_1=sample(7.0),
        plan_1_0=sample(None),
        plan_1_1=MISSING,
        plan_2_0=sample(12.0),
    ),
    service("s1", plan_0_0=sample(7.5, baseline=9.0), plan_1_0=MISSING),
]


def test_published_keeps_the_fastest_of_each_plan_and_fills_with_parents():
    everything = chosen(select_published(RECORDED, 9))
    assert everything == [
        ("s0", "plan_0_1", 7.0),
        ("s1", "plan_0_0", 7.5),
        ("s0", "plan_2_0", 12.0),
        ("s0", "plan_1_0", 10.0),  # the parent, at infinite priority
    ]
    assert select_published(RECORDED, 9)[-1].body == "parent 10.0"
    assert chosen(select_published(RECORDED, 2)) == everything[:2]


def test_published_can_lose_the_best_and_elitist_cannot():
    worse = [service(plan_0_0=sample(12.0))]
    assert chosen(select_published(worse, 1)) == [("s0", "plan_0_0", 12.0)]
    assert chosen(select_elitist(worse, 1)) == [("s0", PARENT, 10.0)]
    assert select_elitist(worse, 1)[0].body == "parent 10.0"


def test_elitist_lets_parents_compete_by_their_latency():
    assert chosen(select_elitist(RECORDED, 3, children_per_parent=3)) == [
        ("s0", "plan_0_1", 7.0),
        ("s1", "plan_0_0", 7.5),
        ("s0", "plan_0_0", 8.0),
    ]


def test_elitist_bounds_the_children_of_one_parent_while_others_wait():
    many = [
        service("s0", **{f"plan_{i}_0": sample(1.0 + i) for i in range(5)}),
        service("s1", plan_0_0=sample(9.0)),
    ]
    parents = [s.parent for s in select_elitist(many, 3, children_per_parent=2)]
    assert sorted(parents) == ["s0", "s0", "s1"]
    assert len(select_elitist(many, 20, children_per_parent=2)) == 7  # places left: all are served


def test_kernels_that_differ_in_layout_only_take_one_place():
    one, twin = "def kernel(x):\n    return x\n", "def kernel(x):\n    # faster\n    return x\n"
    results = [service(plan_0_0=sample(5.0, body=one), plan_1_0=sample(5.1, body=twin))]
    selected = select_elitist(results, 3, fingerprint=fingerprint)
    assert [s.plan_id for s in selected] == ["plan_0_0", PARENT]


@pytest.mark.parametrize("select", [select_published, select_elitist])
def test_cases_do_not_compete(select):
    results = [service("a", "one", plan_0_0=sample(1.0)), service("b", "two", plan_0_0=sample(5.0))]
    assert {s.case_name for s in select(results, 1)} == {"one", "two"}


def test_nothing_in_nothing_out():
    assert select_published([service(plan_0_0=MISSING)], 3) == []
    assert select_elitist([], 3) == []


def test_the_beam_remembers_the_best_whatever_selection_does():
    start = select_elitist([service(plan_0_0=sample(10.0))], 1)[0]
    beam = Beam(start, 2, select_published)
    assert list(beam.ask()) == [start]
    beam.tell([service(plan_0_0=sample(4.0))])
    assert beam.best.latency == 4.0
    beam.tell([service("s1", plan_0_0=sample(30.0, baseline=4.0))])
    assert beam.best.latency == 4.0
    assert [s.latency for s in beam.ask()] == [30.0]

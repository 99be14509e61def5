"""The published selection on a recorded output, and the elitist one that never loses the best."""

import json

import pytest

from accelopt.nodes import Result
from accelopt.script_file_columns import ServiceResult
from accelopt.search.beam import Beam
from accelopt.search.candidate_selection import alike, select_elitist, select_published
from accelopt.search.strategy import Settings
from accelopt.stages.candidate_files import PARENT, origin, select


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
    """One record of an executor's output, as the loop knows it."""
    record = {"service_name": name, "case_name": case, **samples}
    return ServiceResult.from_record(record).result()


def chosen(nodes):
    return [(*origin(node, [n for n in nodes if n.parent is None]), node.latency) for node in nodes]


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
    assert select_published(RECORDED, 9)[-1].source == "parent 10.0"
    assert chosen(select_published(RECORDED, 2)) == everything[:2]


def test_published_can_lose_the_best_and_elitist_cannot():
    worse = [service(plan_0_0=sample(12.0))]
    assert chosen(select_published(worse, 1)) == [("s0", "plan_0_0", 12.0)]
    assert chosen(select_elitist(worse, 1)) == [("s0", PARENT, 10.0)]
    assert select_elitist(worse, 1)[0].source == "parent 10.0"


def test_elitist_lets_parents_compete_by_their_latency():
    assert chosen(select_elitist(RECORDED, 3)) == [
        ("s0", "plan_0_1", 7.0),
        ("s1", "plan_0_0", 7.5),
        ("s0", "plan_0_0", 8.0),
    ]


def test_a_parent_far_behind_leaves_its_place_even_to_nobody():
    """Of linear attention 25 times faster than its baseline, the second place of the beam went to the
    baseline (issue 20)."""
    children = service(plan_0_0=sample(1.0, 25.0), plan_1_0=sample(1.02, 25.0))
    assert [latency for _, _, latency in chosen(select_elitist([children], 2))] == [1.0, 1.02]
    alone = service(plan_0_0=sample(1.0, 25.0), plan_1_0=MISSING)
    assert [latency for _, _, latency in chosen(select_elitist([alone], 2))] == [1.0]


def counted(latency, **metrics):
    """A sample with counters, as a profile has them."""
    named = {"hbm_read_bytes": 1e6, "vector_engine_active_time_percent": 0.5, **metrics}
    metadata = json.dumps({"latency": latency, **named})
    return {**sample(latency), "kernel_metadata": metadata}


def test_another_schedule_or_limit_goes_before_a_twin_that_is_a_little_faster():
    one, twin = counted(5.0), counted(5.1, hbm_read_bytes=1.05e6)
    traffic, engine = counted(5.5, hbm_read_bytes=4e6), counted(5.9, hfu_estimated_percent=0.9)
    late = counted(6.5, hbm_read_bytes=9e6)
    results = [
        service(plan_0_0=one, plan_1_0=twin, plan_2_0=traffic, plan_3_0=engine, plan_4_0=late)
    ]
    kept = {k: [ms for _, _, ms in chosen(select_elitist(results, k))] for k in (1, 2, 3, 4, 5)}
    assert kept[1] == [5.0]
    assert kept[2] == [5.0, 5.5]
    assert kept[3] == [5.0, 5.5, 5.9]
    assert kept[4] == [5.0, 5.1, 5.5, 5.9]  # what is out of reach comes behind the twin
    assert kept[5] == [5.0, 5.1, 5.5, 5.9, 6.5]
    nodes = {node.latency: node for node in results[0].nodes}
    assert alike(nodes[5.0], nodes[5.1]) and not alike(nodes[5.0], nodes[5.5])


def test_kernels_that_differ_in_layout_only_take_one_place():
    one, twin = "def kernel(x):\n    return x\n", "def kernel(x):\n    # faster\n    return x\n"
    results = [service(plan_0_0=sample(5.0, body=one), plan_1_0=sample(5.1, body=twin))]
    assert [made_as for _, made_as, _ in chosen(select_elitist(results, 3))] == ["plan_0_0", PARENT]


@pytest.mark.parametrize("selection", [select_published, select_elitist])
def test_cases_do_not_compete(selection):
    results = [service("a", "one", plan_0_0=sample(1.0)), service("b", "two", plan_0_0=sample(5.0))]
    assert {node.case.case_name for node in select(results, selection, 1)} == {"one", "two"}


def test_nothing_in_nothing_out():
    assert service(plan_0_0=MISSING) is None  # such a record tells nothing of the parent
    assert select_published([], 3) == select_elitist([], 3) == []


def told(job, latencies):
    """A result of `job`: kernels of so many milliseconds."""
    record = {f"plan_{i}_0": sample(ms, job.node.latency) for i, ms in enumerate(latencies)}
    return service(**record)._replace(job=job)


def test_the_beam_remembers_the_best_whatever_selection_does():
    start = service(plan_0_0=sample(10.0)).job.node
    beam = Beam(start, Settings(beam=2, selection="published"), 0)
    job = beam.ask()
    assert (job.node, job.round, beam.ask()) == (start, 1, None)
    beam.tell(told(job, [4.0]))
    assert beam.best.latency == 4.0
    beam.tell(told(beam.ask(), [30.0]))
    assert beam.best.latency == 4.0
    assert [node.latency for node in beam.kept] == [30.0]


def test_a_round_of_the_beam_ends_when_all_of_it_was_told_and_one_without_kernels_is_the_last():
    start = service(plan_0_0=sample(10.0)).job.node
    beam = Beam(start, Settings(beam=2), 0)
    beam.tell(told(beam.ask(), [4.0, 5.0]))
    first, second = beam.ask(), beam.ask()
    assert beam.ask() is None and [first.number, second.number] == [1, 2]
    beam.tell(Result(first))
    assert (beam.ask(), beam.round) == (None, 2)
    beam.tell(Result(second))
    assert (beam.ask(), beam.round) == (None, 3)


def test_the_beam_goes_on_with_kernels_never_developed_before_it_ends():
    start = service(plan_0_0=sample(10.0)).job.node
    beam = Beam(start, Settings(beam=1), 0)
    beam.tell(told(beam.ask(), [4.0, 5.0, 6.0]))
    fastest = beam.ask()
    assert fastest.node.latency == 4.0
    beam.tell(Result(fastest))
    for latency in (5.0, 6.0):
        job = beam.ask()
        assert job.node.latency == latency
        beam.tell(Result(job))
    assert beam.ask() is None


def test_what_lost_to_its_own_parent_has_no_place_however_different_it_is():
    """A slower child was kept as another kind (issue 41)."""
    slower = counted(10.5, hbm_read_bytes=9e6)
    results = [service(plan_0_0=counted(5.0), plan_1_0=slower)]
    assert [latency for _, _, latency in chosen(select_elitist(results, 4))] == [5.0, 10.0]

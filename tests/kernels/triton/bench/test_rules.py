"""What ends an evaluation: clocks that disagree, foreign kernels, library work."""

from collections import Counter

import pytest

from accelopt.evaluation import Status
from accelopt.kernels.triton.bench import rules
from accelopt.kernels.triton.bench.observation import _facts, _Kernel
from accelopt.kernels.triton.bench.task import Task

MARK = "void at::native::vectorized_elementwise_kernel<4, FillFunctor<c10::complex<double> > >"


def kernels(*calls, stream=7):
    """A profile: for each call a mark, its kernels (name, microseconds), and a mark."""
    found, at = [], 0.0
    for call in calls:
        for name, microseconds, *other in [(MARK, 1.0), *call, (MARK, 1.0)]:
            found.append(_Kernel(at, name, 1e3 * microseconds, *other or [stream]))
            at += 1e3 * microseconds
    return found


def task(starter, **fields):
    name = "rmsnorm_h4096"
    return Task(
        root=starter.root,
        definition=starter.definitions[name],
        workload=starter.workloads[name][-1],
        solution=starter.solutions[f"plain_{name}"],
        **fields,
    )


def test_the_time_in_kernels_is_the_median_of_the_calls_sums():
    seen = _facts(kernels([("k", 10), ("k", 20)], [("k", 50)]), Counter(k=3), 2)
    assert seen == {"triton_share": 1.0, "other_streams": 0, "kernel_ms": 0.04}


def test_a_library_kernel_counts_as_one():
    seen = _facts(kernels([("k", 10), ("nvjet_hsh", 90)]), Counter(k=1), 1)
    assert seen["triton_share"] == pytest.approx(0.1)


def test_a_triton_kernel_named_like_a_library_kernel_covers_nothing():
    seen = _facts(kernels([("nvjet_hsh", 1), ("nvjet_hsh", 99)]), Counter(nvjet_hsh=1), 1)
    assert seen["triton_share"] == 0.0


def test_kernels_on_another_stream_are_counted(starter):
    seen = _facts(kernels([("k", 10), ("k", 10, 9)]), Counter(k=2), 1)
    assert seen["other_streams"] == 1
    with pytest.raises(rules.Ended, match="another stream"):
        rules.accept_kernels(task(starter), seen)


def test_marks_that_are_not_ours_are_refused(starter):
    seen = _facts(kernels([("k", 10), (MARK, 1)]), Counter(k=1), 1)
    with pytest.raises(rules.Ended, match="pass for the marks") as ended:
        rules.accept_kernels(task(starter), seen)
    assert ended.value.status is Status.REFUSED


def test_a_library_that_does_the_work_is_refused_but_for_rivals(starter):
    seen = {"triton_share": 0.05, "other_streams": 0, "kernel_ms": 1.0}
    with pytest.raises(rules.Ended, match="a library does the work: Triton has 5%"):
        rules.accept_kernels(task(starter), seen)
    assert rules.accept_kernels(task(starter, rival=True), seen) == []


@pytest.mark.parametrize(
    "clocks, said",
    [
        ((1.0, 0.0, 1.0, 1.0, 1.02), ""),
        ((1.0, 0.0, 1.0, None, None), ""),
        ((1.0, 0.0, 1.0, 0.4, 1.02), "waits for the host between its kernels"),
        ((1.0, 0.0, 1.0, 1.0, 2.0), "the timers disagree"),
        ((0.1, 0.0, 0.2, 0.1, 0.12), "0.2000 outside"),
    ],
)
def test_honest_clocks_pass_with_what_is_worth_a_note(clocks, said):
    notes = rules.accept_clocks(*clocks)
    assert bool(notes) == bool(said)
    assert said in "".join(notes)


@pytest.mark.parametrize(
    "clocks, said",
    [
        ((0.5, 0.0, 1.0, None, None), "1.0000 outside"),
        ((0.5, 0.0, 0.5, 1.0, None), "in its kernels"),
        ((0.1, 0.2, 0.1, 0.1, None), "on another stream"),
    ],
)
def test_clocks_that_say_too_little_are_refused(clocks, said):
    with pytest.raises(rules.Ended, match=said):
        rules.accept_clocks(*clocks)


def test_the_same_memory_from_two_calls_is_refused(starter):
    reply = {"latencies": [1.0], "shared": True, "difference": 0.0, "launches": 1}
    with pytest.raises(rules.Ended, match="the same memory"):
        rules.accept_round(task(starter), reply)
    with pytest.raises(rules.Ended, match="differ by nan"):
        rules.accept_round(task(starter), {**reply, "shared": False, "difference": float("nan")})

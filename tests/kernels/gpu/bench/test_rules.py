"""What ends an evaluation: clocks that disagree, foreign kernels, library work."""

import collections
import dataclasses
import enum
import types

import numpy as np
import pytest

from accelopt.evaluation import Status
from accelopt.hardware.gpus import GPUS
from accelopt.kernels.gpu.bench.judging import reply_rules
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.judging.reply_rules import Clocks
from accelopt.kernels.gpu.bench.process.call_observation import (
    ProfiledKernel,
    answers,
    facts,
    is_descriptor,
    kernels_of,
)
from accelopt.kernels.gpu.bench.process.messages import Output, Seen, Timed, Watched
from accelopt.kernels.gpu.bench.roofline import floor_ms

MARK = "void at::native::vectorized_elementwise_kernel<4, FillFunctor<c10::complex<double> > >"


def kernels(*calls, stream=7):
    """A profile: for each call a mark, its kernels (name, microseconds, by Triton or not), a mark."""
    found, at = [], 0.0
    for call in calls:
        for name, microseconds, *other in [(MARK, 1.0), *call, (MARK, 1.0)]:
            triton, on = (*other, True, stream)[:2] if other else (name != MARK, stream)
            found.append(ProfiledKernel(at, name, 1e3 * microseconds, on, triton))
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


def event(kind, label, begin, length, number):
    """One event of the profiler's, as far as it is looked at."""
    told = {
        "device_type": kind, "name": label, "start_ns": begin, "end_ns": begin + length,
        "duration_ns": length, "correlation_id": number, "device_resource_id": 7,
    }  # fmt: skip
    return types.SimpleNamespace(**{name: lambda v=value: v for name, value in told.items()})


def test_the_time_in_kernels_is_the_median_of_the_calls_sums():
    seen = facts(kernels([("k", 10), ("k", 20)], [("k", 50)]), 2)
    assert seen == Seen(own_share=1.0, kernel_ms=0.04)


def test_a_kernel_is_tritons_by_its_launch_and_not_by_its_name():
    """Evidence: on an H100 a launch through Triton and its kernel share a correlation number, and the
    driver's call lies within the range around it; cuBLAS starts its kernels outside."""
    events = [
        event("CPU", "token", 100, 50, 1), event("CPU", "cuLaunchKernelEx", 120, 10, 12),
        event("CUDA", "nvjet_hsh", 900, 40, 12), event("CUDA", "token", 900, 40, 1),
        event("CPU", "token", 300, 50, 2),  # a launch on no grid at all
        event("CPU", "cuLaunchKernelEx", 400, 10, 13), event("CUDA", "nvjet_hsh", 990, 400, 13),
    ]  # fmt: skip
    found = kernels_of(events, "token")
    assert [(kernel.name, kernel.own) for kernel in found] == [
        ("nvjet_hsh", True), ("nvjet_hsh", False),
    ]  # fmt: skip


def test_one_launch_starts_one_kernel():
    """Assumption: what the solution runs while Triton launches is in the same range as the kernel."""
    events = [event("CPU", "token", 100, 90, 1)]
    for number in (2, 3):
        events.append(event("CPU", "cuLaunchKernelEx", 110 * number // 2, 5, number))
        events.append(event("CUDA", "add", 900 * number, 40, number))
    assert [kernel.own for kernel in kernels_of(events, "token")] == [False, False]


def test_a_compiled_solutions_kernels_are_those_that_no_operator_starts():
    """Evidence: on an H100 the profiler shows a span of each operator, also of one that C++ calls, and the
    runtime's launch in it; names are as the cheat `library_by_a_kernels_name.cu` chooses them."""
    events = [
        event("CPU", "aten::matmul", 100, 90, 1), event("CPU", "aten::mm", 120, 50, 2),
        event("CPU", "cudaLaunchKernelExC", 130, 10, 12), event("CUDA", "nvjet_hsh", 900, 40, 12),
        event("CPU", "cudaLaunchKernel", 180, 5, 13), event("CUDA", "splitK", 990, 9, 13),
        event("CPU", "cudaLaunchKernel", 300, 5, 14), event("CUDA", "nvjet_hsh", 999, 1, 14),
        event("CUDA", "from nowhere", 1200, 1, 15),
    ]  # fmt: skip
    found = [kernel.own for kernel in kernels_of(events, "")]
    assert found == [False, False, True, False]
    found = [kernel.own for kernel in kernels_of(events, "", [b"\0_Z4rowsPf\0"])]
    assert not any(found)  # what is called without an operator is not the solution's for that
    for name in ("void rows<4>(float*)", "(anonymous namespace)::rows(float*)", "rows"):
        launched = [event("CPU", "cudaLaunchKernel", 300, 5, 14), event("CUDA", name, 999, 1, 14)]
        assert kernels_of(launched, "", [b"\0_Z4rowsPf\0"])[0].own


def test_a_librarys_computing_kernels_are_told_from_torchs_own():
    plain = ("void at::native::vectorized_elementwise_kernel<8, CopyFunctor>", 50, False)
    seen = facts(kernels([("k", 10), plain, ("nvjet_sm90_hsh", 40, False)]), 1)
    assert seen.own_share == pytest.approx(0.1)
    assert seen.foreign == {"nvjet_sm90_hsh": pytest.approx(0.4)}
    assert seen.plain == pytest.approx(0.5)


def test_kernels_on_another_stream_are_counted(starter):
    seen = facts(kernels([("k", 10), ("k", 10, True, 9)]), 1)
    assert seen.other_streams == 1
    with pytest.raises(reply_rules.Ended, match="another stream"):
        reply_rules.accept_kernels(task(starter), seen)


def test_marks_that_are_not_ours_are_refused(starter):
    seen = facts(kernels([("k", 10), (MARK, 1, False)]), 1)
    with pytest.raises(reply_rules.Ended, match="pass for the marks") as ended:
        reply_rules.accept_kernels(task(starter), seen)
    assert ended.value.status is Status.REFUSED


@pytest.mark.parametrize(
    "seen, said",
    [
        (Seen(own_share=0.05, kernel_ms=0.01), "Triton has 5%"),
        (Seen(own_share=0.4, kernel_ms=1.0), "Triton has 40%"),
        (Seen(own_share=0.7, kernel_ms=1.0, foreign={"nvjet": 0.3}), "30% of the GPU time"),
    ],
)
def test_a_library_that_does_the_work_is_refused_but_for_rivals(starter, seen, said):
    with pytest.raises(reply_rules.Ended, match=said):
        reply_rules.accept_kernels(task(starter), seen)
    assert reply_rules.accept_kernels(task(starter, rival=True), seen) == []


def test_short_help_of_a_library_is_no_offence(starter):
    """A small fill beside a small kernel, and a copy beside a long one."""
    for seen in (Seen(own_share=0.4, kernel_ms=0.01), Seen(own_share=0.6, kernel_ms=1.0)):
        assert "a share of the GPU time" in reply_rules.accept_kernels(task(starter), seen)[0]
    assert "is not known" in reply_rules.accept_kernels(task(starter), Seen())[0]


@pytest.mark.parametrize(
    "median, clocks, said",
    [
        (1.0, Clocks(0.0, 1.0, 1.0, 1.02), ""),
        (1.0, Clocks(0.0, 1.0), ""),
        (1.0, Clocks(0.0, 1.0, 0.4, 1.02), "waits for the host between its kernels"),
        (1.0, Clocks(0.0, 1.0, 1.0, 2.0), "the timers disagree"),
        (0.005, Clocks(0.0, 0.009), ""),
        (0.1, Clocks(0.0, 0.2, 0.1, 0.12, dry=True), "0.2000 ms a call outside"),
        (0.1, Clocks(0.0, 0.1, 0.1, 2.0, host_ms=1.0), "the timers disagree"),
        (1.0, Clocks(0.0, 1.0, 1.0, 0.5, host_ms=0.5), "the timers disagree"),
    ],
)
def test_honest_clocks_pass_with_what_is_worth_a_note(median, clocks, said):
    notes = reply_rules.accept_clocks(median, clocks)
    assert bool(notes) == bool(said)
    assert said in "".join(notes)


@pytest.mark.parametrize(
    "median, clocks, said",
    [
        (0.5, Clocks(0.0, 1.0), "1.0000 outside"),
        (0.05, Clocks(0.0, 0.1), "0.1000 outside"),
        (0.1, Clocks(0.0, 0.5, dry=True), "0.5000 outside"),
        (0.5, Clocks(0.0, 0.5, 1.0), "in its kernels"),
        (0.1, Clocks(0.2, 0.1, 0.1), "on another stream"),
        (0.1, Clocks(0.0, 0.1, 0.1, 5.0), "by the package"),
        (1.0, Clocks(0.0, 1.0, 1.0, 0.5, host_ms=0.1), "by the package"),
    ],
)
def test_clocks_that_say_too_little_are_refused(median, clocks, said):
    with pytest.raises(reply_rules.Ended, match=said):
        reply_rules.accept_clocks(median, clocks)


def test_what_a_round_must_be_like(starter):
    good = Timed(
        latencies=(1.0,), seals=((1,),), changed=0, shared=False, difference=0.0, launches=1
    )
    reply_rules.accept_round(good, 1, 8)
    for changed, said in (
        ({"shared": True}, "the same memory"),
        ({"difference": float("nan")}, "differ by nan"),
        ({"changed": 1}, "changes the outputs of 1 timed calls"),
        ({"latencies": (0.0,)}, "not positive"),
        ({"seals": ()}, "another number of calls"),
        ({"grown_bytes": 8}, "keeps 0 MB"),
    ):
        with pytest.raises(reply_rules.Ended, match=said):
            reply_rules.accept_round(good.model_copy(update=changed), 1, 8)


def test_a_compiled_solutions_own_kernels_do_its_work(starter):
    plain = starter.solutions_of("gemm_n4096_k4096")[0]
    spec = plain.spec.model_copy(update={"language": "cuda"})
    asked = task(starter)._replace(solution=plain.model_copy(update={"spec": spec}))
    library = Seen(own_share=0.1, kernel_ms=1.0, plain=0.9)
    with pytest.raises(reply_rules.Ended, match="own kernels have 10% of the GPU time"):
        reply_rules.accept_kernels(asked, library)
    reply_rules.accept_kernels(asked, Seen(own_share=0.7, kernel_ms=1.0, plain=0.3))


def test_no_verdict_is_faster_than_physics(starter):
    """Data sheet of the H100 SXM: 3.35 TB/s, 989 TFLOP/s in 16 bits, 50 MB of L2 cache."""
    name = "rmsnorm_h4096"
    large = task(starter)._replace(workload=starter.workloads[name][0])
    assert floor_ms(large.definition, large.workload.workload, GPUS["h100"]) == pytest.approx(
        (2 * 2 * 32768 * 4096 - 100 * 2**20) / 3.35e12 * 1e3, rel=1e-3
    )
    hardware = "NVIDIA H100 80GB HBM3"
    reply_rules.accept_floor(large, 0.2, hardware)
    reply_rules.accept_floor(large, 0.001, "a device of which nothing is known")
    with pytest.raises(reply_rules.Ended, match="is impossible"):
        reply_rules.accept_floor(large, 0.05, hardware)


def test_outputs_lie_as_the_references_do_or_without_gaps(starter):
    asked = task(starter)
    wanted = Output(type="Tensor", plain=True, shape=(3, 1, 4), dtype="bfloat16", strides=(1, 0, 3))
    for strides in ((1, 0, 3), (4, 0, 1)):
        got = wanted.model_copy(update={"strides": strides})
        reply_rules.accept_outputs(asked, (got,), (wanted,))
    with pytest.raises(reply_rules.Ended, match="strides") as ended:
        got = wanted.model_copy(update={"strides": (0, 0, 1)})
        reply_rules.accept_outputs(asked, (got,), (wanted,))
    assert ended.value.status is Status.WRONG_SHAPE


def test_what_was_seen_of_calls_is_held_against_operators(starter):
    """Of the call that had most: what a library does in one call of three is no less."""
    output = Output(type="Tensor", plain=True, shape=(3, 4096), dtype="bfloat16", strides=(4096, 1))
    for seen, said in (
        (Watched(launches=0), "starts no Triton kernel"),
        (Watched(launches=9, heavy={"softmax": 6144}), "a library does the work"),
    ):
        with pytest.raises(reply_rules.Ended, match=said):
            reply_rules.accept_operators(task(starter), seen, (output,))


def test_a_descriptor_is_known_by_what_it_is():
    assert not is_descriptor(type("TensorDescriptor", (), {"base": None, "__module__": "triton"}))


def test_arguments_of_launches_have_nothing_that_a_launch_would_ask_for():
    """Classes are asked: what is a property may say no at first."""
    plan = dataclasses.make_dataclass("Plan", ["block"], frozen=True)
    record = collections.namedtuple("Record", "a b")
    mode = enum.IntEnum("Mode", "WIDE")
    for plain in (record(1, 2), mode.WIDE, plan(4), np.int64(3), (1, 2), print):
        assert not answers(plain)
    pointer = plan(4)
    object.__setattr__(pointer, "data_ptr", print)
    shy = {"data_ptr": property(lambda self: int("no"))}
    for table in (shy, {"__getattr__": print}, {"__index__": print}):
        assert answers(type("Asked", (), table)())
    assert answers(pointer) and answers(type("Number", (int,), {})())

"""What ends an evaluation: clocks that disagree, foreign kernels, library work."""

from typing import NamedTuple

import pytest

from accelopt.evaluation import Status
from accelopt.kernels.gpu.bench.judging import reply_rules
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.judging.reply_rules import Clocks
from accelopt.kernels.gpu.bench.process.call_observation import ProfiledKernel, facts, kernels_of
from accelopt.kernels.gpu.bench.process.messages import Seen, Timed

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


class Event(NamedTuple):
    """One event of the profiler's, as far as it is looked at."""

    kind: str
    label: str
    begin: int
    length: int
    number: int

    def device_type(self):
        return self.kind

    def name(self):
        return self.label

    def start_ns(self):
        return self.begin

    def end_ns(self):
        return self.begin + self.length

    def duration_ns(self):
        return self.length

    def correlation_id(self):
        return self.number

    def device_resource_id(self):
        return 7


def test_the_time_in_kernels_is_the_median_of_the_calls_sums():
    seen = facts(kernels([("k", 10), ("k", 20)], [("k", 50)]), 2)
    assert seen == Seen(triton_share=1.0, kernel_ms=0.04)


def test_a_kernel_is_tritons_by_its_launch_and_not_by_its_name():
    """Evidence: on an H200 a launch through Triton and its kernel share a correlation number, and the
    driver's call lies within the range that our hooks open; cuBLAS starts its kernels outside."""
    events = [
        Event("CPU", "token", 100, 50, 1), Event("CPU", "cuLaunchKernelEx", 120, 10, 12),
        Event("CUDA", "nvjet_hsh", 900, 40, 12), Event("CUDA", "token", 900, 40, 1),
        Event("CPU", "token", 300, 50, 2),  # a launch on no grid at all
        Event("CPU", "cuLaunchKernelEx", 400, 10, 13), Event("CUDA", "nvjet_hsh", 990, 400, 13),
    ]  # fmt: skip
    found = kernels_of(events, "token")
    assert [(kernel.name, kernel.by_triton) for kernel in found] == [
        ("nvjet_hsh", True), ("nvjet_hsh", False),
    ]  # fmt: skip


def test_a_librarys_computing_kernels_are_told_from_torchs_own():
    plain = ("void at::native::vectorized_elementwise_kernel<8, CopyFunctor>", 50, False)
    seen = facts(kernels([("k", 10), plain, ("nvjet_sm90_hsh", 40, False)]), 1)
    assert seen.triton_share == pytest.approx(0.1)
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
        (Seen(triton_share=0.05, kernel_ms=0.01), "Triton has 5%"),
        (Seen(triton_share=0.4, kernel_ms=1.0), "Triton has 40%"),
        (Seen(triton_share=0.7, kernel_ms=1.0, foreign={"nvjet": 0.3}), "30% of the GPU time"),
    ],
)
def test_a_library_that_does_the_work_is_refused_but_for_rivals(starter, seen, said):
    with pytest.raises(reply_rules.Ended, match=said):
        reply_rules.accept_kernels(task(starter), seen)
    assert reply_rules.accept_kernels(task(starter, rival=True), seen) == []


def test_short_help_of_a_library_is_no_offence(starter):
    """A small fill beside a small kernel, and a copy beside a long one."""
    for seen in (Seen(triton_share=0.4, kernel_ms=0.01), Seen(triton_share=0.6, kernel_ms=1.0)):
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
    ],
)
def test_clocks_that_say_too_little_are_refused(median, clocks, said):
    with pytest.raises(reply_rules.Ended, match=said):
        reply_rules.accept_clocks(median, clocks)


def test_what_a_round_must_be_like(starter):
    good = Timed(
        latencies=(1.0,), seals=((1,),), changed=0, shared=False, difference=0.0, launches=1
    )
    reply_rules.accept_round(task(starter), good, 1, 8)
    for changed, said in (
        ({"shared": True}, "the same memory"),
        ({"difference": float("nan")}, "differ by nan"),
        ({"changed": 1}, "changes the outputs of 1 timed calls"),
        ({"latencies": (0.0,)}, "not positive"),
        ({"seals": ()}, "another number of calls"),
        ({"launches": 0}, "starts no Triton kernel"),
        ({"grown_bytes": 8}, "keeps 0 MB"),
    ):
        with pytest.raises(reply_rules.Ended, match=said):
            reply_rules.accept_round(task(starter), good.model_copy(update=changed), 1, 8)


CUDA_KERNELS = """
#include <cub/cub.cuh>
template <int kWidth> __global__ void __launch_bounds__(256) scale(float* x) {}
extern "C" __global__ void add(const float* x) {}
__global__ __launch_bounds__(128, 2) void reduce_rows(float* x) {}
"""


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("void scale<8>(float*)", False),
        ("add", False),
        ("reduce_rows(float*)", False),
        ("void mine::scale<8>(float*)", False),
        ("void cub::DeviceReduceKernel<int>(int)", False),
        ("void cutlass::Kernel2<cutlass_80_tensorop_f16>(Params)", True),
        ("void pytorch_flash::flash_fwd_kernel<cub::half>(Params)", True),
        ("nvjet_hsh_128x256_64x4", True),
        ("void cublasLt::splitKreduce_kernel<32>(int)", True),
        ("void scale_rows<8>(float*)", True),
    ],
)
def test_kernels_that_a_cuda_source_does_not_define_are_foreign(starter, name, foreign):
    plain = starter.solutions_of("gemm_n4096_k4096")[0]
    solution = plain.with_source(CUDA_KERNELS, "native")
    assert bool(reply_rules.foreign_to(solution, {name: 1.0})) is foreign


def test_a_compiled_solutions_own_kernels_do_its_work(starter):
    plain = starter.solutions_of("gemm_n4096_k4096")[0]
    spec = plain.spec.model_copy(update={"language": "cuda"})
    made = plain.with_source(CUDA_KERNELS, "native").model_copy(update={"spec": spec})
    asked = task(starter)._replace(solution=made)
    library = Seen(triton_share=0.0, kernel_ms=1.0, plain=0.9, foreign={"add": 0.1})
    with pytest.raises(reply_rules.Ended, match="own kernels have 10% of the GPU time"):
        reply_rules.accept_kernels(asked, library)
    reply_rules.accept_kernels(
        asked, library.model_copy(update={"plain": 0.3, "foreign": {"add": 0.7}})
    )

"""What the PTX of compiled kernels says of a measured time, and what of it reaches a diagnosis."""

import gzip
from pathlib import Path

import pytest
from timed_kernels import timed

from accelopt.hardware.gpus import GPUS
from accelopt.kernels.gpu.bench.process.messages import Code, Resources
from accelopt.kernels.gpu.bench.roofline import Bound
from accelopt.kernels.gpu.diagnosis import of_structure
from accelopt.kernels.gpu.ptx_structure import evidence, missed, structures

CORPUS = Path(__file__).parents[2] / "ptx" / "corpus"
H200 = GPUS["h200"]
PROFILE = timed(0.1, H200.name, False)


def code(name: str, blocks: int = 0) -> Code:
    text = gzip.decompress((CORPUS / f"{name}.ptx.gz").read_bytes()).decode()
    return Code(kernel=name.split("_")[0], ptx=text, blocks=blocks)


def test_special_functions_by_all_that_blocks_do() -> None:
    """softmax of 2048 columns has no loop: 2048 exponentials a block; an SM of an H200 makes 16 a
    clock and 256 operations, so 67 TFLOP/s are 4.19e12 of them a second."""
    blocks = 100_000
    least = Bound(2 * 4 * 2048 * blocks, 0.0, 0.34, 0.0)
    found = evidence(structures([code("softmax_sm90_w4_s2", blocks)]), least, H200)
    assert found is not None and found.sfu_ms is not None
    assert abs(found.sfu_ms - 2048 * blocks / (67e12 / 16) * 1e3) < 1e-9
    assert found.notes == ()


def test_special_functions_in_proportion_to_the_products() -> None:
    """A trip of attention makes 8320 + 384 exponentials and 2.1 MFLOP, almost all of them products."""
    operations = 1e12
    found = evidence(
        structures([code("attention_sm90_w4_s2")]), Bound(1e6, operations, 0.001, 1.0), H200
    )
    assert found is not None and found.sfu_ms is not None
    ratio = found.sfu_ms * 1e-3 * 67e12 / 16 / operations
    assert abs(ratio - 8704 / 2141184) < 1e-9
    assert "barriers in a trip: 2, waits for what is asynchronous: 2" in found.waits
    unknown = evidence(
        structures([code("attention_sm100_w4_s2")]), Bound(1e6, operations, 0.001, 1.0), H200
    )
    assert unknown is not None and unknown.sfu_ms is None


def test_lines_and_waits_of_a_diagnosis() -> None:
    least = Bound(8e6, 2e9, 0.02, 0.05)
    found = evidence(structures([code("matmul_sm80_w4_s2", 64)]), least, H200)
    assert found is not None
    diagnosis = of_structure(found, least, H200, PROFILE, "triton")
    assert diagnosis.origin == "Region-DAG"
    lines = {one.resource: one.lines for one in diagnosis.bottlenecks}
    assert lines["compute"][0] == 26 and 26 in lines["gmem"]
    shares = {one.resource: one.share for one in diagnosis.bottlenecks}
    assert shares == {"compute": 0.5, "gmem": 0.2, "overlap": 0.5}
    waits = next(one.reason for one in diagnosis.bottlenecks if one.resource == "overlap")
    assert "64 blocks for 132 multiprocessors" in waits and "barriers in a trip" in waits


def test_loops_without_asynchronous_copies_and_kernels_that_do_more_than_needed() -> None:
    reduction = evidence(structures([code("reduction_sm90_w4_s2")]), Bound(1e6, 0, 0.1, 0.0), H200)
    assert reduction is not None and "no copy is asynchronous" in reduction.waits
    add = structures([code("add_sm90_w4_s2", 1000)])
    much = evidence(add, Bound(4e6, 0, 0.1, 0.0), H200)
    assert much is not None and "asks for 12.3 MB where the problem needs 4.0" in much.notes
    slow = evidence(add, Bound(1e6, 1e12, 0.1, 0.2), H200)
    assert slow is not None and "no matrix instruction" in slow.notes


def test_of_several_kernels_the_one_that_does_most_and_of_none_nothing() -> None:
    both = structures([code("add_sm90_w4_s2", 2), code("matmul_sm90_w4_s2", 2)])
    found = evidence(both, Bound(1e6, 1e6, 0.1, 0.1), H200)
    assert found is not None and found.notes[0] == "read of matmul, one of 2 kernels"
    assert evidence(structures([Code(kernel="x", ptx="no PTX")]), Bound(1, 1, 1, 1), H200) is None


def test_a_change_that_misses_what_limited_the_kernel() -> None:
    before = code("softmax_sm90_w4_s2")
    swapped = before.ptx.replace("ex2.approx.f32", "lg2.approx.f32")
    assert swapped != before.ptx
    old, new = structures([before]), structures([before.model_copy(update={"ptx": swapped})])
    assert "only compute" in missed(old, new, "gmem")
    assert missed(old, new, "compute") == missed(old, new, "sfu") == ""
    assert "left the PTX as it was" in missed(old, old, "gmem")
    assert missed((), new, "gmem") is None and missed(old, new, "nothing known") is None


def test_warps_of_a_kernel_that_does_not_say() -> None:
    plain = code("cuda_sm90a").model_copy(update={"kernel": "calls"})
    taken = Resources(
        kernel="_Z5callsPfPKfi", warps=8, stages=0, shared_bytes=0, registers=32, spilled_bytes=0
    )
    assert structures([plain])[0].dag.threads is None
    assert structures([plain], [taken])[0].dag.threads == 256


def test_blocks_that_a_multiprocessor_holds_are_its_own_gpus() -> None:
    """CUDA programming guide, technical specifications: a multiprocessor of 9.0 has 228 KiB of shared
    memory, one of 8.0 164, and the system keeps 1 KiB of each block; both have 65,536 registers."""
    plain = code("cuda_sm90a").model_copy(update={"kernel": "calls"})
    taken = Resources(
        kernel="calls", warps=4, stages=0, shared_bytes=55 << 10, registers=64, spilled_bytes=0
    )
    held = {name: structures([plain], [taken], gpu)[0].resident for name, gpu in GPUS.items()}
    assert held == {"h200": 4, "h100": 4, "a100": 2}
    few = taken.model_copy(update={"shared_bytes": 0})
    assert structures([plain], [few], GPUS["a100"])[0].resident == 8


def diagnosed(found, least, milliseconds):
    profile = PROFILE.model_copy(update={"latency": milliseconds})
    evidenced = evidence(structures([found]), least, H200)
    assert evidenced is not None
    return of_structure(evidenced, least, H200, profile, "triton")


def test_bytes_that_a_launch_asks_in_vain_limit_a_kernel() -> None:
    """A product of 8192 x 4096 x 4096 in tiles of 128 x 128 asks 64 trips of 32 KiB in 2,048 blocks, and
    stores 64 MiB: 4.5 GB, 0.54 ms of an H200's L2 cache."""
    launched = code("matmul_sm90_w4_s2", 2048).model_copy(update={"launch": {"3": 4096}})
    least = Bound(168e6, 2 * 8192 * 4096 * 4096, 0.035, 0.278)
    slow = diagnosed(launched, least, 0.6)
    assert slow.bottleneck is not None and slow.bottleneck.resource == "gmem"
    assert slow.utilisation["gmem"] == pytest.approx(0.54 / 0.6, rel=0.03)
    assert slow.memory_sol == pytest.approx(0.035 / 0.6)
    fast = diagnosed(launched, least, 0.4)  # more than the L2 gives: other caches gave it
    assert fast.utilisation["gmem"] == pytest.approx(0.035 / 0.4)
    assert fast.bottleneck is not None and fast.bottleneck.resource == "compute"


def test_rows_that_do_not_fit_are_fetched_again() -> None:
    from accelopt.kernels.gpu.ptx_structure import Structure, _traffic
    from accelopt.ptx.regions import analyse

    def loop(place: int) -> str:
        return (
            f"mov.u32 %r{place}, 0; L{place}: mad.wide.s32 %rd{place + 3}, %r{place}, 4, %rd1; "
            f"ld.global.f32 %f1, [%rd{place + 3}]; add.s32 %r{place}, %r{place}, 128; "
            f"setp.lt.s32 %p{place}, %r{place}, 8192; @%p{place} bra L{place};"
        )

    text = (
        ".version 8.7 .target sm_90a .entry k(.param .u64 x) .reqntid 128 { .reg .pred %p<9>; "
        ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; ld.param.u64 %rd1, [x]; "
        f"{loop(1)} {loop(2)} ret; }}"
    )
    least = Bound(8192 * 32768, 0.0, 0.06, 0.0)
    for resident, moved in ((16, 2), (4, 1)):  # 2,112 rows of 32 KiB side by side, or 528
        found = _traffic(Structure(analyse(text), 8192, resident), least, H200)
        assert found is not None and found.asked == 2 * least.bytes
        assert found.moved == moved * least.bytes

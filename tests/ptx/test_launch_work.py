"""What a launch says of a kernel: integers of its parameters, trips of its loops, what blocks ask again."""

import gzip
from pathlib import Path

import pytest

from accelopt.ptx.global_traffic import GlobalTraffic, global_traffic
from accelopt.ptx.regions import RegionDag, analyse

CORPUS = Path(__file__).with_name("corpus")


def kernel(body: str, **launch: int) -> RegionDag:
    declared = ".reg .pred %p<9>; .reg .b32 %r<99>; .reg .b64 %rd<9>; .reg .f32 %f<9>;"
    parameters = ".param .u64 x, .param .u32 n, .param .u64 y"
    text = (
        f".version 8.7 .target sm_90a .entry k({parameters}) .reqntid 128 {{ {declared} {body} }}"
    )
    return analyse(text, launch=launch)


def counted(bound: str) -> str:
    """A loop that counts by one from 0 to what `bound` leaves in %r2, at least once."""
    return (
        f"ld.param.b32 %r1, [n]; {bound} mov.u32 %r3, 0; L: add.s32 %r3, %r3, 1; "
        "setp.lt.s32 %p1, %r3, %r2; @%p1 bra L; ret;"
    )


@pytest.mark.parametrize(
    ("bound", "n", "trips"),
    [
        ("add.s32 %r4, %r1, 63; shr.s32 %r5, %r4, 31; shr.u32 %r6, %r5, 26; add.s32 %r7, %r4, %r6; "
         "shr.s32 %r2, %r7, 6;", 1000, 16),
        ("mul.lo.s32 %r4, %r1, -3; sub.s32 %r5, 0, %r4; mad.lo.s32 %r2, %r5, 2, 1;", 5, 31),
        ("mul.hi.u32 %r4, %r1, -1431655765; shr.u32 %r2, %r4, 1;", 300, 100),
        ("div.s32 %r4, -7, %r1; rem.s32 %r5, -7, %r1; sub.s32 %r6, %r5, %r4; add.s32 %r2, %r6, 9;", 4, 7),
        ("max.s32 %r4, %r1, 8; min.u32 %r2, %r4, 20;", -1, 8),
        ("shl.b32 %r4, %r1, 4; xor.b32 %r5, %r4, 1; or.b32 %r6, %r5, 2; and.b32 %r2, %r6, 63;", 2, 35),
        ("mul.wide.s32 %rd1, %r1, 6; cvt.u32.u64 %r2, %rd1;", 7, 42),
        ("mov.u32 %r4, %nctaid.x; mul.lo.s32 %r2, %r1, %r4;", 3, 30),
        ("setp.lt.s32 %p2, %r1, 9; @%p2 mov.u32 %r2, 4;", 3, None),
        ("add.sat.s32 %r2, %r1, 4;", 3, None),
        ("ld.global.b32 %r2, [%rd1];", 3, None),
        ("mov.u32 %r4, %tid.x; add.s32 %r2, %r1, %r4;", 3, None),
    ],
)  # fmt: skip
def test_trips_that_a_launch_says(bound: str, n: int, trips: int | None) -> None:
    launch = {"1": n, "%nctaid.x": 10}
    assert [one.loop.trips for one in kernel(counted(bound), **launch).loops] == [trips]
    assert [one.loop.trips for one in kernel(counted(bound)).loops] == [None]


def test_a_register_that_is_made_of_itself_is_no_constant() -> None:
    dag = kernel(counted("add.s32 %r4, %r5, 1; add.s32 %r5, %r4, 1; mov.u32 %r2, %r5;"), n=4)
    assert dag.loops[0].loop.trips is None


def sweep(array: str, number: int) -> str:
    """A loop in which a block reads 4 KiB of an array, in eight trips."""
    return (
        f"ld.param.u64 %rd{number}, [{array}]; mov.u32 %r{number}, 0; L{number}: "
        f"mad.wide.s32 %rd{number + 4}, %r{number}, 4, %rd{number}; ld.global.f32 %f1, [%rd{number + 4}]; "
        f"add.s32 %r{number}, %r{number}, 128; setp.lt.s32 %p{number}, %r{number}, %r9; "
        f"@%p{number} bra L{number};"
    )


def test_what_a_block_asks_again() -> None:
    begin = "ld.param.u32 %r9, [n];"
    once = kernel(f"{begin} {sweep('x', 1)} {sweep('y', 2)} ret;", n=1024)
    assert global_traffic(once) == GlobalTraffic(asked=8192, again=0, held=0)
    twice = kernel(f"{begin} {sweep('x', 1)} {sweep('y', 2)} {sweep('x', 3)} ret;", n=1024)
    assert global_traffic(twice) == GlobalTraffic(asked=12288, again=4096, held=4096)
    assert global_traffic(kernel(f"{begin} {sweep('x', 1)} ret;")) is None


def test_kernels_of_triton_with_their_launches() -> None:
    """By hand: tiles of 128 x 64 and 64 x 128 in fp16; causal attention of 64 rows and 32 keys, whose 17th
    block sees 17 · 64 keys; a sum in steps of the whole grid."""
    known = {
        "matmul_sm90_w4_s2": ({"3": 4096}, [64], 64 * 32768),
        "matmul_sm80_w8_s4": ({"3": 4000}, [63], 63 * 32768),
        "attention_sm90_w4_s2": ({"4": 4096, "%ctaid.x": 16}, [17 * 64 // 32], None),
        "reduction_sm90_w4_s2": ({"2": 1 << 20, "%nctaid.x": 32, "%ctaid.x": 16}, [32], 32 * 4096),
    }
    for name, (launch, trips, read) in known.items():
        text = gzip.decompress((CORPUS / f"{name}.ptx.gz").read_bytes()).decode()
        dag = analyse(text, launch=launch)
        assert [one.loop.trips for one in dag.loops] == trips, name
        total = dag.total
        assert total is not None
        if read is not None:  # what is fetched ahead of the loop is asked for beside it
            assert 0 <= total.global_read_bytes - read <= 4 * 32768

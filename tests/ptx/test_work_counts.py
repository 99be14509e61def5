"""What single statements move and compute, where loops end, and what copies feed: values by hand."""

import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelopt.ptx.region_changes import touched
from accelopt.ptx.regions import RegionDag, analyse
from accelopt.ptx.work_counts import Work
from accelopt.report.ptx_text import ptx_text

READ, WRITTEN = "global_read_bytes", "global_write_bytes"
SHARED_READ, SHARED_WRITTEN = "shared_read_bytes", "shared_write_bytes"


def kernel(body: str, threads: str = ".reqntid 128") -> RegionDag:
    declared = (
        ".reg .pred %p<9>; .reg .b32 %r<99>; .reg .b64 %rd<9>; .reg .f32 %f<99>; "
        ".shared .align 16 .b8 tile[64];"
    )
    return analyse(
        f".version 8.7 .target sm_100a .entry k(.param .u64 x) {threads} {{ {declared} {body} }}"
    )


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1]", {READ: 128 * 16}),
        ("ld.relaxed.gpu.global.L1::no_allocate.L2::256B.v2.b64 {%rd1, %rd2}, [%rd3]", {READ: 128 * 16}),
        ("ld.global.nc.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd1]", {READ: 128 * 32}),
        ("ld.global.b128 %rd1, [%rd1]", {READ: 128 * 16}),
        ("ld.volatile.global.u8 %r1, [%rd1 + 4]", {READ: 128}),
        ("ldu.global.b16 %r1, [%rd1]", {READ: 256}),
        ("ld.u64 %rd2, [%rd1]", {READ: 128 * 8, "generic": 1}),
        ("ld.param.u64 %rd1, [x]", {}),
        ("ld.const.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1]", {}),
        ("ld.local.v2.f32 {%f1, %f2}, [%rd1]", {"local_bytes": 128 * 8}),
        ("st.global.cs.bf16x2 [%rd1], %r1", {WRITTEN: 128 * 4}),
        ("st.shared::cta.v4.b32 [%r1], {%r1, %r2, %r3, %r4}", {SHARED_WRITTEN: 128 * 16}),
        ("ld.shared::cluster.u32 %r1, [%r2]", {SHARED_READ: 128 * 4}),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r1], {%r1,%r2,%r3,%r4}, [%r5]",
         {SHARED_WRITTEN: 128 * 16}),
        ("@%p1 st.global.f64 [%rd1], %rd2", {WRITTEN: 128 * 8, "masked": 1}),
        ("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r1, %r2}, [%r3]", {SHARED_READ: 4 * 256}),
        ("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%r1,%r2,%r3,%r4}, [%r5]", {SHARED_READ: 4 * 512}),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2}", {SHARED_WRITTEN: 4 * 128}),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%r1}, {%r2}, {%f1}",
         {"flops": 4 * 2 * 16 * 8 * 16}),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1}, {%r2}, {%r3}, {%r1}",
         {"flops": 4 * 2 * 16 * 8 * 32}),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%rd1}, {%rd2}, {%rd3}, {%rd1}",
         {"flops": 4 * 2 * 8 * 8 * 4}),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1}",
         {"flops": 4 * 4 * 2 * 8 * 8 * 4}),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1}, [%rd1], %r9", {READ: 4 * 512}),
        ("wmma.load.b.sync.aligned.col.m32n8k16.shared.f16 {%r1}, [%r2]", {SHARED_READ: 4 * 8 * 16 * 2}),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f1}, {%r1}, {%r2}, {%f1}",
         {"flops": 4 * 2 * 16**3}),
        ("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {%f1}, %r1", {WRITTEN: 4 * 1024}),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0",
         {"flops": 2 * 64 * 128 * 16, SHARED_READ: 2 * (64 + 128) * 16}),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%f1}, {%r1, %r2, %r3, %r4}, %rd2, 1, 1, 1, 0",
         {"flops": 2 * 64 * 64 * 16, SHARED_READ: 2 * 64 * 16}),
        ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2 {%f1}, %rd1, %rd2, 1, 1, 1",
         {"flops": 2 * 64 * 8 * 32, SHARED_READ: (64 + 8) * 32}),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1", {"unknown_flops": 1}),
        ("cp.async.cg.shared.global [%r12345], [%rd1 + 0], 0x10",
         {READ: 128 * 16, SHARED_WRITTEN: 128 * 16}),
        ("cp.async.ca.shared.global.L2::128B [%r1], [%rd1], 4, %r2",
         {READ: 128 * 4, SHARED_WRITTEN: 128 * 4, "masked": 1}),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 2048, [%r2]",
         {READ: 2048, SHARED_WRITTEN: 2048}),
        ("cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 512", {WRITTEN: 512, SHARED_READ: 512}),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], 512",
         {WRITTEN: 512, SHARED_READ: 512}),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, "
         "{%r2, %r3}], [%r4]", {"unknown_bytes": 1}),
        ("cp.async.bulk.prefetch.L2.global [%rd1], 512", {}),
        ("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r1], 32768", {"expected_bytes": 32768}),
        ("fma.rn.f32x2 %rd1, %rd2, %rd3, %rd1", {"flops": 128 * 4}),
        ("fma.rn.relu.bf16x2 %r1, %r2, %r3, %r4", {"flops": 128 * 4}),
        ("mad.rn.f32 %f1, %f2, %f3, %f4", {"flops": 128 * 2}),
        ("sub.ftz.f32 %f1, %f2, %f3", {"flops": 128}),
        ("max.NaN.f32 %f1, %f2, %f3", {"flops": 128}),
        ("max.f32 %f1, %f2, %f3, %f4", {"flops": 256}),
        ("add.f64 %rd1, %rd2, %rd3", {"flops": 128}),
        ("div.full.f32 %f1, %f2, %f3", {"flops": 128}),
        ("ex2.approx.ftz.bf16x2 %r1, %r2", {"sfu_ops": 256}),
        ("rsqrt.approx.f32 %f1, %f2", {"sfu_ops": 128}),
        ("tanh.approx.f32 %f1, %f2", {"sfu_ops": 128}),
        ("add.s32 %r1, %r2, %r3", {}),
        ("mad.wide.u32 %rd1, %r2, %r3, %rd1", {}),
        ("dp4a.s32.s32 %r1, %r2, %r3, %r1", {}),
        ("cvt.rn.bf16x2.f32 %r1, %f1, %f2", {}),
        ("atom.global.add.f32 %f1, [%rd1], %f2", {"atomic_ops": 128}),
        ("red.global.add.noftz.v2.f16x2 [%rd1], {%r1, %r2}", {"atomic_ops": 256}),
        ("atom.shared.cas.b64 %rd1, [%r1], %rd2, %rd3", {"atomic_ops": 128}),
        ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [x, {%f5, %f6}]", {"unknown_bytes": 1}),
        ("bar.sync 0", {}),
    ],
)  # fmt: skip
def test_the_work_of_one_statement(statement: str, expected: dict[str, int]) -> None:
    dag = kernel(f"{statement};")
    assert dag.regions[0].work == Work(instruction_count=1, **expected)
    assert dag.unknown == ()


OPCODES = (
    "ld st wgmma tcgen05 cp wmma multimem bra brx call mbarrier mma cvta setp mov add atom bar shfl elect "
    "ldmatrix stmatrix tex redux fence tensormap new"
).split()
MODIFIERS = (
    "sync aligned m16n8k16 f32 f16 global shared::cta async bulk tensor wait_group commit_group mbarrier "
    "arrive expect_tx try_wait mma_async load store a mma ld wait::ld x4 v4 pred u32 lt to local bf16 idx"
).split()
OPERANDS = "%r1 [%r1] [%rd1+16] {%r1,%r2} 16 !%p1 (%r1) L f _ %r1|%p1 -1 %tid.x [x]".split()
STATEMENTS = st.tuples(
    st.sampled_from(["", "@%p1 ", "L: @!%p2 "]),
    st.sampled_from(OPCODES),
    st.lists(st.sampled_from(MODIFIERS), max_size=5),
    st.lists(st.sampled_from(OPERANDS), max_size=4),
)


@settings(max_examples=60)
@given(st.lists(STATEMENTS, min_size=1, max_size=12))
def test_statements_that_make_no_sense_are_read(statements) -> None:
    """Whatever stands where: every one is in a region, and nothing fails."""
    texts = [
        f"{guard}{'.'.join((name, *words))} {', '.join(given)};"
        for guard, name, words, given in statements
    ]
    dag = kernel(" ".join(texts))
    assert sum(len(one.statements) for one in dag.regions) == len(statements)
    assert dag.work.instruction_count == len(statements) and ptx_text(dag)


def test_unknown_opcodes_are_counted() -> None:
    dag = kernel("frobnicate.sync.b32 %r1, [%rd1]; ret;")
    assert dag.unknown == ("frobnicate.sync.b32",)
    assert [one.phase for one in dag.regions] == ["unknown", "control"]


def test_threads_by_directives_or_by_warps() -> None:
    statement = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1,%r2,%r3,%r4}, [%r5]; ld.global.b32 %r1, [%rd1];"
    alone = kernel(statement, "")
    assert alone.threads is None
    assert (alone.work.shared_read_bytes, alone.work.global_read_bytes) == (16, 4)
    most = kernel(statement, ".maxntid 64, 2, 1")
    assert (most.threads, most.work.shared_read_bytes) == (128, 2048)
    by_warps = analyse(".version 8.0 .entry k() { .reg .b32 r; ld.global.b32 r, [r]; }", warps=8)
    assert by_warps.work.global_read_bytes == 256 * 4


@pytest.mark.parametrize(
    ("body", "trips"),
    [
        ("mov.u32 %r1, -64; L: mov.u32 %r2, %r1; add.s32 %r1, %r2, 64; setp.lt.u32 %p1, %r1, 960; @%p1 bra L;",
         16),
        ("mov.u32 %r1, -2; L: add.s32 %r1, %r1, 1; setp.hi.u32 %p1, %r1, 9; @!%p1 bra L;", 1),
        ("mov.u32 %r1, 4; L: add.s32 %r1, %r1, -1; setp.ne.u32 %p1, %r1, -3; @%p1 bra L;", 7),
        ("mov.u32 %r1, 0; L: add.s32 %r1, %r1, 1; setp.lt.s32 %p2|%p1, %r1, 9; @!%p1 bra L;", None),
        ("mov.u32 %r1, 10; L: add.s32 %r1, %r1, -3; setp.gt.s32 %p1, %r1, 0; @%p1 bra.uni L;", 4),
        ("mov.u32 %r1, 10; L: sub.s32 %r1, %r1, 1; setp.ne.s32 %p1, %r1, 0; @%p1 bra L;", 10),
        ("mov.u32 %r1, 10; L: add.s32 %r1, %r1, -1; setp.eq.s32 %p1, 0, %r1; @!%p1 bra L;", 10),
        ("mov.u32 %r9, 12; mov.u32 %r1, 0; L: setp.le.u32 %p1, %r9, %r1; add.s32 %r1, %r1, 5; @!%p1 bra L;",
         4),
        ("mov.u32 %r1, 0; L: add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, %r5; @%p1 bra L;", None),
        ("ld.param.u32 %r1, [x]; L: add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, 9; @%p1 bra L;", None),
        ("mov.u32 %r1, 0; L: @%p2 add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, 9; @%p1 bra L;", None),
        ("mov.u32 %r1, 1; L: shl.b32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, 64; @%p1 bra L;", 6),
        ("mov.u16 %r1, 16; L: shr.u16 %r1, %r1, 1; setp.gt.u16 %p1, %r1, 0; @%p1 bra L;", 5),
        ("mov.u16 %r1, 250; L: add.s16 %r2, %r1, 1; and.b16 %r1, %r2, 255; setp.ne.s16 %p1, %r1, 4; @%p1 bra L;",
         10),
        ("mov.u32 %r1, 0; L: add.s32 %r2, %r1, 5; and.b32 %r1, %r2, 63; setp.lt.u32 %p1, %r1, 62; @%p1 bra L;",
         38),
        ("mov.u32 %r1, 0; L: add.s32 %r2, %r1, 4; and.b32 %r1, %r2, 63; setp.lt.u32 %p1, %r1, 62; @%p1 bra L;",
         None),
        ("mov.u32 %r1, 0; L: setp.lt.s32 %p1, %r1, 9; not.pred %p2, %p1; @%p2 bra E; add.s32 %r1, %r1, 1; bra L; E:",
         9),
        ("mov.u32 %r1, 0; L: @%p2 bra E; add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, 9; @%p1 bra L; E: ret;",
         None),
        ("mov.u32 %r1, 0; L: @%p2 exit; add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, 9; @%p1 bra L;", None),
        ("mov.u32 %r1, 0; L: add.s32 %r1, %r1, 1; @%p2 bra E; setp.lt.s32 %p1, %r1, 9; @%p1 bra L; E:", None),
        ("mov.u32 %r1, 0; L: setp.gt.s32 %p1, %r1, 9; @%p1 bra E; add.s32 %r1, %r1, 1; bra L; E:", 10),
    ],
)  # fmt: skip
def test_trips_that_immediates_say(body: str, trips: int | None) -> None:
    assert [one.loop.trips for one in kernel(body).loops] == [trips]


COMPARE = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "ne": operator.ne,
    "eq": operator.eq,
}  # fmt: skip


@settings(max_examples=150)
@given(
    st.integers(-20, 20), st.integers(-20, 20), st.sampled_from([-7, -2, -1, 1, 2, 3]),
    st.sampled_from(sorted(COMPARE)), st.sampled_from(["s32", "u32"]), st.booleans(), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_trips_as_by_running_the_loop(
    start, bound, step, compare, kind, leaves, top, swapped
) -> None:
    """Where a number is said, it is the one that running gives; it is said for plain signed loops."""
    guard, jump = ("", "@%p1 bra E; bra L;") if leaves else ("!", "@!%p1 bra E; bra L;")
    test = f"setp.{compare}.{kind} %p1, " + (f"{bound}, %r1;" if swapped else f"%r1, {bound};")
    add = f"add.s32 %r1, %r1, {step}; add.f32 %f1, %f1, %f2;"
    body = f"{test} @{guard}%p1 bra E; {add} bra L;" if top else f"{add} {test} {jump}"
    dag = kernel(f"mov.u32 %r1, {start}; L: {body} E: ret;")
    value, runs = start, 0
    while runs < 1000:
        if not top:
            value, runs = value + step, runs + 1
        sides = [side % 2**32 if kind == "u32" else side for side in (value, bound)]
        if COMPARE[compare](*(sides[::-1] if swapped else sides)) == leaves:
            break
        if top:
            value, runs = value + step, runs + 1
    (loop,) = dag.loops
    assert loop.loop.trips in (None, runs) or runs == 1000 < loop.loop.trips  # up to 2^32 - 1
    plain = kind == "s32" and compare in ("lt", "le", "gt", "ge") and 0 < runs < 1000
    assert loop.loop.trips == runs or not plain


@pytest.mark.parametrize(
    ("body", "waits"),
    [
        ("ld.acquire.gpu.u32 %r1, [%rd1]; xor.b32 %r2, %r1, %r9; setp.gt.s32 %p1, %r2, -1;", True),
        ("@%p3 atom.global.cas.b32 %r1, [%rd1], 0, 1; @%p3 st.shared.b32 [tile], %r1; bar.sync 0; "
         "ld.shared.b32 %r2, [tile]; bar.sync 0; setp.eq.s32 %p1, %r2, 1;", True),
        ("atom.global.add.u32 %r1, [%rd1], 1; add.s32 %r2, %r2, 1; setp.lt.s32 %p1, %r2, %r9;", False),
        ("ld.global.u32 %r1, [%rd1]; setp.ne.s32 %p1, %r1, 0;", False),
        ("ld.volatile.global.u32 %r1, [%rd1]; st.global.u32 [%rd2], %r1; setp.ne.s32 %p1, %r1, 0;", False),
        ("ld.volatile.global.f32 %f1, [%rd1]; add.f32 %f2, %f1, %f2; setp.ne.f32 %p1, %f2, %f1;", False),
        ("ld.volatile.shared.u32 %r1, [tile]; st.shared.u32 [tile], %r9; setp.ne.s32 %p1, %r1, 0;", False),
    ],
)  # fmt: skip
def test_loops_that_only_wait(body: str, waits: bool) -> None:
    assert [one.loop.waits for one in kernel(f"L: {body} @%p1 bra L; ret;").loops] == [waits]


def test_loops_inside_loops_and_all_their_trips() -> None:
    dag = kernel(
        "mov.u32 %r1, 0; A: mov.u32 %r2, 0; B: ld.global.b32 %r3, [%rd1]; add.s32 %r2, %r2, 1; "
        "setp.lt.s32 %p1, %r2, 5; @%p1 bra B; st.global.b32 [%rd1], %r3; add.s32 %r1, %r1, 1; "
        "setp.lt.s32 %p2, %r1, 3; @%p2 bra A; ret;"
    )
    assert [(one.loop.depth, one.loop.parent, one.loop.trips) for one in dag.loops] == [
        (1, None, 3), (2, 0, 5)
    ]  # fmt: skip
    assert dag.loops[0].work.global_read_bytes == 0  # a trip without what is in the loop inside
    assert dag.total is not None
    assert dag.total.global_read_bytes == 15 * 512 and dag.total.global_write_bytes == 3 * 512
    assert dag.hot[0].depth == 2


def test_a_header_that_tests_first_runs_once_more() -> None:
    dag = kernel(
        "mov.u32 %r1, 0; L: ld.global.b32 %r2, [%rd1]; setp.ge.s32 %p1, %r1, 4; @%p1 bra E; "
        "st.global.b32 [%rd1], %r2; add.s32 %r1, %r1, 1; bra L; E: ret;"
    )
    assert dag.total is not None
    assert (dag.total.global_read_bytes, dag.total.global_write_bytes) == (5 * 512, 4 * 512)


def test_a_jump_into_a_loop_makes_none() -> None:
    dag = kernel("@%p1 bra B; A: add.s32 %r1, %r1, 1; B: add.s32 %r1, %r1, 2; @%p2 bra A; ret;")
    assert dag.loops == () and dag.flow.irreducible == 1
    assert any(edge.carried for edge in dag.edges)


def test_code_that_nothing_reaches_is_read_and_in_no_loop() -> None:
    dag = kernel(
        "bra L; dead: add.f32 %f1, %f2, %f3; L: add.s32 %r1, %r1, 1; @%p1 bra L; ret; bra dead;"
    )
    assert [len(one.loop.blocks) for one in dag.loops] == [1]
    assert dag.work.flops == 128 and len(dag.function.statements) == 6


def test_where_threads_part() -> None:
    dag = kernel(
        "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.eq.s32 %p1, %r1, 0; setp.eq.s32 %p2, %r2, 0; "
        "@%p2 st.global.b32 [%rd1], %r1; @!%p1 bra E; ld.global.b32 %r3, [%rd1]; add.s32 %r3, %r3, 1; "
        "@%p2 bra F; st.global.b32 [%rd1], %r3; F: st.global.b32 [%rd1], %r3; E: bar.sync 0; ret;"
    )
    divergent = [dag.function.statements[at].opcode for at in sorted(dag.flow.divergent)]
    assert divergent == ["bra"]  # the store's guard is the same for the whole block
    partial = [one.phase for one in dag.regions if one.partial]
    assert "global_load" in partial and "barrier" not in partial and len(partial) == 5
    assert [one.divergent for one in dag.stages] == [True, False]


def test_who_leaves_early_takes_no_part_in_the_rest() -> None:
    start = "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 7; setp.gt.u32 %p2, %r2, 7; "
    rest = "ld.global.b32 %r3, [%rd1]; ret;"
    assert kernel(f"{start} @%p1 ret; {rest}").regions[-2].partial
    assert kernel(f"{start} @%p1 bra E; {rest} E: ret;").regions[-3].partial
    assert not any(one.partial for one in kernel(f"{start} @%p2 ret; {rest}").regions)


def test_an_empty_kernel() -> None:
    dag = kernel("")
    assert dag.regions == dag.stages == dag.loops == ()
    assert dag.work == Work() and dag.total == Work()
    assert "0 instructions" in ptx_text(dag)


def test_a_wait_ends_the_groups_that_it_says() -> None:
    copy = "cp.async.cg.shared.global [tile], [%rd1], 16; cp.async.commit_group;"
    read = "ld.shared.b32 %r1, [tile];"
    dag = kernel(
        f"{copy} bar.sync 0; {copy} cp.async.wait_group 1; {read} cp.async.wait_all; {read} ret;"
    )
    phases = {one.region_id: one.phase for one in dag.regions}
    copies = [at for at, phase in phases.items() if phase == "async_copy"]
    reads = [at for at, phase in phases.items() if phase == "shared_load"]
    found = {(edge.source, edge.target) for edge in dag.edges if edge.kind == "async_dep"}
    assert found == {(copies[0], reads[0]), (copies[0], reads[1]), (copies[1], reads[1])}
    assert dag.copies.unawaited == () and dag.copies.idle == ()
    assert kernel(f"{copy} {read} ret;").copies.unawaited == (0,)
    assert kernel(f"cp.async.wait_group 0; {copy} cp.async.wait_group 0;").copies.idle == (0,)
    kept = kernel(f"{copy} {copy} cp.async.wait_group 1; ret;")
    assert kept.copies.unawaited == (2,)
    open_group = kernel("cp.async.cg.shared.global [tile], [%rd1], 16; cp.async.wait_group 0;")
    assert open_group.copies.unawaited == (0,)


def test_stages_end_with_barriers_waits_and_fences() -> None:
    dag = kernel(
        "ld.global.b32 %r1, [%rd1]; st.shared.b32 [tile], %r1; bar.sync 0; fence.acq_rel.gpu; "
        "mbarrier.init.shared.b64 [tile], 1; ld.shared.b32 %r2, [tile]; cp.async.wait_group 0; ret;"
    )
    phases = [[dag.regions[at].phase for at in one.region_ids] for one in dag.stages]
    assert phases == [
        ["global_load", "shared_store", "barrier", "memory_fence"],
        ["mbarrier", "shared_load", "async_wait"],
        ["control"],
    ]
    kinds = {(dag.regions[one.source].phase, one.kind) for one in dag.edges if one.kind != "flow"}
    assert kinds == {
        ("barrier", "barrier"), ("memory_fence", "mem_fence"), ("async_wait", "async_wait")
    }  # fmt: skip


def test_results_that_go_through_shared_memory() -> None:
    through = (
        "st.shared.b32 [tile], %r1; bar.sync 0; ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [tile]; "
        "cvt.rn.f16x2.f32 %r6, %r2, %r3; st.global.b32 [%rd1], %r6; st.global.v2.b32 [%rd1], {%r4, %r5};"
    )
    assert [one.bytes for one in kernel(through).round_trips] == [128 * 16]
    used = through.replace("cvt.rn.f16x2.f32 %r6, %r2, %r3;", "add.f32 %r6, %r2, %r3;")
    assert kernel(used).round_trips == ()


def test_integers_are_addresses_where_addresses_come_of_them() -> None:
    dag = kernel(
        "mul.lo.s32 %r1, %r2, 4; cvt.u64.u32 %rd2, %r1; add.s64 %rd3, %rd1, %rd2; "
        "ld.global.b32 %r3, [%rd3]; mul.lo.s32 %r4, %r3, 3; st.global.b32 [%rd3], %r4;"
    )
    phases = [(one.phase, len(one.statements)) for one in dag.regions]
    assert phases == [("address", 3), ("global_load", 1), ("compute", 1), ("global_store", 1)]


def test_what_is_new_or_gone_is_touched() -> None:
    body = "ld.global.b32 %r1, [%rd1]; add.f32 %f1, %f2, %f3; st.global.b32 [%rd1], %r1; ret;"
    before = kernel(body)
    gone = touched(before, kernel(body.replace("add.f32 %f1, %f2, %f3; ", "")))
    assert [one.phase for one in gone] == ["compute"]
    new = touched(before, kernel(body.replace("ret;", "bar.sync 0; ret;")))
    assert [one.phase for one in new] == ["barrier"]
    other = touched(before, kernel(body.replace("[%rd1], %r1", "[%rd2], %r1")))
    assert [one.phase for one in other] == ["global_store"]

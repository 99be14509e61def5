"""PTX by hand that `ptxas -arch=sm_90a` takes and that is hard to read; expected values by hand."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelopt.ptx.module import NotPtx, SourcePlace
from accelopt.ptx.region_changes import touched
from accelopt.ptx.region_views import to_json
from accelopt.ptx.regions import RegionDag, analyse
from accelopt.ptx.statements import by_source, read

TEXT = (Path(__file__).parent / "nasty.ptx").read_text()
FIRST = """
ld.param.u64 ld.param.u64 ld.param.u32 cvta.to.global.u64 cvta.to.global.u64 mov.u32 setp.lt.u32
ld.global.nc.L1::no_allocate.L2::256B.v4.f32 bra st.local.u32 fma.rn.f32 mov.b32 add.s32 setp.ge.s32
bra bra mov.b32 sub.s32 setp.ne.s32 bra.uni brx.idx atom.global.add.u32 red.shared.add.u32 bra.uni
ld.u32 cvta.local.u64 add.s64 ld.u32 st.shared.v2.b32 bar.sync st.param.f32 call.uni ld.param.f32
ex2.approx.ftz.f32 add.rn.f16x2 fma.rn.f32 ldmatrix.sync.aligned.m8n8.x4.shared.b16
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 st.global.f32 ret trap
""".split()


def test_every_statement_in_its_place() -> None:
    module = read(TEXT)
    assert module.kernels == ("first", "second", "third")
    assert [one.name for one in module.functions] == ["twice", "first", "second", "third"]
    first = module.function("first")
    assert [one.name for one in first.statements] == FIRST
    assert first.threads == 64 and module.function("third").threads == 128
    assert module.function("second").threads is None
    assert module.target == "sm_90a" and module.files == {1: "a;b//c{d.cu", 2: "in lined.h"}
    guards = [(one.opcode, one.guard) for one in first.statements if one.guard]
    assert guards[:4] == [("ld", "p"), ("bra", "!p"), ("st", "!p"), ("bra", "p")]
    load = next(one for one in first.statements if "nc" in one.modifiers)
    assert load.operands == ("{%f1,%f2,%f3,%f4}", "[d+16]")
    assert load.last_line == load.line + 1


def test_a_mark_of_the_encoding_is_no_text() -> None:
    assert read("\ufeff" + TEXT).kernels == read(TEXT).kernels


def test_the_work_of_first() -> None:
    """64 threads are two warps. Loads: 16 B, then 4 B by a pointer that nothing says the memory of.
    FLOP: two fma, a packed addition, 2·16·8·8 a warp, and the addition of the function that is called.
    """
    dag = analyse(TEXT, "first")
    work = dag.work
    assert work.global_read_bytes == 64 * (16 + 4) and work.generic == 1
    assert work.global_write_bytes == 64 * 4
    assert work.shared_read_bytes == 2 * 512 and work.shared_write_bytes == 64 * 8
    assert work.local_bytes == 64 * (4 + 4)
    assert work.flops == 64 * (2 + 2 + 2) + 2 * 2 * 16 * 8 * 8 + 64
    assert (work.sfu_ops, work.atomic_ops) == (64, 128)
    assert (dag.shared_bytes, dag.dynamic_shared) == (4096, False)
    assert dag.unknown == () and work.unknown_bytes == work.unknown_flops == 0


def test_scopes_have_names_of_their_own() -> None:
    """`again` twice, `i` three times: 3, 6, 9, 12 are four rounds; 16 down to 1 sixteen."""
    dag = analyse(TEXT, "first")
    assert [(one.loop.trips, one.loop.depth) for one in dag.loops] == [(4, 1), (16, 1)]
    jump = next(at for at, one in enumerate(dag.function.statements) if one.opcode == "brx")
    [goals] = [one.successors for one in dag.flow.blocks if one.start <= jump < one.stop]
    starts = [dag.function.statements[dag.flow.blocks[goal].start].opcode for goal in goals]
    assert starts == ["atom", "ld"]


def test_places_in_the_source() -> None:
    found = by_source(read(TEXT))
    inlined = found[SourcePlace("in lined.h", 99)]
    assert set(inlined) <= set(found[SourcePlace("a;b//c{d.cu", 10)])
    assert [one.opcode for one in inlined[:2]] == ["st", "fma"]


def test_copies_of_third() -> None:
    """The bulk copy counts once, the others for 128 threads; nothing waits for the latter two."""
    dag = analyse(TEXT, "third")
    work = dag.work
    assert work.global_read_bytes == 4096 + 128 * (4 + 16) == work.shared_write_bytes
    assert work.expected_bytes == 4096 and work.unknown_bytes == 0
    orphans = [dag.function.statements[at].name for at in dag.copies.unawaited]
    assert orphans == ["cp.async.ca.shared.global", "cp.async.cg.shared.global.L2::128B"]
    dependences = [edge for edge in dag.edges if edge.kind == "async_dep"]
    assert len(dependences) == 1
    assert dag.regions[dependences[0].target].phase == "shared_load"
    assert [one.loop.waits for one in dag.loops] == [True]


def pieces(text: str) -> list[str]:
    """The text cut at white space outside comments and strings."""
    found = re.findall(r'//[^\n]*\n|/\*.*?\*/|"[^"]*"|\s+|[^\s"/]+|/', text, flags=re.DOTALL)
    return [" " if piece.isspace() or piece.startswith(("//", "/*")) else piece for piece in found]


PIECES = pieces(TEXT)
BLANKS = [at for at, piece in enumerate(PIECES) if piece == " "]
FILLERS = st.sampled_from(
    [" ", "\n", "\t\r\n ", "/**/", "/* ; } */", "// @p bra x; {\n", ' /* " */ ', "\n\n//\n"]
)


def without_lines(found: object) -> object:
    """JSON without what is named a line."""
    if isinstance(found, dict):
        return {name: without_lines(one) for name, one in found.items() if "line" not in name}
    return [without_lines(one) for one in found] if isinstance(found, list) else found


def structure(dag: RegionDag) -> tuple[object, ...]:
    """A DAG without lines."""
    regions = [(one.phase, one.stage_id, one.loop, one.work, one.divergent) for one in dag.regions]
    names = [(one.name, one.operands, one.guard, one.source) for one in dag.function.statements]
    loops = [(one.loop, one.work) for one in dag.loops]
    json_ = without_lines(json.loads(to_json(dag)))
    return names, regions, dag.edges, loops, dag.copies, dag.spills, json_


KNOWN = {kernel: structure(analyse(TEXT, kernel)) for kernel in ("first", "third")}


@settings(max_examples=20)
@given(st.lists(FILLERS, min_size=len(BLANKS), max_size=len(BLANKS)))
def test_comments_and_line_breaks_change_nothing(fillers: list[str]) -> None:
    mixed = list(PIECES)
    for at, filler in zip(BLANKS, fillers, strict=True):
        mixed[at] = filler
    text = "".join(mixed)
    assert {kernel: structure(analyse(text, kernel)) for kernel in KNOWN} == KNOWN


@settings(max_examples=20)
@given(st.permutations(["$q", "r_", "v0", "x$y", "_z", "L12", "overs"]))
def test_names_change_nothing(names: list[str]) -> None:
    text = TEXT
    for old, new in (("i", names[3]), ("p", names[4]), ("again", names[5]), ("d", names[6])):
        text = re.sub(rf"(?<![\w.%$:;\"]){old}(?![\w\"])(?!\.cu|;b//)", new, text)
    before, after = analyse(TEXT, "first"), analyse(text, "first")
    assert [one.work for one in after.regions] == [one.work for one in before.regions]
    assert after.edges == before.edges
    assert touched(before, after) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no .entry"),
        ("int main() { return 0; }", "line 1 has 'int'"),
        ("\x7fELF\0\0", "binary"),
        (".version 8.0\n.target sm_90\n.address_size 64\n", "no kernel"),
        (".version 8.0 .entry k() { mov.u32 %r1, 0; ret", "cut off"),
        (".version 8.0 .entry k() { ret;", "cut off"),
        (".version 8.0 .entry k() { mov.u32 a, b }", "no `;`"),
        (".version 8.0 .entry k() { 5; ret; }", "no instruction"),
        (".entry k() { .loc 1 x 2 ret; }", "a number"),
        ("def kernel(x):\n    return x\n", "line 1 has 'def'"),
        ("#include <x>\nkernel;", "line 2"),
        (".file 1", "cut off"),
        (".section", "cut off"),
        (".entry", "cut off"),
        (".entry (", "cut off"),
        (".entry k() { @", "cut off"),
        (".entry k() { @; }", "no instruction"),
        (".entry k() { .loc 1", "cut off"),
        (".global .b8 x[2] = {1, 2", "cut off"),
        ("}", "line 1 has '}'"),
    ],
)
def test_what_is_not_ptx_is_said_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(NotPtx, match=re.escape(said)):
        analyse(text)


@settings(max_examples=60)
@given(st.integers(0, len(TEXT)), st.integers(0, 40), st.text(max_size=6))
def test_broken_text_is_refused_or_read(at: int, size: int, new: str) -> None:
    try:
        analyse(TEXT[:at] + new + TEXT[at + size :])
    except NotPtx as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(("size", "elements"), [("16", 16), ("0x10", 16), ("020", 16)])
def test_the_size_of_an_array_is_read_in_every_base(size: str, elements: int) -> None:
    text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
    text += f".shared .b32 kept[{size}];\n.reg .b32 %r<2>;\nst.shared.b32 [kept], 0;\nret;\n}}\n"
    assert analyse(text).shared_bytes == 4 * elements
    with pytest.raises(NotPtx, match=re.escape("'2.param' is no number of elements")):
        analyse(text.replace(f"[{size}]", "[2.param]"))


def test_a_kernel_is_found_by_its_name() -> None:
    assert analyse(TEXT).function.name == "first"
    assert analyse(TEXT, "sec").function.name == "second"
    with pytest.raises(NotPtx, match="there are twice, first, second, third"):
        analyse(TEXT, "fourth")
    with pytest.raises(NotPtx, match="several"):
        analyse(TEXT, "s")


WAITS_FIRST = """
.version 8.0
.target sm_90
.address_size 64
.entry waits()
{
    .reg .pred %p<3>; .reg .b32 %r<3>;
    .shared .b64 bar;
    mov.u32 %r1, 0;
STEP:
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], %r1;
    @!%p1 bra WAIT;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p2, %r1, 64;
    @%p2 bra STEP;
    ret;
}
"""


def test_a_wait_at_the_beginning_of_a_loop_is_a_loop_inside_of_it() -> None:
    outer, inner = analyse(WAITS_FIRST).flow.loops
    assert (outer.trips, outer.waits, outer.parent) == (64, False, None)
    assert (inner.header, inner.waits, inner.parent) == (outer.header, True, outer.number)
    work = WAITS_FIRST.replace("mbarrier", "st.shared.u32 [bar], %r1; mbarrier")
    assert [one.waits for one in analyse(work).flow.loops] == [False]

"""Which version of NKI a kernel is for, and what 0.6 and 0.7 brought: scalars, grids, topk."""

import re

import ml_dtypes
import numpy as np
import pytest
from kernel_lines import writing_of

from accelopt.hardware import TARGETS
from accelopt.sim.compute.trips import counted
from accelopt.sim.dialects.nki import versions
from accelopt.sim.dialects.nki.isa import reductions
from accelopt.sim.errors import KernelError, Unsupported
from accelopt.sim.timing import profile

A = np.arange(128 * 16, dtype=np.float32).reshape(128, 16)
KERNEL = writing_of("a")("""
number = nl.zeros((1, 1), dtype=nl.int32, buffer=nl.sbuf)
t = nl.load(a)
register = nisa.register_alloc(3)
{lines}
nl.store(out, t)
""")
OLDEST = {
    "nisa.dma_copy(t, a, dst_rmw_op=nl.add)": "Use nisa.dma_compute",
    "nisa.dma_compute(t, [a, t], [1.0, 1.0], nl.add)": r"dma_compute\(dst, srcs, reduce_op, scales=None",
    "nisa.memset(number, value=2.0)": "memset of 2.0 .*Pass 2, a whole number",
    "nisa.affine_select(t, [[1, 16]], 0, 1, t, t)": r"offset is a keyword: affine_select\(dst, pattern",
    "nisa.register_move(register, imm=42)": r"Pass it as src \(NKI 0.3\)",
    "nl.zeros((128, 16), dtype=a.dtype, buffer='sbuf')": "unknown buffer.*Use nl.sbuf, nl.psum",
    "nisa.dma_copy(t, a, dge_mode=2)": "no nki.isa.dge_mode.*Write nisa.dge_mode.unknown and so on",
    "nisa.sendrecv(t, t, 0, 0, 0, use_gpsimd_dma=True)": "dma_engine=nisa.dma_engine.gpsimd_dma",
    "nl.mgrid[0:4, 0:4]": "use slices, or .ap",
}
LINES = {
    "0.4": "nl.tile_size.sbuf_fmax",
    "0.5": "t.slice(1, 0, 4)",
    "0.6": "nl.fori_loop(0, register, lambda i: None)",
    "0.7": "nisa.scalar_load(number) + 1",
}
REMOVED = {
    "for i in nl.dynamic_range(register): nisa.memset(t, value=0.0)": "nl.fori_loop",
    "while register: nisa.register_move(register, 0)": "nl.while_loop",
}


def kernel(nki_text, *lines):
    return nki_text(KERNEL.format(lines="\n    ".join(lines)))


@pytest.mark.parametrize("since", LINES)
def test_what_a_version_added_is_refused_before_it(nki_text, since):
    """The migration pages and release notes of SDK 2.30 to 2.33; nothing said is the newest."""
    text = kernel(nki_text, LINES[since])
    for version in ("", *versions.VERSIONS):
        if version and version < since:
            with pytest.raises(KernelError, match=rf"came with NKI {since}, .* for NKI {version}"):
                text.trace(A, version=version)
        else:
            text.trace(A, version=version)


@pytest.mark.parametrize("line", REMOVED)
def test_what_a_version_removed_is_told_by_use_and_refused_where_it_is_gone(nki_text, line):
    """SDK 2.33: 0.7 removes nl.dynamic_range and `while register`, for fori_loop and while_loop. A kernel
    that has them is for an older version: with something of 0.7 beside, for none."""
    kernel(nki_text, line).trace(A)
    kernel(nki_text, line).trace(A, version="0.6")
    with pytest.raises(KernelError, match=rf"was removed in NKI 0.7.*{REMOVED[line]}"):
        kernel(nki_text, line).trace(A, version="0.7")
    with pytest.raises(KernelError, match=r"no version of NKI has both .* 0.7") as refused:
        kernel(nki_text, line, LINES["0.7"]).trace(A)
    assert "(the other is in line 11)" in str(refused.value)
    assert REMOVED[line] in refused.value.mend


def test_a_change_that_tells_no_version_holds_unless_one_is_said(nki_text):
    """NKI 0.5: nl.rsqrt takes no tile in PSUM; a kernel that has one is hardly for 0.4."""
    line = "nl.rsqrt(nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.psum))"
    with pytest.raises(
        KernelError, match=r"in PSUM was removed in NKI 0.5, .* for NKI 0.7. Copy it"
    ):
        kernel(nki_text, line).trace(A)


@pytest.mark.parametrize("line", OLDEST)
def test_what_ended_with_nki_02_has_its_pages_advice_in_every_version(nki_text, line):
    """The page of the migration from 0.2 to 0.3: the lines before."""
    for version in ("", "0.3"):
        with pytest.raises(KernelError) as refused:
            kernel(nki_text, line).trace(A, version=version)
        assert re.search(OLDEST[line], str(refused.value))


def test_an_older_name_of_a_size_is_of_every_version(nki_text):
    """tile_size.total_available_sbuf_size is deprecated since 0.4, and says what sbuf_fmax_bytes does."""
    for version in ("0.3", "0.7"):
        kernel(nki_text, "assert nl.tile_size.total_available_sbuf_size > 190_000").trace(
            A, version=version
        )


def test_an_import_of_collectives_is_no_launch_of_ranks(nki_text):
    """An error is told of the arguments as they were given, where no collective was come to."""
    line = "import nki.collectives as ncc\n    t.reshape((128, 15))"
    with pytest.raises(KernelError, match=r"cannot reshape \(128, 16\) to \(128, 15\)"):
        nki_text("import nki.collectives as ncc\n" + KERNEL.format(lines=line)).trace(A)


def test_a_transpose_into_lower_rank_was_padded_before_it_was_refused(nki_text):
    """Migration to 0.4: a lower rank "was silently padded"; "match the dst rank to the src rank"."""
    line = "nisa.dma_transpose(nl.ndarray((16, 128), nl.float32, buffer=nl.sbuf), a.reshape((128, 1, 16)), (2, 1, 0))"
    kernel(nki_text, line).trace(A, version="0.3")
    for version in ("", "0.4", "0.7"):
        with pytest.raises(
            KernelError, match=r"lower rank was removed in NKI 0.4, .* Give dst the rank of src"
        ):
            kernel(nki_text, line).trace(A, version=version)


def test_collectives_of_lengths_are_of_later_versions(nki_text):
    """Release notes: all_to_all_v is of NKI 0.3, all_gather_v of 0.6, `_prepare` and `_trigger` of 0.7."""
    several = "import nki.collectives as ncc; ncc.{}([], [], None, a)"
    with pytest.raises(KernelError, match="all_to_all_v takes uint32 metadata"):
        kernel(nki_text, several.format("all_to_all_v")).trace(A, version="0.3")
    for call, since in (("all_gather_v", "0.6"), ("all_gather_v_prepare", "0.7")):
        line = several.format(call)
        with pytest.raises(KernelError, match=rf"ncc.{call} came with NKI {since}, .* for NKI 0.3"):
            kernel(nki_text, line).trace(A, version="0.3")


def test_a_removed_instruction_has_its_pages_advice(nki_text):
    with pytest.raises(Unsupported, match=r"Removed in NKI 0.4: Use nisa.tensor_copy with .ap"):
        kernel(nki_text, "nisa.tensor_copy_dynamic_src(t, t)").trace(A)


def test_a_kernel_of_the_older_package_is_for_no_version(nki_text):
    """NKI 0.4: `neuronxcc.nki` "is now a compilation error"; what helps is a translation."""
    old = "import neuronxcc.nki as old\n\n@old.jit\ndef kernel(a):\n    return a\n"
    with pytest.raises(
        KernelError, match=r"written in neuronxcc.nki .* accelopt translate --to nki"
    ):
        nki_text(old).trace(A, version="0.7")


def test_every_name_of_the_table_is_there_or_a_phrase():
    """A name that was misspelled would never be checked."""
    from accelopt.sim.dialects.nki import collectives, isa, language, tensor
    from accelopt.sim.dialects.nki.language import memories

    homes = {
        "nki.isa": vars(isa), "nki.language": vars(language), "nki.collectives": vars(collectives), "NkiTensor": vars(tensor.NkiTensor),
        "tile_size": vars(memories._TileSize),
    }  # fmt: skip
    lost = {
        name
        for name in (*versions.changes("added"), *versions.changes("removed"))
        if " " not in name and name.rpartition(".")[2] not in homes[name.rpartition(".")[0]]
    }
    absent = {"nki.isa.tensor_copy_dynamic_src", "nki.isa.tensor_copy_dynamic_dst"}
    assert lost == absent | {"nki.isa.activate2"}


def test_scalars_are_32_bits_wide_and_index_and_bound(nki_text):
    """SDK 2.33, nki-scalar.rst: "100000 * 100000 yields 1410065408"; arithmetic with ints and each other;
    scalar_offset; a bound of nl.fori_loop, whose index is one. No engine that kernels write for works on them: "each engine
    sequencer maintains its own set of physical registers" (nki.isa.register_alloc); what they take is assumed."""
    text = nki_text("""
        @nki.jit
        def kernel(a, numbers):
            out = nl.ndarray((1, 5), dtype=nl.int32, buffer=nl.shared_hbm)
            rows = nl.ndarray((3, 16), dtype=a.dtype, buffer=nl.shared_hbm)
            t = nl.load(numbers)
            first, many = nisa.scalar_load(t[:, 0:1]), nisa.scalar_load(t[:, 1:2])
            kept = nl.ndarray((1, 5), dtype=nl.int32, buffer=nl.sbuf)
            for at, value in enumerate((first * 4 + 1, many * many, -first, 10 - (first - many))):
                nisa.scalar_store(kept[:, at : at + 1], value)
            far = first + 16777212  # no float32 has 16777217
            nl.fori_loop(far, far + 1, lambda i: nisa.scalar_store(kept[:, 4:5], i))
            nisa.dma_copy(dst=out, src=kept)
            line = nl.ndarray((1, 16), dtype=a.dtype, buffer=nl.sbuf)
            def body(i):
                nisa.dma_copy(dst=line, src=a.select(0, i * 2 + 1))
                nisa.dma_copy(dst=rows.select(0, i), src=line)
            nl.fori_loop(0, first - 2, body)
            return out, rows
    """)
    numbers = np.array([[5, 100000]], np.int32)
    kept, rows = text.run(A, numbers)
    assert kept.tolist() == [[21, 1410065408, -5, 100005, 16777217]]
    busy = profile(counted(text.trace(A, numbers), [A, numbers])).occupancy
    assert {name for name, share in busy.items() if share} == {"dma", "sync"}
    assert (rows == A[1:7:2]).all()
    for line, said in (
        ("nisa.scalar_load(t)", "src has shape"),
        ("nisa.scalar_load(nl.zeros((1, 1), dtype=nl.uint32, buffer=nl.sbuf))", "src is uint32"),
        ("nisa.scalar_store(number, 3)", "no NkiScalar"),
        ("nisa.scalar_load(number) + 0.5", "float is no operand"),
        ("nisa.scalar_load(number) < 3", "not known to Python"),
        ("nisa.register_move(nisa.scalar_load(number), 1)", "cannot be written"),
        ("range(nisa.scalar_load(number))", "not known to Python"),
    ):
        with pytest.raises(KernelError, match=said):
            kernel(nki_text, line).trace(A.astype(np.int32))


@pytest.mark.parametrize("shape", [(512, 1024), (300, 700)])
def test_grids_navigate_tiles_and_blocks(nki_text, shape):
    """SDK 2.33, nl.tiles and nl.blocks: coordinates count tiles or blocks, what is left at the end is
    clamped, `.data` is the operand; nl.alloc_tiles is one allocation."""
    text = nki_text.of("src")("""
        tile, block = (128, 256), (2, 2)
        there = nl.blocks(src, tile_shape=tile, block_shape=block)
        to = nl.blocks(out, tile_shape=tile, block_shape=block)
        for i in range(there.shape[0]):
            for j in range(there.shape[1]):
                block_of = there[i, j]
                kept = nl.alloc_tiles(
                    tile_shape=tile, element_shape=block_of.element_shape, buffer=nl.sbuf, dtype=src.dtype
                )
                tiles, results = nl.tiles(block_of), nl.tiles(to[i, j])
                assert tiles.shape == kept.shape == results.shape
                for r in range(tiles.shape[0]):
                    nisa.dma_copy(dst=kept[r].data, src=tiles[r].data)
                    for c in range(tiles.shape[1]):
                        part = kept[r, c].data
                        nisa.tensor_scalar(dst=part, data=part, op0=nl.multiply, operand0=2.0)
                        nisa.dma_copy(dst=results[r, c].data, src=part)
        """)
    a = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    assert (text.run(a) == 2 * a).all()


def test_what_a_grid_says_of_itself(nki_text):
    """Shapes, steps and remainders of a (300, 700) tensor in tiles of (128, 256), slices, a leading
    dimension without tiles; what cannot be one operand is refused."""
    text = nki_text.of("a, b", shape="(2, 2)")("""
        grid = nl.tiles(a, tile_shape=(128, 256))
        last, middle = grid[2, -1], grid[1:3, 1]
        assert grid.shape == (3, 3) and grid.index_step_elements == (128, 256)
        assert last.shape == () and last.element_shape == (44, 188) and last.is_remainder
        assert not grid[0, 0].is_remainder and middle.shape == (2,)
        assert middle.element_shape == (172, 256) and middle.data.shape == (172, 256)
        slabs = nl.tiles(b, tile_shape=(2, 2))
        assert slabs.shape == (3, 2, 2) and slabs[1, 0, 1].data.shape == (2, 2)
        blocks = nl.blocks(grid, block_shape=(2, 3))
        assert blocks.shape == (2, 1) and blocks.block_shape == (2, 3)
        assert blocks[0].tile_shape == (128, 256) and blocks[0].buffer == a.buffer
        nl.store(out, nl.load(slabs[1, 0, 1].data))
        """)
    a, b = np.zeros((300, 700), np.float32), np.arange(48, dtype=np.float32).reshape(3, 4, 4)
    assert (text.run(a, b) == b[1, 0:2, 2:4]).all()
    alloc = "nl.alloc_tiles(tile_shape=(64, 8), element_shape=(128, 16), buffer=nl.sbuf, dtype=nl.float32)"
    for line, said in (
        (f"{alloc}.data", "several rows of tiles"),
        (f"{alloc}[2]", "index 2 of a grid of 2"),
        (f"{alloc}[0, 0, 0]", "3 indices for a grid of shape"),
        ("nl.tiles(a, tile_shape=[8, 8])", "no tuple of whole numbers"),
        ("nl.tiles(a, tile_shape=(1, 8, 8))", "more dimensions than"),
        ("nl.tiles(a)", "needs its tile_shape"),
    ):
        with pytest.raises(KernelError, match=said):
            kernel(nki_text, line).trace(A)


@pytest.mark.parametrize(("elements", "count"), [(42, 8), (48, 48), (37, 20)])
def test_topk_takes_the_largest_of_sixteen_partitions(nki_text, elements, count):
    """SDK 2.33, nisa.topk: each 16 partitions hold elements in turn, results have the same layout; NKI 0.6:
    ascending. Of equal elements the first (assumed). What completes the last column is no result."""
    text = nki_text("""
        @nki.jit
        def kernel(a, n, k):
            best = nl.ndarray((32, k), dtype=nl.bfloat16, buffer=nl.sbuf)
            where = nl.ndarray((32, k), dtype=nl.uint32, buffer=nl.sbuf)
            nisa.topk(val_dst=best, idx_dst=where, src=nl.load(a), n=n)
            wide = (k + 15) // 16
            out = nl.ndarray((32, wide), dtype=nl.bfloat16, buffer=nl.shared_hbm)
            places = nl.ndarray((32, wide), dtype=nl.uint32, buffer=nl.shared_hbm)
            nl.store(out, best[:, 0:wide])
            nl.store(places, where[:, 0:wide])
            return out, places
    """)
    a = np.random.default_rng(1).integers(0, 99, (32, 3)).astype(ml_dtypes.bfloat16)
    best, places = text.run(a, elements, count)
    for group in (slice(0, 16), slice(16, 32)):
        line = [a[group][e % 16, e // 16] for e in range(elements)]
        order = sorted(range(elements), key=lambda e: (-float(line[e]), e))[:count][::-1]
        turned = places[group].T.reshape(-1)[:count]
        assert turned.tolist() == order
        assert best[group].T.reshape(-1)[:count].tolist() == [line[e] for e in order]


def test_topk_is_priced_as_documented_and_refuses_what_does_not_fit(nki_text):
    """SDK 2.32: 4 n + K cycles of the GpSimd engine; 8 <= n < 65,536, K <= n, 16 partitions."""
    from accelopt.sim import timing
    from accelopt.sim.isa import indexed

    text = writing_of("a, n", shape="(16, 1)", dtype="nl.uint32")("""
        best = nl.ndarray((16, 8), dtype=nl.bfloat16, buffer=nl.sbuf)
        where = nl.ndarray((16, 8), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.topk(best, where, nl.load(a), n)
        nl.store(out, where[:, 0:1])
        """)
    wide = np.zeros((16, 4000), ml_dtypes.bfloat16)
    short, long = (timing.profile(nki_text(text).trace(wide, n)).latency_ms for n in (8000, 64000))
    assert long - short == pytest.approx(4 * 56000 / TARGETS["trn2"].gpsimd_ghz / 1e6, rel=1e-6)
    assert indexed.TOPK.not_lifted and reductions.topk.__doc__
    for n, said in ((7, "topk of n=7"), (65_000, "topk of n=65000"), (4, "topk of n=4")):
        with pytest.raises(KernelError, match=said):
            nki_text(text).trace(wide, n)

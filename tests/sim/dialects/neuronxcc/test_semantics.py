"""The semantics S1 to S31 of the reference `nki-api.md` that are easy to get wrong, each with its
evidence, where neither `test_loops` nor `test_surface` has them. "docs" is the SDK documentation at v2.26.1; "obs" a message seen in real runs; where there
is neither, the test says that it is an assumption."""

import ml_dtypes
import numpy as np
import pytest
from kernel_lines import copying

from accelopt.sim import compute
from accelopt.sim.errors import KernelError
from accelopt.sim.program import Buffer

A = np.arange(128 * 512, dtype=np.float32).reshape(128, 512) / 1000
CORNER = (np.arange(512) < 100) & (np.arange(128) < 64)[:, None]


COPIES = {
    # Observed in ten of the fourteen NKIBench kernels.
    "S3, imports inside of the kernel": (
        ["import neuronxcc.nki.language as inner", "'a bare string'", "t = inner.exp(t)"], np.exp(A)),
    # docs (err_annotation_shape_mismatch): `target: type = value` is checked in the kernel's body.
    "S4, an annotation that holds": (["x: nt.tensor[128, 512] = nl.exp(t)", "t = x"], np.exp(A)),
    # obs: of what is decided, min() and max() are plain numbers.
    "S10, a slice that ends at a known minimum": (
        ["t = nl.exp(t[:, 0:min(700, 512)])", "w = max(1, 2) + min(nl.ds(0, 2).size, 1)"], np.exp(A)),
    # docs (nc_matmul example: tile_position=((i % 2) * 64, ...)); that the loop stays one, `test_loops` has.
    "S12, remainder and quotient of an index": (
        ["u = nl.ndarray((128, 512), dtype=a.dtype)", "for i in nl.affine_range(4):",
         "    u[:, nl.ds((i // 2) * 256 + (i % 2) * 128, 128)] = nl.exp(t[:, nl.ds(i * 128, 128)])",
         "t = u"], np.exp(A)),
    # Observed: NKIBench rope.
    "S18, a name bound again is no write": (["u = t[:, 0:256]", "u = nl.exp(t[:, 0:256])"], A),
    # docs (mask): the instruction works on a smaller tile.
    "S21, masked out elements stay": (
        ["f = nl.arange(512)[None, :]", "p = nl.arange(128)[:, None]",
         "u = nl.exp(t[p, f], mask=(f < 100) & (p < 64))", "keep = nl.copy(t)", "t[p, f] = u"],
        np.where(CORNER, np.exp(A), A)),
    "S21, a mask of loop indices skips the instruction": (
        ["for i in nl.affine_range(4):",
         "    t[:, nl.ds(i * 128, 128)] = nl.exp(t[:, nl.ds(i * 128, 128)], mask=i < 2)"],
        np.where(np.arange(512) < 256, np.exp(A), A)),
    # Masks are joined by `&`: `and` gives the second of two objects that are true (Python). docs use it
    # where both readings pass (test_nki_isa_nc_match_replace8).
    "S21, `and` of two masks is Python's": (
        ["x, y = nl.mgrid[0:128, 0:512]",
         "t[x, y] = nl.multiply(t[x, y], 2.0, mask=(x < 64) and (y < 256))"],
        np.where(np.arange(512) < 256, 2 * A, A)),
    # docs (nl.add example)
    "S27, nl repeats a partition": (["t = nl.add(t, nl.load(a[0:1, :]))"], A + A[:1]),
    "S27, a partition repeated by name": (
        ["t = t + nl.load(a[0:1, :]).broadcast_to((128, 512))"], A + A[:1]),
    # docs (tensor.reshape: a new view, no copy)
    "S28, a reshape views the same memory": (
        ["v = nl.load(a.reshape((128, 4, 128)))", "u = v.reshape((128, 512))", "u[:, 0:128] = 0",
         "t = v.reshape((128, 512))"], np.where(np.arange(512) < 128, 0, A)),
}  # fmt: skip


@pytest.mark.parametrize("name", COPIES)
def test_a_tile_becomes_what_is_documented_or_was_observed(kernel_text, name):
    lines, expected = COPIES[name]
    assert np.allclose(kernel_text(copying(*lines)).run(A), expected)


REFUSED = {
    # obs: AssertionError "slice with variable size is not supported"
    "S10, a slice of variable length": (
        ["for i in nl.affine_range(4):", "    u = nl.exp(t[:, 0:i * 128])"], AssertionError,
        "slice with variable size is not supported"),
    "S10, a slice that ends at a minimum": (  # obs: the same message
        ["for i in nl.affine_range(5):", "    u = nl.exp(t[:, i * 100:min(i * 100 + 128, 512)])"],
        AssertionError, "slice with variable size is not supported"),
    # docs (err_local_variable_used_out_of_scope: shadowing)
    "S18, a name bound again in a loop": (
        ["for i in nl.sequential_range(4):", "    t = nl.add(t, 1.0)"], SyntaxError,
        "err_local_variable_used_out_of_scope"),
    # docs (err_num_partition_mismatch)
    "S27, an operator repeats no partition": (
        ["t = t + nl.load(a[0:1, :])"], KernelError, "err_num_partition_mismatch"),
    # obs: compiler error GCA046
    "S31, a buffer that cannot fit": (
        ["x = nl.zeros((128, 60000), dtype=nl.float32)"], KernelError, "GCA046"),
    # One result, two first operands: it is not told which.
    "a loop_reduce into two tiles that hold values": (
        ["r = nl.full((128, 128), 3.0, nl.float32)", "for i in nl.affine_range(4):",
         "    s = nl.loop_reduce(t[:, nl.ds(i * 128, 128)], np.add, [i])",
         "    other = nl.copy(s)", "    r[...] = s", "t[:, 0:128] = r"],
        NotImplementedError, "and into another"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_documented_or_was_observed_to_be_refused(kernel_text, name):
    lines, error, said = REFUSED[name]
    with pytest.raises(error) as refused:
        kernel_text(copying(*lines)).trace(A)
    assert said in f"{refused.value} {getattr(refused.value, 'identifier', '')}"


@pytest.mark.parametrize(
    ("view", "shape"),
    [("t[:, 3]", (128, 1)), ("t[5]", (1, 512)), ("t[2, 3]", (1, 1)), ("t[:, 3][:, 0]", (128, 1))],
)
def test_s6_on_chip_rank_never_drops_below_two(kernel_text, view, shape):
    """docs (nl.load of a column; bn_aggr example stores `mean_var[:, 0]` into (128, 1))."""
    text = kernel_text(copying(f"v = {view}", f"assert v.shape == {shape}, v.shape"))
    text.trace(A)


def test_s6_hbm_views_drop_dimensions_and_vectors_load_as_columns(kernel_text):
    text = kernel_text.of("a, v", shape="(128, 64)")("""
        assert a[1].shape == (128, 64) and a[1, 2].shape == (64,)
        assert nl.load(v).shape == (8, 1) and nl.load(v[0]).shape == (1, 1)
        nl.store(out, nl.load(a[1]))
        """)
    a = np.random.rand(2, 128, 64).astype(np.float32)
    assert np.array_equal(text.run(a, np.ones(8, np.float32)), a[1])


def test_s7_reductions_of_two_and_more_dimensions(kernel_text):
    """docs (nl.sum): axes removed; observed: a 2-D tile gives (P, 1), and negative axes work."""
    text = kernel_text.of(shape="(128, 4)")("""
        t = nl.load(a)
        assert nl.sum(t, axis=[1, 2, 3]).shape == (128, 1)
        assert nl.sum(t, axis=[-2, -1]).shape == (128, 2)
        assert nl.max(t, axis=[2, 3], keepdims=True).shape == (128, 2, 1, 1)
        s = nl.sum(t, axis=[1, 3])
        nl.store(out, s)
        """)
    a = np.random.rand(128, 2, 4, 8).astype(np.float32)
    assert np.allclose(text.run(a), a.sum((1, 3)), atol=1e-5)


@pytest.mark.parametrize("made", ["nl.zeros", "nl.ndarray"])
def test_s15_first_matmul_of_a_group_overwrites(kernel_text, made):
    """docs (nc_matmul, affine_range example 2); allocated kernels use a bare ndarray."""
    text = kernel_text.of("a, b", shape="(64, 256)", dtype="nl.float32")(f"""
        p = {made}((64, 256), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(3):
            x = nl.load(a[nl.ds(k * 128, 128), :])
            y = nl.load(b[nl.ds(k * 128, 128), :])
            p += nisa.nc_matmul(x, y)
        nl.store(out, p)
        """)
    a, b = (np.random.rand(384, n).astype(np.float32) for n in (64, 256))
    assert np.allclose(text.run(a, b), a.T @ b, rtol=1e-5)
    opcodes = [i.opcode for _, i in text.trace(a, b).walk()]
    assert "tensor_tensor" not in opcodes


def test_s19_callee_writes_through_subtiles(kernel_text):
    """docs (nested kernels pass by reference)."""
    text = kernel_text("""
        @nki.trace
        def fill(part, column, value):
            part[...] = nl.full(part.shape, value, part.dtype)
            nisa.activation_reduce(nl.copy, part, reduce_op=np.add, reduce_res=column)

        @nki.jit
        def kernel(a):
            out = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.shared_hbm)
            t = nl.ndarray((128, 512), dtype=nl.float32)
            sums = nl.ndarray((128, 4), dtype=nl.float32)
            for i in nl.affine_range(4):
                fill(t[:, nl.ds(i * 128, 128)], sums[:, i], 2.0)
            nl.store(out, sums)
            return out
        """)
    assert np.array_equal(text.run(A), np.full((128, 4), 256, np.float32))


def test_s20_order_of_affine_iterations_shows(kernel_text):
    """docs (affine_range: no loop-carried dependence). In order this sums; shuffled it does not."""
    text = kernel_text(
        copying(
            "r = nl.ndarray((128, 512), dtype=nl.float32)",
            "r[:, 0:128] = t[:, 0:128]",
            "for i in nl.affine_range(3):",
            "    r[:, nl.ds(i * 128 + 128, 128)] = nl.add(r[:, nl.ds(i * 128, 128)], 1.0)",
            "t = r",
        )
    )

    def differs(program):
        orders = [compute.execute(program, [A], order=order) for order in ("program", "shuffled")]
        return not np.array_equal(orders[0][0], orders[1][0], equal_nan=True)

    assert differs(text.trace(A))
    assert not differs(kernel_text(copying("t = nl.exp(t)")).trace(A))


def test_s22_operand_masks_of_matmul(kernel_text):
    """docs (mask section: operand masking of matmul)."""
    text = kernel_text.of("a, b", shape="(64, 512)", dtype="nl.float32")("""
        p = nl.arange(128)[:, None]
        m = nl.arange(64)[None, :]
        f = nl.arange(512)[None, :]
        x, y = nl.load(a), nl.load(b)
        r = nl.zeros((64, 512), dtype=nl.float32)
        r[...] = nl.matmul(x[p, m][p < 100], y[p, f][p < 100], transpose_x=True)
        nl.store(out, r)
        """)
    a, b = (np.random.rand(128, n).astype(np.float32) for n in (64, 512))
    assert np.allclose(text.run(a, b), a[:100].T @ b[:100], rtol=1e-5)


def test_s24_python_numbers_are_weak_but_wide(kernel_text):
    """docs (type promotion): (float16, 1.2) gives float32, np.float16(2) keeps float16; nisa keeps
    the format of its data."""
    text = kernel_text(
        copying(
            "h = nl.copy(t, dtype=nl.float16)",
            "assert (h * 1.2).dtype == nl.float32",
            "assert nl.add(h, np.float16(2)).dtype == nl.float16",
            "assert nl.add(h, nl.copy(t, dtype=nl.bfloat16)).dtype == nl.float32",
            "assert nisa.tensor_scalar(h, nl.multiply, 1.2).dtype == nl.float16",
            "assert nl.add(nl.copy(t, dtype=nl.int8), 2).dtype == nl.int32",
            "assert nl.equal(t, t).dtype == nl.bool_",
        )
    )
    text.trace(A)


COLUMN = np.arange(128, dtype=np.float32).reshape(128, 1)
CUBE = np.random.default_rng(4).normal(size=(128, 4, 8)).astype(np.float32)
MIDDLE = np.random.default_rng(5).normal(size=(128, 4)).astype(np.float32)

FREE_AXES = {
    "nisa.tensor_tensor(t, c, nl.add)": CUBE + COLUMN[:, :, None],
    "nisa.tensor_tensor(c, t, np.subtract)": COLUMN[:, :, None] - CUBE,
    "nl.multiply(t, c)": CUBE * COLUMN[:, :, None],
    "nl.subtract(c, t)": COLUMN[:, :, None] - CUBE,
    "nl.multiply(t, m)": CUBE * MIDDLE[:, :, None],
    "nl.maximum(m, t)": np.maximum(CUBE, MIDDLE[:, :, None]),
    "t - m": CUBE - MIDDLE[:, :, None],
    "nl.where(t > 0, t, m)": np.where(CUBE > 0, CUBE, MIDDLE[:, :, None]),
    "nisa.tensor_scalar(t, np.add, c)": CUBE + COLUMN[:, :, None],
    "nisa.activation(nl.relu, t, bias=c)": np.maximum(CUBE + COLUMN[:, :, None], 0),
}


@pytest.mark.parametrize("expression", FREE_AXES)
def test_free_axes_that_are_missing_on_the_right_are_repeated(kernel_text, expression):
    """aws-neuron-sdk issue 1138 (a tile (P, A, B) times one of (P, A): the SDK's simulator repeats along
    the last axis); public convolutions add a column (P, 1) to a tile of three axes."""
    text = kernel_text.of("a, column, middle")(f"""
        t, c, m = nl.load(a), nl.load(column), nl.load(middle)
        nl.store(out, {expression})
        """)
    np.testing.assert_allclose(text.run(CUBE, COLUMN, MIDDLE), FREE_AXES[expression], rtol=1e-6)


def test_tiles_that_do_not_fit_are_told_as_tiles(kernel_text):
    text = kernel_text.of("a, column, middle")("nl.add(nl.load(a), nl.load(middle)[:, 0:3])")
    with pytest.raises(KernelError, match=r"tiles of shapes \(128, 4, 8\) and \(128, 3\)"):
        text.trace(CUBE, COLUMN, MIDDLE)


STORES = {
    "a row into a vector": ("(512,)", "nl.store(out, nl.load(a[0:1, :]))", A[0]),
    "rows into pieces of a vector": (
        "(2048,)",
        "for i in nl.affine_range(4):\n    nl.store(out[i * 512:(i + 1) * 512], nl.load(a[i:i + 1, :]))",
        A[:4].reshape(-1),
    ),
    "a column into a vector": ("(128,)", "nl.store(out, nl.load(a[:, 0:1]))", A[:, 0]),
    "a column into a row": ("(1, 128)", "nl.store(out, nl.load(a[:, 0:1]))", A[:, :1].T),
    "a row into a column": ("(512, 1)", "nl.store(out, nl.load(a[0:1, :]))", A[:1].T),
    "a number": ("(128, 512)", "nl.store(out, 3.0)", np.full((128, 512), 3, np.float32)),
    "a column, repeated": ("(128, 4)", "nl.store(out, nl.load(a[:, 0:1]))", np.repeat(A[:, :1], 4, 1)),
    "further axes of length 1": ("(1, 128, 1, 512)", "nl.store(out, nl.load(a))", A.reshape(1, 128, 1, 512)),
    "a flat index": (
        "(65536,)",
        "p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]\nnl.store(out[p * 512 + f], nl.load(a))",
        A.reshape(-1),
    ),
    # docs (nl.store: the first index dimension is the partition), S9
    "indices of columns before those of rows": (
        "(512, 128)",
        "p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]\nnl.store(out[f, p], nl.load(a[p, f]))",
        A.T,
    ),
    "a view of a vector": ("(65536,)", "nl.store(out.reshape((128, 512)), nl.load(a))", A.reshape(-1)),
}  # fmt: skip


@pytest.mark.parametrize("name", STORES)
def test_a_store_takes_every_form_of_its_value(kernel_text, name):
    """docs (nl.store: a scalar or a tile that fits the destination); HBM has no partition axis, so that
    axes of length 1 may stand anywhere in it (assumption)."""
    shape, lines, expected = STORES[name]
    assert np.array_equal(kernel_text.of(shape=shape)(lines).run(A), expected)


def test_s29_programs_share_hbm_and_nothing_else(kernel_text):
    """docs (nl.shared_hbm, nl.program_id)."""
    text = kernel_text.writing("""
        i, j = nl.program_id(0), nl.program_id(1)
        assert nl.num_programs(0) == 2 and nl.num_programs() == 4 and nl.program_ndim() == 2
        p, f = nl.ds(i * 64, 64), nl.ds(j * 256, 256)
        nl.store(out[p, f], nl.multiply(nl.load(a[p, f]), 2.0))
        """)
    program = text.trace(A, grid=(2, 2))
    (result,) = compute.execute(program, [A])
    assert np.array_equal(result, 2 * A)
    shared = [t for t in program.tensors if t.buffer is Buffer.SHARED_HBM]
    assert len(shared) == 1


def test_s30_mutable_parameter_and_several_results(kernel_text):
    """docs (err_mutable_parameter_not_returned)."""
    text = kernel_text("""
        @nki.jit
        def kernel(a: nt.mutable_tensor):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            t = nl.load(a)
            nl.store(out, nl.exp(t))
            nl.store(a, nl.add(t, 1.0))
            return out, None, a
        """)
    a = A.copy()
    out, nothing, updated = text.run(a)
    assert nothing is None and np.allclose(out, np.exp(A)) and np.allclose(updated, A + 1)


@pytest.mark.parametrize("transpose", ["nl.transpose", "nisa.nc_transpose"])
def test_the_mask_of_a_transpose_is_over_its_operand(kernel_text, transpose):
    """As `attention_token_gen_kernel` of nki-samples: the columns that are left out lie outside of
    the destination."""
    text = kernel_text.of(shape="(128, 32)", dtype="nl.float32")(f"""
        t = nl.load(a[0:16, :])
        turned = nl.zeros((128, 32), dtype=nl.float32)
        p, q = nl.arange(128)[:, None], nl.arange(16)[None, :]
        for i in nl.affine_range(4):
            f = nl.arange(128)[None, :]
            turned[p, q + i * 16] = {transpose}(
                t[nl.arange(16)[:, None], f + i * 128], mask=(f + i * 128 < 200))
        nl.store(out, turned)
        """)
    expected = np.zeros((128, 32), np.float32)
    expected[:, :16] = A[:16, :128].T
    expected[:72, 16:] = A[:16, 128:200].T
    assert np.array_equal(text.run(A), expected)


def test_a_transpose_reads_outside_of_its_tensor_only_under_a_mask(kernel_text):
    text = kernel_text.of(shape="(64, 128)", dtype="nl.float32")("""
        t = nl.load(a[:, 0:50])
        f = nl.arange(64)[None, :]
        r = nl.zeros((64, 128), dtype=nl.float32)
        r[...] = nl.transpose(t[nl.arange(128)[:, None], f], mask=(f < 50))
        nl.store(out, r)
        """)
    assert np.array_equal(text.run(A)[:50], A[:, :50].T) and not text.run(A)[50:].any()


def test_parallel_iterations_may_write_rows_that_each_finds_at_run_time(kernel_text):
    """As the gradients of affinities in nki-samples `blockwise_mm_bwd.py`."""
    text = kernel_text.of("a, rows", shape="(1024, 64)", dtype="nl.float32")("""
        t, index = nl.load(a), nl.load(rows)
        p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
        for n in nl.affine_range(4):
            row = nl.multiply(index[0:128, n], 2, dtype=nl.int32)
            nl.store(out[row[p, 0], f], t[p, n * 64 + f])
            row = nl.add(row, 1, dtype=nl.int32)
            nl.store(out[row[p, 0], f], t[p, n * 64 + f])
        """)
    rows = np.random.default_rng(0).permutation(512).reshape(128, 4).astype(np.int32)
    found = text.run(A, rows)
    for n in range(4):
        assert np.array_equal(found[rows[:, n] * 2], A[:, n * 64 : (n + 1) * 64])
        assert np.array_equal(found[rows[:, n] * 2 + 1], A[:, n * 64 : (n + 1) * 64])


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_matmul_that_is_called_a_transpose_still_sums_in_fp32(kernel_text, target, random):
    """docs (nisa.nc_matmul, 2.26.1): "The matmul accumulation and results are always in float32";
    is_transpose "hints to the compiler".."""
    text = kernel_text.of("a, b", shape="(64, 96)", dtype="nl.float32")("""
        left, right = nl.load(a), nl.load(b)
        nl.store(out, nl.copy(nisa.nc_matmul(left, right, is_transpose=True)))
        """)
    a = random.random((128, 64)).astype(ml_dtypes.bfloat16)
    b = random.random((128, 96)).astype(ml_dtypes.bfloat16)
    program = text.trace(a, b, target=target)
    (result,) = compute.execute(program, [a, b])
    exact = a.astype(np.float64).T @ b.astype(np.float64)
    assert result.dtype == np.float32
    assert np.abs(result / exact - 1).max() < 1e-5


def test_s11_a_mask_for_a_column_of_a_tensor_is_one_for_the_tile(kernel_text, random):
    """docs (masking): `mask=ix < n` for what is indexed by ix. `t[ix]` of an (N, 1) tensor is `t[ix, 0]`
    (NumPy's rule for missing dimensions), so the mask is over its rows."""
    text = kernel_text.writing("""
        for i in nl.affine_range(3):
            rows = i * 128 + nl.arange(128)[:, None]
            t = nl.load(a[rows], mask=rows < 300)
            nl.store(out[rows], nl.multiply(t, 2.0), mask=rows < 300)
        """)
    a = random.random((300, 1)).astype(np.float32)
    assert np.array_equal(text.run(a), 2 * a)


def test_bn_stats_without_a_masked_tail(kernel_text, random):
    """nki-samples, layernorm tutorial (300 x 1000): statistics of tiles of 512 under a mask for the
    columns that are there. The documentation has no such masks, so there is a warning."""
    text = kernel_text.of(shape="(300, 2)")("""
        p, f, s = nl.arange(128)[:, None], nl.arange(512)[None, :], nl.arange(6)[None, :]
        for i in nl.affine_range(3):
            t = nl.load(a[i * 128 + p, nl.arange(1000)[None, :]], mask=i * 128 + p < 300)
            stats = nl.ndarray((128, 12), dtype=nl.float32)
            for j in nl.affine_range(2):
                there = (i * 128 + p < 300) & (j * 512 + f < 1000)
                stats[p, j * 6 + s] = nisa.bn_stats(t[p, j * 512 + f], mask=there)
            both = nisa.bn_aggr(stats, mask=i * 128 + p < 300)
            nl.store(out[i * 128 + p, nl.arange(2)[None, :]], both, mask=i * 128 + p < 300)
        """)
    a = random.random((300, 1000)).astype(np.float32)
    with pytest.warns(UserWarning, match="bn_stats masks its reduced dimension"):
        got = text.run(a)
    assert np.allclose(got, np.stack([a.mean(1), a.var(1)], axis=1), rtol=1e-5)


@pytest.mark.parametrize("kind", ["affine_range", "sequential_range", "static_range"])
@pytest.mark.parametrize(
    ("made", "op", "function"),
    [
        ("r = nl.zeros((128, 128), nl.float32)", "add", lambda parts: parts.sum(1)),
        ("r = nl.ndarray((128, 128), nl.float32)", "max", lambda parts: parts.max(1)),
        ("r = nl.zeros((128, 128), nl.float32)", "max", lambda parts: parts.max(1).clip(0)),
        ("r = nl.full((128, 128), 3.0, nl.float32)", "add", lambda parts: parts.sum(1) + 3),
        (
            "r = nl.ndarray((128, 128), nl.float32); r[...] = nl.copy(t[:, 0:128])",
            "add",
            lambda parts: parts.sum(1) + parts[:, 0],
        ),
    ],
)
def test_s14_loop_reduce_begins_with_what_the_destination_holds(
    kernel_text, made, op, function, kind
):
    """docs (nl.loop_reduce): "The destination tile is also the rhs input to op"."""
    text = kernel_text(
        copying(
            made,
            f"for i in nl.{kind}(4):",
            f"    r[...] = nl.loop_reduce(t[:, nl.ds(i * 128, 128)], np.{op}, [i])",
            "t[:, 0:128] = r",
        )
    )
    assert np.allclose(text.run(A)[:, :128], function(A.reshape(128, 4, 128)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("outer", ["affine_range", "static_range"])
@pytest.mark.parametrize("inner", ["affine_range", "static_range"])
def test_s14_loop_reduce_is_one_for_each_iteration_of_a_loop_inside(kernel_text, outer, inner):
    """nki-samples, flash_attn_bwd with grouped queries (0898a77): dq of each head is reduced over tiles
    of keys, in a loop around that of the heads which a branch on its index unrolls."""
    text = kernel_text.of(shape="(128, 2, 64)")(f"""
        r = nl.zeros((2, par_dim(128), 64), dtype=nl.float32)
        for k in nl.{outer}(4):
            for h in nl.{inner}(2):
                if k * 128 >= 0:
                    t = nl.load(a[:, nl.ds(k * 128 + h * 64, 64)])
                    r[h] = nl.loop_reduce(t, op=np.add, loop_indices=(k,))
        for h in nl.affine_range(2):
            nl.store(out[:, h], r[h])
        """)
    assert np.allclose(text.run(A), A.reshape(128, 4, 2, 64).sum(1), rtol=1e-5, atol=1e-5)


def test_what_a_mask_of_no_element_transposes_may_be_multiplied(kernel_text):
    """nki-samples, flash_attn_bwd with a sliding window (0898a77): tiles above the diagonal are masked
    as a whole, and unrolled the mask is a plain False."""
    text = kernel_text.of(shape="(128, 128)")("""
        t = nl.load(a[:, 0:128])
        total = nl.zeros((par_dim(128), 128), dtype=np.float32, buffer=nl.psum)
        for j in nl.static_range(2):
            for i in nl.static_range(2):
                mask = i * 128 >= j * 128
                turned = nisa.nc_transpose(t, mask=mask)
                total[:, :] += nisa.nc_matmul(turned, t, mask=mask)
        nl.store(out, nl.copy(total))
        """)
    assert np.allclose(text.run(A), 3 * (A[:, :128] @ A[:, :128]), rtol=1e-4, atol=1e-3)


def test_what_the_dma_of_trn2_cannot_do(kernel_text):
    """kda-for-trainium: transposes of four bytes by DMA, and loads that repeat a row on all
    partitions, do not compile for trn2."""
    turned = kernel_text(copying("t[:, 0:128] = nisa.dma_transpose(a[:, 0:128])"))
    repeated = kernel_text(copying("t[...] = nl.load(a[0:1, :].broadcast_to((128, 512)))"))
    for text, said in ((turned, "elements of two bytes"), (repeated, "repeats one row")):
        assert text.trace(A, target="trn1")
        with pytest.raises(KernelError, match=said):
            text.trace(A, target="trn2")


@pytest.mark.parametrize(
    ("mode", "made"),
    [("none", "static"), ("swdge", "software"), ("hwdge", "sync"), ("unknown", None)],
)
def test_who_makes_the_descriptors_of_a_transfer_is_kept(kernel_text, mode, made):
    """nki-dge.rst: the modes are those of both dialects; this one dropped them."""
    mode = f"dge_mode=nisa.dge_mode.{mode}"
    text = kernel_text(
        copying(
            f"nisa.dma_copy(dst=t, src=a, {mode})",
            f"t[0:128, 0:128] = nisa.dma_transpose(a[0:128, 0:128], {mode})",
            dtype="nl.bfloat16",
        )
    )
    program = text.trace(A.astype(ml_dtypes.bfloat16), target="trn2")
    found = [one.attributes.get("descriptors") for _, one in program.walk()]
    assert found.count(made) >= 2, found

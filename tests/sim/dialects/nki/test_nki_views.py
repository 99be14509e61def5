"""Views of NkiTensor: those of the language guide and of nki-aps.rst, by what they read."""

import ml_dtypes
import numpy as np
import pytest
from kernel_lines import writing_of

from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.sim import timing
from accelopt.sim.errors import KernelError

A = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)

READ = """
@nki.jit
def kernel(a):
    t = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=a)
    view = {view}
    out = nl.ndarray(view.shape, dtype=view.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=view)
    return out
"""
VIEWS = {
    "t[:, 0:32:2]": A[:, 0:32:2],
    "t[5, 7]": A[5:6, 7:8],
    "t[:, -1]": A[:, -1:],
    "t[0:64].slice(1, 8, 24)": A[:64, 8:24],
    "t.reshape((128, 4, 16))[:, 2]": A.reshape(128, 4, 16)[:, 2],
    "t.reshape((128, 4, 16)).permute((0, 2, 1))": A.reshape(128, 4, 16).transpose(0, 2, 1),
    "t.reshape_dim(1, (4, -1)).flatten_dims(1, 2)": A,
    "t[:, 3].expand_dim(1).broadcast(1, 5)": np.repeat(A[:, 3:4, None], 5, 1),
    "t.expand_dim(1).squeeze_dim(1)": A,
    "t.ap(pattern=[[64, 16], [1, 8]], offset=8)": A[:16, 8:16],
    "t.ap(pattern=[[64, 128], [2, 4], [1, 2]])": A[:, :8].reshape(128, 4, 2),
    "t[:, 8:].ap(pattern=[[64, 128], [1, 4]])": A[:, 8:12],
    "t[:, 8:].ap(pattern=[[64, 128], [1, 4]], offset=2)": A[:, 2:6],
    "t.rearrange(('p', ('h', 'w')), ('p', 'w', 'h'), {'h': 4})": A.reshape(128, 4, 16).transpose(0, 2, 1),
    "t.view(nl.int32)": A.view(np.int32),
    "t.ap(pattern=[[128, 128], [1, 128]], dtype=nl.int16)": A.view(np.int16),
    "t[nl.ds(32, 32), nl.ds(4, 2)]": A[32:64, 4:6],
    "a[3]": A[3],
}  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_reads_what_the_documentation_says(nki_text, view):
    assert np.array_equal(nki_text(READ.format(view=view)).run(A), VIEWS[view])


def test_a_pattern_says_where_a_view_is(nki_text):
    """nki-aps.rst: a slice and the pattern written by hand are the same access."""
    nki_text.writing("""
        t = nl.load(a)
        assert t.slice(dim=1, start=8, end=24).get_pattern() == [[64, 128], [1, 16]]
        assert t.is_contiguous() and not t[:, ::2].is_contiguous()
        assert t.size == 128 * 64 and t.buffer == nl.sbuf and t.dtype == nl.float32
        nl.store(out, t)
        """).trace(A)


REFUSED = {
    "t.permute((1, 0))": "partition dimension",
    "t.broadcast(1, 3)": "not 1",
    "t.ap(pattern=[[128, 8], [1, 32]])": "row length",
    "t.ap(pattern=[[64, 128], [1, 65]])": "flattened",
    "t.reshape((128, 65))": "cannot reshape",
    "t[:, 0:65]": "err_tensor_access_out_of_bound",
    "t[:, None]": "cannot be indexed with None",
    "t[a]": "cannot be indexed with a tensor",
    "t[::2]": "step",
    "t + t": "no operator [+]",
}


@pytest.mark.parametrize("view", REFUSED)
def test_a_view_that_cannot_be_is_refused(nki_text, view):
    with pytest.raises(KernelError, match=REFUSED[view]):
        nki_text(READ.format(view=view)).trace(A)


def test_a_pattern_that_no_instruction_uses_may_leave_its_tensor(nki_text):
    """The vendor library's output_projection_tkg makes such patterns, and uses them under an `if`."""
    nki_text(READ.format(view="(t.ap(pattern=[[64, 128], [1, 65]]), t)[1]")).trace(A)


def test_a_load_repeats_a_row_as_a_copy_does(nki_text):
    """nl.load is nisa.dma_copy into a new tile (SDK 2.32); a partition step of 0 repeats (nki-aps.rst)."""
    text = READ.format(view="nl.load(a.ap([[0, 128], [1, 64]], offset=64))")
    assert (nki_text(text).run(A) == A[1]).all()


INDIRECT = writing_of("a, rows")("""
t, index = nl.load(a), nl.load(rows)
r = nl.zeros((32, 64), dtype=a.dtype, buffer=nl.sbuf)
p = nl.ndarray((32, 40), dtype=nl.float32, buffer=nl.psum)
{lines}
nl.store(out, r)
""")
GATHERED, PART = "t.indirect(index, 40)", "r[:, 0:40]"
SHARED = {
    f"nisa.tensor_copy({PART}, {GATHERED})": 16,
    f"nisa.tensor_scalar({PART}, {GATHERED}, nl.multiply, 1.0)": 16,
    f"nisa.tensor_tensor({PART}, t.indirect(index, num_elem=40), r[:, 0:40], nl.add)": 16,
    f"nisa.activation({PART}, nl.copy, {GATHERED})": 16,
    f"nisa.tensor_copy({PART}.reshape((32, 5, 8)), {GATHERED})": 16,
    f"nisa.nc_matmul(p, nl.shared_identity_matrix(32, dtype=a.dtype), {GATHERED})\n    nisa.tensor_copy({PART}, p)": 32,
    "nisa.tensor_copy(r.indirect(index, 40), t[:, 0:40])": 0,
}  # fmt: skip
NOT_SHARED = {
    f"nisa.tensor_copy({PART}, {GATHERED}, engine=nisa.engine.gpsimd)": "takes no operand data by tensor indirection",
    f"nisa.tensor_tensor({PART}, {PART}, {GATHERED}, nl.add)": "takes no operand data2 by tensor indirection",
    f"nisa.dma_copy({PART}, {GATHERED})": "takes no operand source by tensor indirection",
    "nisa.activation(p.indirect(index, 40), nl.copy, t[:, 0:40])": "cannot scatter into PSUM on the scalar engine",
    f"nisa.nc_matmul(p, t[:, 0:32], {GATHERED})": "takes no operand moving of float32",
    "nisa.tensor_copy(r[:, 0:49], t.indirect(index, 49))": "finds 48 indices .* not 49: pass num_elem",
    "nisa.tensor_copy(r[0:8, 0:40], t[0:8].indirect(index[0:8], 24))": "differ in shape",
    "nisa.tensor_copy(r[0:8, 0:24], t[0:8].indirect(index[0:8], 24))": "in groups of 16 partitions",
    "t.indirect(index, 97)": "num_elem=97 is not one of 1 to 96",
    f"{GATHERED}[:, 0:4]": "has no views",
    "t[:, ::2].indirect(index)": "free dimensions follow one another",
    "t.indirect(t)": "must be integer",
    "s = nl.ndarray((32, 3), dtype=nl.int32, buffer=nl.sbuf, address=(16, 0))\n    nisa.dma_copy(s, rows)\n"
    f"    nisa.tensor_copy({PART}, t.indirect(s, 40))": "from partition 16 on, no multiple of 32",
}  # fmt: skip


@pytest.mark.parametrize("lines", SHARED)
def test_partitions_in_groups_share_the_offsets_of_what_they_gather(nki_text, lines):
    """NkiTensor.indirect (SDK 2.31, NeuronCore-v4): offset i is index[i % G, i // G] of each group of G partitions,
    16, of the Tensor engine 32. Such an instruction is priced as one of plain tiles, and not lifted (assumed)."""
    rng, group = np.random.default_rng(2), SHARED[lines]
    half = ml_dtypes.bfloat16 if "matmul" in lines else np.float32
    data, rows = (
        rng.standard_normal((32, 64)).astype(half),
        rng.integers(0, 64, (32, 3)).astype(np.int32),
    )
    wanted = np.zeros_like(data)
    for p, e in np.ndindex(32, 40):
        at = rows[p // (group or 16) * (group or 16) + e % (group or 16), e // (group or 16)]
        wanted[(p, e) if group else (p, at)] = data[(p, at) if group else (p, e)]
    kernel = nki_text(INDIRECT.format(lines=lines))
    assert np.array_equal(kernel.run(data, rows, target="trn3"), wanted)
    assert timing.profile(kernel.trace(data, rows, target="trn3")).latency_ms > 0
    with pytest.raises(NotLifted):
        lift(kernel.trace(data, rows, target="trn3"))
    with pytest.raises(KernelError, match="needs NeuronCore-v4"):
        kernel.trace(data, rows)
    rows[5, 0] = 64
    with pytest.raises(IndexError, match="out of bounds"):
        kernel.run(data, rows, target="trn3")


@pytest.mark.parametrize("lines", NOT_SHARED)
def test_what_cannot_be_gathered_by_shared_offsets_is_refused(nki_text, lines):
    """SDK 2.32, "Tensor indirection" of each instruction: which operands, on which engines, in which formats, and
    from which partitions on indices lie."""
    data, rows = np.zeros((32, 64), np.float32), np.zeros((32, 3), np.int32)
    with pytest.raises(KernelError, match=NOT_SHARED[lines]):
        nki_text(INDIRECT.format(lines=lines)).trace(data, rows, target="trn3")


def test_run_time_indices_by_access_pattern(nki_text):
    """nki-aps.rst, "Dynamic Access": a scalar and a vector offset along the tensor's dimension."""
    kernel = nki_text("""
        @nki.jit
        def kernel(a, rows):
            index = nl.load(rows)
            out = nl.ndarray((32, 64), dtype=a.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=out, src=a.ap([[64, 32], [1, 64]], 0, vector_offset=index, indirect_dim=0))
            one = nl.ndarray((16, 64), dtype=a.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=one, src=a.ap([[64, 16], [1, 64]], scalar_offset=index[3:4, :], indirect_dim=0))
            same = nl.ndarray((32, 64), dtype=a.dtype, buffer=nl.shared_hbm)
            nisa.dma_compute(same, [a.vector_select(0, index)] * 2, nl.add)
            return out, one, same
        """)
    rows = np.random.default_rng(1).integers(0, 100, (32, 1)).astype(np.int32)
    out, one, same = kernel.run(A, rows)
    assert np.array_equal(out, A[rows[:, 0]]) and np.array_equal(same, 2 * out)
    assert np.array_equal(one, A[rows[3, 0] : rows[3, 0] + 16])
    (adds,) = (one for _, one in kernel.trace(A, rows).walk() if one.attributes.get("accumulate"))
    assert adds.attributes["descriptors"] == "software"


ASSIGNED = {
    "column by column": ["for h in nl.affine_range(4):", "    for w in nl.affine_range(16):", "        out[:, h, w] = t[:, h, w]"],
    "row by row": ["for h in range(4):", "    out[:, h, :] = t[:, h]"],
    "whole": ["out[...] = t"],
    "from a function": ["out[:, 0:2] = nl.multiply(t[:, 0:2], 1.0)", "out[:, 2:4] = nl.copy(t[:, 2:4])"],
    "from HBM to HBM": ["out[0:64] = view[0:64]", "out[64:] = view[64:]"],
    "from HBM on-chip": ["u = nl.ndarray(t.shape, dtype=a.dtype, buffer=nl.sbuf)", "u[...] = view", "out[...] = u"],
}  # fmt: skip


@pytest.mark.parametrize("name", ASSIGNED)
def test_an_assignment_is_a_copy_by_dma_where_one_side_lies_in_hbm(nki_text, name):
    """Kernels of the newer dialect assign to tensors in HBM (the vendor's rope_hf.py writes
    `q_out[batch, head, a:b] = rotate(...)` in the reference that it gives)."""
    lines = ["view = a.reshape((128, 4, 16))", "t = nl.load(view)", *ASSIGNED[name]]
    kernel = nki_text.of(shape="(128, 4, 16)")("\n".join(lines))
    assert np.array_equal(kernel.run(A), A.reshape(128, 4, 16))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("out[:, 0:32] = t", "differ in shape"),
        ("out[...] = 3.0", "nl.store"),
        ("out[...] = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.psum)", "tensor_copy first"),
    ],
)
def test_what_no_dma_can_do_is_no_assignment(nki_text, line, said):
    """SDK 2.33, nisa.dma_copy: as many elements, HBM or SBUF."""
    text = READ.format(view="t").replace("    nisa.dma_copy(dst=out, src=view)", f"    {line}")
    with pytest.raises(KernelError, match=said):
        nki_text(text).trace(A)

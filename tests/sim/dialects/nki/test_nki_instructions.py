"""Instructions with a destination, against NumPy."""

import numpy as np
import pytest

from accelopt.sim.compute.instructions import arithmetic
from accelopt.sim.dialects.nki.isa.destinations import STANDALONE_ACTIVATIONS

A = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((128, 64)).astype(np.float32)
ROW = np.arange(64)[None, :]
COLUMN = np.arange(128)[:, None]


def test_every_function_that_activation_takes_has_a_meaning():
    assert {op for op in STANDALONE_ACTIVATIONS if arithmetic.unary(op)} == STANDALONE_ACTIVATIONS


# Beside the instructions of `test_check_instructions`, which go the whole way of `accelopt check`.
CASES = {
    "nisa.tensor_scalar(r, t, nl.subtract, 2.0, True, op1=nl.multiply, operand1=t[:, 0:1])": (2 - A) * A[:, :1],
    "nisa.tensor_scalar(dst=r, data=t, op0=nl.abs, operand0=0.0, op1=nl.add, operand1=1.0)": abs(A) + 1,
    "nisa.tensor_copy(dst=r.reshape((128, 8, 8)), src=t)": A,
    "nisa.memset(dst=r, value=3.0)": np.full_like(A, 3),
    "nisa.affine_select(r, [[1, 64]], -1, t, 0.0)": np.where(ROW == COLUMN, A, 0),
    "nisa.tensor_copy(r, t); nisa.dma_compute(r, [r, u, t], nl.add)": 2 * A + B,
}  # fmt: skip


@pytest.mark.parametrize("lines", CASES)
def test_an_instruction_writes_its_destination(nki_text, lines):
    kernel = nki_text.of("a, b")(f"""
        t, u, r = nl.load(a), nl.load(b), nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        {lines}
        nisa.dma_copy(dst=out, src=r)
        """)
    np.testing.assert_allclose(kernel.run(A, B), CASES[lines], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "accumulate", ["", ", accumulate=None", ", accumulate=(k > 0)", ", accumulate=k != 0"]
)
@pytest.mark.parametrize("loop", ["range(2)", "[0, 1]"])
def test_the_first_product_overwrites_and_the_next_add(nki_text, accumulate, loop):
    """nisa.nc_matmul, "Accumulation mode"; a tile of each round is fresh."""
    kernel = nki_text.of("a, b", shape="(2, 64, 64)", dtype="nl.float32")(f"""
        for m in range(2):
            product = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
            for k in {loop}:
                nisa.nc_matmul(dst=product, stationary=nl.load(a[k * 64 : k * 64 + 64, :]),
                               moving=nl.load(b[k * 64 : k * 64 + 64, :]){accumulate})
            nl.store(out[m], nl.copy(product))
        """)
    np.testing.assert_allclose(kernel.run(A, B)[1], A.T @ B, rtol=1e-4, atol=1e-4)


def test_overwriting_ends_what_was_accumulated(nki_text):
    kernel = nki_text.of("a, b", shape="(64, 64)", dtype="nl.float32")("""
        t, u = nl.load(a), nl.load(b)
        product = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(product, t, t)
        nisa.nc_matmul(product, t, u, accumulate=False)
        nisa.nc_matmul(product, t, u)
        nl.store(out, nl.copy(product))
        """)
    np.testing.assert_allclose(kernel.run(A, B), 2 * A.T @ B, rtol=1e-4, atol=1e-4)


def test_transfers_keep_the_order_of_elements(nki_text):
    """nisa.dma_copy: as many elements on both sides, in other shapes."""
    kernel = nki_text.of(shape="(3, 8192)")("""
        t = nl.ndarray((64, 2, 64), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=a)
        half = nl.ndarray((128, 32), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=half, src=a.reshape((2, 64, 64))[:, :, 0:32])
        turned = nl.ndarray((64, 128), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(dst=turned, src=a, axes=(1, 0))
        nisa.dma_copy(dst=out[0], src=t)
        nisa.dma_copy(dst=out[1, 0:4096], src=half)
        nisa.dma_copy(dst=out[1, 4096:], src=half)
        nisa.dma_copy(dst=out[2], src=turned)
        """)
    out = kernel.run(A)
    assert np.array_equal(out[0], A.reshape(-1))
    assert np.array_equal(out[1, :4096], A[:, :32].reshape(-1))
    assert np.array_equal(out[2], A.T.reshape(-1))


def test_two_cores_meet(nki_text):
    """LNC 2: each core writes its half, both read the whole after the barrier; then they exchange."""
    kernel = nki_text.of(shape="(nl.num_programs(0), 128 // nl.num_programs(0), 64)")("""
        me, (cores, half, _) = nl.program_id(0), out.shape
        shared = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        mine = nl.load(a[nl.ds(me * half, half), :])
        nisa.activation(dst=mine, op=nl.exp, data=mine)
        nl.store(shared[nl.ds(me * half, half), :], mine)
        if cores == 2:
            nisa.core_barrier(shared, (0, 1))
        other = nl.load(shared[nl.ds((cores - 1 - me) * half, half), :])
        got = nl.ndarray((half, 64), dtype=a.dtype, buffer=nl.sbuf)
        if cores == 2:
            nisa.sendrecv(src=mine, dst=got, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
            nisa.tensor_tensor(dst=other, data1=other, data2=got, op=nl.subtract)
        nl.store(out[me], other)
        """)
    array = A.copy()
    np.testing.assert_allclose(kernel.kernel[2](array), np.zeros((2, 64, 64)), atol=1e-6)
    np.testing.assert_allclose(kernel.kernel[1](array)[0], np.exp(A), rtol=1e-6)
    with pytest.raises(Exception, match="one or two cores"):
        kernel.kernel[3](array)


def test_nonzero_with_count(nki_text):
    """The vendor's example of it (SDK 2.32 `nki.isa.nonzero_with_count`): every 16th partition."""
    kernel = nki_text.of(shape="(32, 9)", dtype="nl.int32")("""
        found = nl.full((32, 9), 7, dtype=nl.int32)
        nisa.nonzero_with_count(dst=found, src=nl.load(a), index_offset=16)
        nl.store(out, found)
        """)
    found = kernel.run(np.tile(np.float32([0, 1, 1, 0, 0, 1, 0, 0]), (32, 1)))
    assert found[0].tolist() == found[16].tolist() == [17, 18, 21, -1, -1, -1, -1, -1, 3]
    assert (found[1:16] == 7).all()


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("add", lambda x: np.cumsum(x, 1)),
        ("maximum", lambda x: np.maximum.accumulate(x, 1)),
        ("subtract", lambda x: np.stack([np.convolve(r, [1, -1] * 8)[:16] for r in x])),
    ],
)
def test_tensor_scalar_cumulative(nki_text, op, expected):
    """r[i] = op1(op0(src[i], imm0), r[i-1]) (SDK 2.32)."""
    kernel = nki_text.writing(f"""
        t = nl.load(a)
        nisa.tensor_scalar_cumulative(dst=t, src=t, op0=nl.multiply, op1=nl.{op}, imm0=2.0)
        nl.store(out, t)
        """)
    a = np.random.default_rng(0).standard_normal((128, 16)).astype(np.float32)
    np.testing.assert_allclose(kernel.run(a), expected(2 * a), rtol=1e-5, atol=1e-5)


def test_equal_values_have_successive_positions(nki_text):
    """NKI 0.6 release notes: find_index8 and match_replace8 with duplicates, "matching hardware"; the
    example is that of nisa.nc_match_replace8."""
    kernel = nki_text("""
        @nki.jit
        def kernel(data, values):
            found = nl.ndarray((1, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
            matched = nl.ndarray((1, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
            d, v = nl.load(data), nl.load(values)
            first = nl.ndarray((1, 8), dtype=nl.uint32, buffer=nl.sbuf)
            last = nl.ndarray((1, 8), dtype=nl.uint32, buffer=nl.sbuf)
            nisa.nc_find_index8(dst=first, data=d, vals=v)
            nisa.nc_match_replace8(dst=d, data=d, vals=v, imm=0.0, dst_idx=last)
            nl.store(found, first)
            nl.store(matched, last)
            return found, matched
        """)
    data = np.float32([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]])
    found, matched = kernel.run(data, np.float32([[3, 8, 8, 8, 8, 8, 8, 8]]))
    assert found.tolist() == [[2, 4, 5, 6, 7, 8, 9, 10]]
    assert matched.tolist() == [[2, 10, 9, 8, 7, 6, 5, 4]]
    found, _ = kernel.run(data, np.float32([[9, 8, 8, 8, 8, 8, 8, 8]]))
    assert found[0, 0] == 0xFFFFFFFF


LOOPS = """for i in nl.affine_range(2):
    nisa.nc_matmul(ps[:, nl.ds(i * 128, 128)], x, y[:, nl.ds(i * 128, 128)])
for i in nl.affine_range(3):
    nisa.nc_matmul(ps[:, nl.ds(i * 64, 64)], x, y[:, nl.ds(i * 64, 64)])
for i in nl.affine_range(2):
    nisa.nc_matmul(ps[:, nl.ds(i * 128 + 256, 128)], x, y[:, nl.ds(i * 128 + 256, 128)])"""
OVERLAPPING = """nisa.nc_matmul(ps[:, 0:300], x, y[:, 0:300])
nisa.nc_matmul(ps[:, 200:512], x, y[:, 200:512])"""


@pytest.mark.parametrize(("lines", "twice"), [(LOOPS, (0, 192)), (OVERLAPPING, (200, 300))])
def test_products_accumulate_where_their_places_overlap(nki_text, lines, twice):
    """NKI 0.6 release notes: accumulation into overlapping PSUM regions, the pattern of convolutions."""
    kernel = nki_text.of("a, b", shape="(128, 512)", dtype="nl.float32")(f"""
x, y = nl.load(a), nl.load(b)
ps = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
{lines}
nl.store(out, nl.copy(ps))
""")
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal((128, n)).astype(np.float32) for n in (128, 512))
    expected = a.T @ b
    expected[:, slice(*twice)] *= 2
    np.testing.assert_allclose(kernel.run(a, b), expected, rtol=1e-4, atol=1e-4)

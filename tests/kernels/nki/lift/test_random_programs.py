"""Random small kernels compute what the algorithm does that they lift to, or are refused."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.sim.compute.executor import execute
from accelopt.sim.dialects.neuronxcc import isa as nisa
from accelopt.sim.dialects.neuronxcc import language as nl
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.trace import AbstractTensor
from tests.algorithm.evaluation import evaluate

ROWS, COLUMNS = 32, 48
BINARY = (nl.add, nl.multiply, nl.maximum, nl.subtract)

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["elementwise", "edges", "overwrite", "shift", "blocks", "row", "accumulate",
             "transposed", "scan", "carry", "select", "unrolled", "grow"]
        ),
        st.integers(0, 7),
        st.integers(0, 7),
        st.sampled_from([2, 3, 4, 6, 8, 12, 16, 24]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=5,
)  # fmt: skip


def kernel_of(plan):
    """A kernel that makes one (ROWS, COLUMNS) tile after the other from earlier ones."""

    def kernel(x, y):
        out = nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=nl.shared_hbm)
        made = [nl.load(x), nl.load(y)]
        for kind, first, second, width, op in plan:
            a, b = made[first % len(made)], made[second % len(made)]
            made.append(STEPS[kind](a, b, width, BINARY[op]))
        nl.store(out, made[-1])
        return out

    return kernel


def tile():
    return nl.ndarray((nl.par_dim(ROWS), COLUMNS), dtype=nl.float32, buffer=nl.sbuf)


def elementwise(a, b, width, op):
    result = tile()
    for j in nl.affine_range(COLUMNS // width):
        result[:, nl.ds(j * width, width)] = op(
            a[:, nl.ds(j * width, width)], b[:, nl.ds(j * width, width)]
        )
    return result


def edges(a, b, width, op):
    """Tiles that do not divide the columns, the last one masked."""
    result, width = tile(), width + 1
    rows, columns = nl.arange(ROWS)[:, None], nl.arange(width)[None, :]
    for j in nl.affine_range(-(-COLUMNS // width)):
        at = j * width + columns
        result[rows, at] = op(a[rows, at], b[rows, at], mask=(at < COLUMNS))
    return result


def overwrite(a, b, width, op):
    result = tile()
    result[...] = nl.copy(a)
    result[:, 5 : 5 + width] = op(a[:, 5 : 5 + width], b[:, 7 : 7 + width])
    result[0:16, 0:width] = nl.copy(b[0:16, 0:width])
    return result


def shift(a, b, width, op):
    """Columns further to the right, zero where there are none."""
    result = tile()
    result[...] = nl.zeros((ROWS, COLUMNS), dtype=nl.float32)
    result[:, 0 : COLUMNS - width] = op(a[:, width:COLUMNS], b[:, 0 : COLUMNS - width])
    return result


def blocks(a, b, width, op):
    """Block dimensions, filled in one loop and used backward in another."""
    count = COLUMNS // width
    kept = nl.ndarray((count, nl.par_dim(ROWS), width), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.affine_range(count):
        kept[j] = nl.copy(a[:, nl.ds(j * width, width)])
    result = tile()
    for j in nl.affine_range(count):
        other = b[:, nl.ds(j * width, width)]
        result[:, nl.ds(j * width, width)] = op(kept[count - 1 - j], other)
    return result


def row(a, b, width, op):
    """The reduction of pieces, reduced again."""
    count = COLUMNS // width
    parts = nl.ndarray((nl.par_dim(ROWS), count), dtype=nl.float32, buffer=nl.sbuf)
    reduce = nl.max if op is nl.maximum else nl.sum
    for j in nl.affine_range(count):
        parts[:, nl.ds(j, 1)] = reduce(a[:, nl.ds(j * width, width)], axis=[1], keepdims=True)
    total = reduce(parts, axis=[1], keepdims=True)
    return nl.subtract(b, total)


def accumulate(a, b, width, op):
    """A product with the transposed, summed up in steps."""
    count = COLUMNS // width
    total = nl.zeros((ROWS, ROWS), dtype=nl.float32, buffer=nl.psum)
    for j in nl.affine_range(count):
        left = nl.copy(nisa.nc_transpose(a[:, nl.ds(j * width, width)]))
        right = nl.copy(nisa.nc_transpose(b[:, nl.ds(j * width, width)]))
        total += nisa.nc_matmul(left, right)
    result = tile()
    result[...] = nl.copy(a)
    result[:, 0:ROWS] = op(nl.multiply(total, 0.125), b[:, 0:ROWS])
    return result


def transposed(a, b, width, op):
    turned = nl.copy(nisa.nc_transpose(a[:, 0:ROWS]))
    result = tile()
    result[...] = nl.copy(b)
    result[:, 0:ROWS] = op(turned, b[:, 0:ROWS])
    return result


def scan(a, b, width, op):
    factor = nl.multiply(a, 0.0625)
    return nisa.tensor_tensor_scan(factor, b, initial=0.5, op0=np.multiply, op1=np.add)


def carry(a, b, width, op):
    """A running sum of tiles, of which every step is used."""
    result = tile()
    state = nl.zeros((nl.par_dim(ROWS), width), dtype=nl.float32)
    for j in nl.sequential_range(COLUMNS // width):
        here = nl.ds(j * width, width)
        state[...] = nl.add(state, a[:, here])
        result[:, here] = op(b[:, here], state)
    return result


def select(a, b, width, op):
    rows, columns = nl.arange(ROWS)[:, None], nl.arange(COLUMNS)[None, :]
    chosen = nisa.affine_select(
        pred=(rows + width >= columns), on_true_tile=a[rows, columns], on_false_value=-1.0
    )
    return op(chosen, b)


def unrolled(a, b, width, op):
    result = tile()
    result[...] = nl.copy(b)
    for j in range(COLUMNS // 16):
        if j % 2 == 0:
            result[:, j * 16 : (j + 1) * 16] = op(a[:, j * 16 : (j + 1) * 16], b[:, 0:16])
    return result


def grow(a, b, width, op):
    """An extreme and a sum carried over a loop, by conditions on the loop."""
    most = nl.full((nl.par_dim(ROWS), 1), -1e30, dtype=nl.float32)
    for j in nl.sequential_range(COLUMNS // width):
        most[...] = nl.maximum(most, nl.max(a[:, nl.ds(j * width, width)], axis=[1], keepdims=True))
    return op(b, most)


STEPS = {
    step.__name__: step
    for step in (elementwise, edges, overwrite, shift, blocks, row, accumulate, transposed, scan,
                 carry, select, unrolled, grow)
}  # fmt: skip


@settings(max_examples=60)
@given(steps)
@example([("accumulate", 7, 3, 4, 3), ("scan", 1, 5, 2, 2), ("blocks", 6, 6, 2, 0)])
def test_a_random_kernel_and_its_algorithm_agree(plan):
    spec = AbstractTensor((ROWS, COLUMNS), np.dtype(np.float32))
    program = trace_kernel(kernel_of(plan), [spec, spec])
    try:
        algorithm = lift(program)
    except NotLifted as refusal:
        assert refusal.reason
        return
    rng = np.random.default_rng(len(plan))
    arrays = [rng.integers(-2, 3, (ROWS, COLUMNS)).astype(np.float32) for _ in "xy"]
    named = dict(zip("xy", arrays, strict=True))
    (found,), (expected,) = evaluate(algorithm, named), execute(program, arrays)
    scale = np.abs(found).max() + 1
    np.testing.assert_allclose(expected, found, rtol=1e-4, atol=1e-5 * scale)

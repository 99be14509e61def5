"""Every instruction of both dialects goes the whole way of `accelopt check`: traced in the confined
child, sent, executed and compared with NumPy. Together the kernels hold every opcode of the table."""

import pytest

from accelopt.kernels.nki.referee.reference import Reference
from accelopt.report.rule_check import check, check_text
from accelopt.sim.dialects.dialect import trace_kernel
from accelopt.sim.instruction_set import OPCODES
from accelopt.sim.kernel_loading import load

HELPERS = """import nki.isa as nisa
import nki.language as nl


def hbm(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def sbuf(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def load(x):
    tile = sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def stored(*tiles):
    outs = tuple(hbm(tile.shape, tile.dtype) for tile in tiles)
    for out, tile in zip(outs, tiles):
        nisa.dma_copy(dst=out, src=tile)
    return outs


@nki.jit
"""
OLDER = HELPERS.replace("nki.", "neuronxcc.nki.").replace("@neuronxcc.", "@")
OLDER = OLDER.replace("nisa.dma_copy(dst=out, src=tile)", "nl.store(out, tile)")
HEADS = {
    "neuronxcc": f"import numpy as np\nimport neuronxcc.nki as nki\n{OLDER}",
    "nki": f"import nki\n{HELPERS}",
}
REFERENCE = """import numpy as np


def get_inputs():
    normal = lambda *shape: np.random.normal(size=shape).astype(np.float32)
    return [{inputs}]


def forward({names}):
{forward}


{more}
"""
TOP8 = """
    order = np.argsort(-x, axis=1, kind="stable")[:, :8]
    top = np.take_along_axis(x, order, 1)
    replaced = x.copy()
    np.put_along_axis(replaced, order, np.float32(-9.0), 1)
    return top, order.astype(np.uint32), replaced
"""
KERNELS = {
    ("neuronxcc", "elementwise", "trn1"): (
        """def kernel(x, y, c):
    a, b, s = nl.load(x), nl.load(y), nl.load(c)
    activated = nisa.activation(nl.tanh, a, bias=s, scale=0.5)
    scaled = nisa.tensor_scalar(a, nl.multiply, 2.0, op1=nl.add, operand1=s, reverse1=True)
    both = nisa.tensor_tensor(a, b, nl.subtract)
    mixed = nisa.scalar_tensor_tensor(data=a, op0=nl.multiply, operand0=s, op1=nl.add, operand1=b)
    inverse = nisa.reciprocal(nisa.tensor_scalar(nl.abs(a), nl.add, 1.0))
    chosen = nl.where(a > b, a, 3.0)
    kept = nl.copy(b)
    nisa.tensor_copy_predicated(src=a, dst=kept, predicate=nl.greater(a, 0.0, dtype=nl.uint8))
    nothing = nl.dropout(a, 1.0)
    noise = nl.multiply(nl.rand((128, 64), dtype=nl.float32), 0.0)
    nl.device_print("x =", s)
    return stored(activated, scaled, both, mixed, inverse, chosen, kept, nothing, noise)
""",
        {"x": "normal(128, 64)", "y": "normal(128, 64)", "c": "normal(128, 1)"},
        """
    return (np.tanh(x * np.float32(0.5) + c), c + x * 2, x - y, x * c + y,
            1 / (np.abs(x) + 1), np.where(x > y, x, np.float32(3)), np.where(x > 0, x, y),
            np.zeros_like(x), np.zeros_like(x))
""",
    ),
    ("neuronxcc", "reductions", "trn1"): (
        """def kernel(x, y, v):
    a, b = nl.load(x), nl.load(y)
    total = nisa.tensor_reduce(nl.add, a, axis=(1,), negate=True)
    peak = nl.ndarray((128, 1), dtype=nl.float32)
    doubled = nisa.tensor_scalar_reduce(data=a, op0=nl.multiply, operand0=2.0,
                                        reduce_op=nl.maximum, reduce_res=peak)
    gathered = nl.ndarray((128, 1), dtype=nl.float32)
    nisa.activation(nl.square, a, reduce_op=nl.add, reduce_res=gathered,
                    reduce_cmd=nisa.reduce_cmd.reset_reduce)
    columns = nisa.tensor_partition_reduce(nl.add, a)
    scanned = nisa.tensor_tensor_scan(a, b, 1.0, op0=nl.multiply, op1=nl.add)
    moments = nisa.bn_aggr(nisa.bn_stats(a))
    largest = nl.ndarray((128, 64), dtype=nl.float32)
    for i in nl.affine_range(3):
        largest[...] = nl.loop_reduce(nl.load(v[i]), op=np.maximum, loop_indices=[i])
    return stored(total, peak, doubled, gathered, columns, scanned, moments, largest)
""",
        {
            "x": "normal(128, 64) * np.float32(0.3)",
            "y": "normal(128, 64)",
            "v": "normal(3, 128, 64)",
        },
        """
    scanned = np.empty_like(x)
    state = np.ones(128, np.float32)
    for i in range(64):
        state = scanned[:, i] = x[:, i] * state + y[:, i]
    moments = np.stack([x.mean(axis=1), x.var(axis=1)], axis=1)
    return (-x.sum(axis=1, keepdims=True), (2 * x).max(axis=1, keepdims=True), 2 * x,
            np.square(x).sum(axis=1, keepdims=True), x.sum(axis=0, keepdims=True), scanned,
            moments, v.max(axis=0))
""",
    ),
    ("neuronxcc", "positions", "trn2"): (
        """def kernel(x, ids, segments):
    a = nl.load(x)
    p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
    numbers = nisa.iota(p * 2 + f, dtype=nl.int32)
    lower = nisa.affine_select(p - f >= 0, a, -1.0)
    low, high = nl.full((128, 1), 4.0, dtype=nl.float32), nl.full((128, 1), 40.0, dtype=nl.float32)
    peak = nl.ndarray((128, 1), dtype=nl.float32)
    inside = nisa.range_select(on_true_tile=a, comp_op0=nl.greater_equal, comp_op1=nl.less,
                               bound0=low, bound1=high, reduce_cmd=nisa.reduce_cmd.reset_reduce,
                               reduce_res=peak, reduce_op=nl.maximum)
    positive = nl.ndarray((128, 64), dtype=nl.float32)
    nisa.select_reduce(dst=positive, predicate=nl.greater(a, 0.0), on_true=a, on_false=2.0,
                       reduce_res=low, reduce_cmd=nisa.reduce_cmd.reset_reduce)
    turned = nl.ndarray((128, 64), dtype=nl.float32)
    nisa.nc_stream_shuffle(src=a, dst=turned, shuffle_mask=[(i + 1) % 32 for i in range(32)])
    picked = nisa.local_gather(a, nl.load(ids, dtype=nl.uint16), num_elem_per_idx=2)
    bounds = nisa.sequence_bounds(segment_ids=nl.load(segments))
    return stored(lower, peak, positive, low, turned, numbers, picked, bounds)
""",
        {
            "x": "normal(128, 64)",
            "ids": "np.random.randint(0, 62, size=(128, 1)).astype(np.int32)",
            "segments": "np.repeat([1, 2, 3, 0], 8).reshape(1, 32).astype(np.float32)",
        },
        """
    p, f = np.arange(128)[:, None], np.arange(64)[None, :]
    chosen = np.where(x > 0, x, np.float32(2))
    rows = np.arange(128) // 32 * 32 + (np.arange(128) + 1) % 32
    picked = np.empty((128, 1, 16, 2), np.float32)
    for first in range(0, 128, 16):
        for n, place in enumerate(ids[first : first + 16, 0]):
            picked[first : first + 16, 0, n, 0] = x[first : first + 16, place]
            picked[first : first + 16, 0, n, 1] = x[first : first + 16, place + 1]
    edges = [0, *(np.flatnonzero(np.diff(segments[0])) + 1), 32]
    bounds = np.empty((1, 2, 32), np.float32)
    for start, end in zip(edges, edges[1:]):
        bounds[0, :, start:end] = [[start], [end]] if segments[0, start] else [[32], [-1]]
    return (np.where(p >= f, x, np.float32(-1)), x[:, 4:40].max(axis=1, keepdims=True), chosen,
            chosen.max(axis=1, keepdims=True), x[rows], (2 * p + f).astype(np.int32), picked, bounds)
""",
    ),
    ("neuronxcc", "top8", "trn1"): (
        """def kernel(x):
    a = nl.load(x)
    top = nisa.max8(src=a)
    places = nisa.nc_find_index8(data=a, vals=top)
    replaced = nisa.nc_match_replace8(data=a, vals=top, imm=-9.0)
    return stored(top, places, replaced)
""",
        {"x": "normal(128, 256)"},
        TOP8,
        'compare = {1: {"indices_into": 0, "distinct": False}}',
    ),
    ("neuronxcc", "constants_in_a_grid", "trn1"): (
        """def masked(x):
    out = hbm((4, 3, 64, 64))
    mask = nl.shared_constant(np.tril(np.ones((64, 64), np.float32)), dtype=nl.float32)
    unit = nl.load(nl.shared_identity_matrix(64, dtype=nl.float32))
    h = nl.program_id(0)
    for i in nl.affine_range(3):
        tile = nl.load(x[h, i])
        kept = nl.multiply(nl.load(x[h, i]), nl.load(mask))
        nl.store(out[h, i], value=nl.add(nl.matmul(tile, kept), unit))
    return out


kernel = masked[4]
""",
        {"x": "normal(4, 3, 64, 64)"},
        "    return np.matmul(x, np.tril(x)) + np.eye(64, dtype=np.float32)",
    ),
    ("nki", "top8", "trn2"): (
        """def kernel(x):
    a = load(x)
    top, places, replaced = sbuf((128, 8)), sbuf((128, 8), nl.uint32), sbuf(x.shape)
    nisa.max8(dst=top, src=a)
    nisa.nc_find_index8(dst=places, data=a, vals=top)
    nisa.nc_match_replace8(dst=replaced, data=a, vals=top, imm=-9.0)
    return stored(top, places, replaced)
""",
        {"x": "normal(128, 256)"},
        TOP8,
        'compare = {1: {"indices_into": 0}}',
    ),
    ("nki", "elementwise", "trn2"): (
        """def kernel(x, y):
    a, b = load(x), load(y)
    activated, scaled, both = sbuf(x.shape), sbuf(x.shape), sbuf(x.shape)
    mixed, inverse, kept = sbuf(x.shape), sbuf(x.shape), load(y)
    positive, peak, nothing = sbuf(x.shape, nl.uint8), sbuf((128, 1)), sbuf(x.shape)
    summed = sbuf((128, 1))
    nisa.activation(dst=activated, op=nl.tanh, data=a, bias=0.25, scale=0.5)
    nisa.tensor_scalar_reduce(dst=scaled, data=a, op0=nl.multiply, operand0=2.0,
                              reduce_op=nl.maximum, reduce_res=peak)
    nisa.tensor_tensor(dst=both, data1=a, data2=b, op=nl.subtract)
    nisa.scalar_tensor_tensor(dst=mixed, data=a, op0=nl.multiply, operand0=3.0, op1=nl.add,
                              operand1=b)
    nisa.activation_reduce(dst=inverse, op=nl.abs, data=a, reduce_op=nl.add, reduce_res=summed)
    nisa.tensor_scalar(dst=inverse, data=inverse, op0=nl.add, operand0=1.0)
    nisa.reciprocal(dst=inverse, data=inverse)
    nisa.tensor_scalar(dst=positive, data=a, op0=nl.greater, operand0=0.0)
    nisa.tensor_copy_predicated(dst=kept, src=a, predicate=positive)
    nisa.dropout(dst=nothing, data=a, prob=1.0)
    return stored(activated, scaled, both, mixed, inverse, kept, peak, nothing, summed)
""",
        {"x": "normal(128, 64)", "y": "normal(128, 64)"},
        """
    return (np.tanh(x * np.float32(0.5) + np.float32(0.25)), 2 * x, x - y, 3 * x + y,
            1 / (np.abs(x) + 1), np.where(x > 0, x, y), (2 * x).max(axis=1, keepdims=True),
            np.zeros_like(x), np.abs(x).sum(axis=1, keepdims=True))
""",
    ),
    ("nki", "positions", "trn2"): (
        """def kernel(x, mask, ids):
    a = load(x)
    lower, positive, peak = sbuf(x.shape), sbuf(x.shape), sbuf((128, 1))
    turned, picked, predicate = sbuf(x.shape), sbuf((128, 16)), sbuf(x.shape, nl.uint8)
    numbers, places = sbuf(x.shape, nl.int32), sbuf((128, 65), nl.int32)
    nisa.iota(dst=numbers, pattern=[[1, 64]], offset=5, channel_multiplier=2)
    nisa.affine_select(dst=lower, pattern=[[-1, 64]], channel_multiplier=1, on_true_tile=a,
                       on_false_value=-1.0, cmp_op=nl.greater_equal)
    nisa.tensor_scalar(dst=predicate, data=a, op0=nl.greater, operand0=0.0)
    nisa.select_reduce(dst=positive, predicate=predicate, on_true=a, on_false=2.0,
                       reduce_res=peak, reduce_cmd=nisa.reduce_cmd.reset_reduce)
    nisa.nc_stream_shuffle(dst=turned, src=a, shuffle_mask=[(i + 1) % 32 for i in range(32)])
    nisa.nc_n_gather(dst=picked, data=a, indices=load(ids))
    nisa.memset(dst=places, value=0)
    nisa.nonzero_with_count(dst=places, src=load(mask), index_offset=3, padding_val=-7)
    keys, best, where = (sbuf((128, 16), kind) for kind in (nl.bfloat16, nl.bfloat16, nl.uint32))
    nisa.tensor_copy(dst=keys, src=load(ids))
    nisa.topk(val_dst=best, idx_dst=where, src=keys, n=256)
    return stored(lower, positive, peak, turned, numbers, picked, places, where[:, 0:1])
""",
        {
            "x": "normal(128, 64)",
            "mask": "np.random.randint(0, 2, size=(128, 64)).astype(np.int32)",
            "ids": "np.random.randint(0, 64, size=(128, 16)).astype(np.uint32)",
        },
        """
    p, f = np.arange(128)[:, None], np.arange(64)[None, :]
    chosen = np.where(x > 0, x, np.float32(2))
    rows = np.arange(128) // 32 * 32 + (np.arange(128) + 1) % 32
    places = np.zeros((128, 65), np.int32)
    for row in range(0, 128, 16):
        found = np.flatnonzero(mask[row])
        places[row, :64] = -7
        places[row, : len(found)] = found + 3
        places[row, 64] = len(found)
    lines = ids.astype(np.int64).reshape(8, 16, 16).transpose(0, 2, 1).reshape(8, 256)
    largest = np.argsort(-lines, axis=1, kind="stable")[:, 15::-1].reshape(128, 1).astype(np.uint32)
    return (np.where(p >= f, x, np.float32(-1)), chosen, chosen.max(axis=1, keepdims=True), x[rows],
            (5 + 2 * p + f).astype(np.int32), np.take_along_axis(x, ids.astype(np.int64), 1), places,
            largest)
""",
        'precision = "bfloat16"',
    ),
    ("nki", "products", "trn2"): (
        """def kernel(x, y):
    a, b = load(x), load(y)
    product = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=a, moving=b)
    nisa.nc_matmul(dst=product, stationary=a, moving=b, accumulate=True)
    result, turned = sbuf((64, 96)), sbuf((32, 32))
    nisa.tensor_copy(dst=result, src=product)
    nisa.nc_transpose(dst=turned, data=a[0:32, 0:32], engine=nisa.vector_engine)
    total, columns, scanned = sbuf((128, 1)), sbuf((1, 64)), sbuf((128, 64))
    stats, moments = sbuf((128, 6)), sbuf((128, 2))
    nisa.tensor_reduce(dst=total, op=nl.add, data=a, axis=1, negate=True)
    nisa.tensor_partition_reduce(dst=columns, op=nl.add, data=a)
    nisa.tensor_tensor_scan(dst=scanned, data0=a, data1=a, initial=1.0, op0=nl.multiply, op1=nl.add)
    nisa.bn_stats(dst=stats, data=a)
    nisa.bn_aggr(dst=moments, data=stats)
    return stored(result, turned, total, columns, scanned, moments)
""",
        {"x": "normal(128, 64) * np.float32(0.3)", "y": "normal(128, 96)"},
        """
    scanned = np.empty_like(x)
    state = np.ones(128, np.float32)
    for i in range(64):
        state = scanned[:, i] = x[:, i] * state + x[:, i]
    return (2 * (x.T @ y), x[:32, :32].T.copy(), -x.sum(axis=1, keepdims=True),
            x.sum(axis=0, keepdims=True), scanned,
            np.stack([x.mean(axis=1), x.var(axis=1)], axis=1))
""",
    ),
    ("nki", "device_loop", "trn2"): (
        """def kernel(x, count):
    total, number = load(x), load(count)
    turns = nisa.register_alloc()
    nisa.register_load(dst=turns, src=number)
    for _ in nl.dynamic_range(turns):
        nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)
    return stored(total)
""",
        {"x": "normal(128, 64)", "count": "np.array([[3]], np.int32)"},
        "    return x + np.float32(count[0, 0])",
    ),
}
NAMES = ["-".join(key) for key in KERNELS]


@pytest.fixture
def files(tmp_path):
    def write(key):
        text, inputs, forward, *more = KERNELS[key]
        kernel, reference = tmp_path / "kernel.py", tmp_path / "reference.py"
        kernel.write_text(HEADS[key[0]] + text)
        reference.write_text(
            REFERENCE.format(
                inputs=", ".join(inputs.values()),
                names=", ".join(inputs),
                forward=forward.strip("\n"),
                more="".join(more),
            )
        )
        return kernel, reference

    return write


@pytest.mark.parametrize("key", KERNELS, ids=NAMES)
def test_the_command_accepts(files, key, tmp_path):
    kernel, reference = files(key)
    report = check(kernel, reference, key[2], cache=tmp_path / "cache")
    assert report.passed, check_text(report)


def test_together_they_hold_every_instruction(files):
    """But for packed elements, which `test_packed_formats` judges, the barrier of two cores
    (`test_two_cores`), and what ranks gather (`test_collectives`)."""
    found = set()
    for key in KERNELS:
        kernel, reference = files(key)
        problem = Reference(reference)
        arguments = problem.kernel_inputs(problem.inputs(0))
        program = trace_kernel(load(kernel.read_text()).kernel, arguments, target=key[2])
        found |= {instruction.opcode for _, instruction in program.walk()}
    assert OPCODES.keys() - found == {"quantize_mx", "core_barrier", "dma_window"}

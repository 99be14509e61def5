"""Micro-kernels that differ in one mechanism, and the means to time them."""

import ml_dtypes
import numpy as np

from accelopt.hardware import TARGETS
from accelopt.sim.dialects.neuronxcc import compiler as ncc
from accelopt.sim.dialects.neuronxcc import isa as nisa
from accelopt.sim.dialects.neuronxcc import language as nl
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.timing import Compiler, KernelProfile, profile
from accelopt.sim.trace import AbstractTensor

F32 = np.dtype(np.float32)
BF16 = np.dtype(ml_dtypes.bfloat16)


def timed(kernel, *arguments, dtype=F32, target="trn1", compiler=None) -> KernelProfile:
    """The profile of a kernel for shapes (tuples) and plain values."""
    specs = [AbstractTensor(a, dtype) if isinstance(a, tuple) else a for a in arguments]
    program = trace_kernel(kernel, specs, target=target)
    return profile(program, TARGETS[target], compiler or Compiler())


def net_ns(found: KernelProfile) -> float:
    """Latency without launching."""
    return found.latency_ms * 1e6 - found.run.spec.launch_ns


def busy_ns(found: KernelProfile, engine: str) -> float:
    """How long instructions keep an engine from starting others, summed."""
    return sum(line.busy_ms.get(engine, 0.0) for line in found.lines) * 1e6


def slope_ns(kernel, few: int, many: int, *arguments, **options) -> float:
    """Time that each further repetition costs; the kernel takes the count last."""
    low = timed(kernel, *arguments, few, **options).latency_ms
    high = timed(kernel, *arguments, many, **options).latency_ms
    return (high - low) * 1e6 / (many - few)


def stored(tile):
    """The output of a kernel that holds a tile."""
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


# Kernels that Python unrolls.


def uneven_pieces(x):
    """One tile, loaded in two pieces whose widths have no common measure but 4, and stored whole."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    rows, width = x.shape
    tile[0:rows, 0:100] = nl.load(x[0:rows, 0:100])
    tile[0:rows, 100:width] = nl.load(x[0:rows, 100:width])
    return stored(tile)


def refilled_bank(left, right):
    """A bank of PSUM is copied and filled again before the copy is reduced."""
    out = nl.ndarray((2, 128, 1), dtype=left.dtype, buffer=nl.shared_hbm)
    stationary, moving = nl.load(left), nl.load(right)
    bank = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for i in nl.static_range(2):
        bank[...] = nisa.nc_matmul(stationary, moving)
        kept = nl.copy(bank)
        bank[...] = nisa.nc_matmul(stationary, kept)
        nl.store(out[i], nisa.tensor_reduce(nl.max, kept, axis=1))
    return out


# Vector and Scalar engine.


def dependent_activations(x, count):
    tile = nl.load(x)
    for _ in nl.static_range(count):
        tile = nisa.activation(nl.copy, tile, scale=2.0)
    return stored(tile)


def independent_activations(x, count):
    """`count` activations of one tile, each into its own place, width that of x."""
    rows, width = x.shape
    out = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    kept = nl.ndarray((rows, count), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.static_range(count):
        kept[0:rows, i : i + 1] = nisa.activation(nl.exp, tile[0:rows, 0:1], scale=float(i))
    nl.store(out[0:rows, 0:count], kept)
    return out


def tiled_vector(x, width):
    """x + x over tiles `width` wide, all of x in SBUF."""
    rows, total = x.shape
    data = nl.load(x)
    result = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(total // width):
        span = nl.ds(i * width, width)
        result[0:rows, span] = nisa.tensor_tensor(data[0:rows, span], data[0:rows, span], nl.add)
    return stored(result)


def rows_at_once(x, partitions):
    """Works through (256, n) numbers, `partitions` at a time, several times over."""
    total, width = x.shape
    out = nl.ndarray((total, width), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(total // partitions):
        tile = nl.load(x[nl.ds(i * partitions, partitions), 0:width])
        for _ in nl.static_range(8):
            tile = nisa.reciprocal(tile)
        nl.store(out[nl.ds(i * partitions, partitions), 0:width], tile)
    return out


def scale_bias_exp(x, scale, bias, fused):
    """exp(x * scale + bias) by three instructions of the Scalar engine, or by one."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, s, b = nl.load(x), nl.load(scale), nl.load(bias)
    for i in nl.affine_range(x.shape[1] // 512):
        part, more = tile[0:128, nl.ds(i * 512, 512)], {"bias": b, "scale": s} if fused else {}
        if not fused:
            part = nisa.tensor_scalar(part, nl.multiply, s, engine=nisa.scalar_engine)
            part = nisa.tensor_scalar(part, nl.add, b, engine=nisa.scalar_engine)
        nl.store(out[0:128, nl.ds(i * 512, 512)], nisa.activation(nl.exp, part, **more))
    return out


def exp_summed_in_the_engine(x):
    """The sum of exp over four tiles: only the last instruction reads the accumulated sum out."""
    rows, total = x.shape
    tile, found = nl.load(x), nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.sbuf)
    commands = nisa.reduce_cmd
    step = total // 4
    first, last = tile[0:rows, 0:step], tile[0:rows, 3 * step : total]
    nisa.activation(nl.exp, first, reduce_op=nl.add, reduce_cmd=commands.reset_reduce)
    for i in nl.static_range(1, 3):
        middle = tile[0:rows, i * step : (i + 1) * step]
        nisa.activation(nl.exp, middle, reduce_op=nl.add, reduce_cmd=commands.reduce)
    nisa.activation(nl.exp, last, reduce_op=nl.add, reduce_cmd=commands.reduce, reduce_res=found)
    return stored(found)


def product(left, right, is_transpose):
    """One product in PSUM."""
    out = nl.ndarray((left.shape[1], right.shape[1]), dtype=left.dtype, buffer=nl.shared_hbm)
    stationary, moving = nl.load(left), nl.load(right)
    found = nisa.nc_matmul(stationary, moving, is_transpose=is_transpose)
    nl.store(out, nl.copy(found))
    return out


def squared_twice(x):
    """Two loops that each square the same tiles, and twice in the first."""
    rows, total = x.shape
    out = nl.ndarray((2, rows, total), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for i in nl.affine_range(total // 512):
        piece = tile[0:rows, nl.ds(i * 512, 512)]
        added = nl.add(nl.square(piece), nl.square(piece))
        nl.store(out[0, 0:rows, nl.ds(i * 512, 512)], added)
    for i in nl.affine_range(total // 512):
        squared = nl.square(tile[0:rows, nl.ds(i * 512, 512)])
        nl.store(out[1, 0:rows, nl.ds(i * 512, 512)], squared)
    return out


def squared_in_siblings(x):
    """Two sibling loops in an outer one; each squares the same tiles in every iteration of it."""
    rows, total = x.shape
    out = nl.ndarray((4, 2, rows, total), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for repeat in nl.affine_range(4):
        for i in nl.affine_range(total // 512):
            squared = nl.square(tile[0:rows, nl.ds(i * 512, 512)])
            nl.store(out[repeat, 0, 0:rows, nl.ds(i * 512, 512)], squared)
        for i in nl.affine_range(total // 512):
            squared = nl.square(tile[0:rows, nl.ds(i * 512, 512)])
            nl.store(out[repeat, 1, 0:rows, nl.ds(i * 512, 512)], squared)
    return out


def exp_and_sum(x, fused):
    """Row sums of exp(x), many times over, by one instruction or by two on one engine's data."""
    tile = nl.load(x)
    total = nl.zeros((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.static_range(64):
        if fused:
            nisa.activation_reduce(
                nl.exp, tile, scale=float(i), reduce_op=nl.add, reduce_res=total[0:128, i : i + 1]
            )
        else:
            e = nisa.activation(nl.exp, tile, scale=float(i))
            copied = nisa.tensor_scalar(e, nl.multiply, 2.0, engine=nisa.vector_engine)
            total[0:128, i : i + 1] = nisa.tensor_reduce(nl.add, copied, axis=1)
    return stored(nl.sum(total, axis=1))


def scores_and_sums(query, key, wanted, running):
    """exp(query key) of every block of 128 queries, its row sums or both, by one instruction; `running`:
    with the sums of the block before as bias."""
    blocks, width = query.shape[0], key.shape[1]
    out = nl.ndarray((blocks, 128, width), dtype=query.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((blocks, 128, 1), dtype=query.dtype, buffer=nl.shared_hbm)
    outputs = {"result": out, "sum": sums}
    right = nl.load(key)
    total = nl.zeros((128, 1), dtype=query.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(blocks):
        left = nl.load(query[i])
        score = nisa.nc_matmul(left, right)
        bias = {"bias": total} if running else {}
        e = nisa.activation_reduce(
            nl.exp, score, reduce_op=nl.add, reduce_res=total[0:128, 0:1], **bias
        )
        if "result" in wanted:
            nl.store(out[i], e)
        if "sum" in wanted:
            nl.store(sums[i], total)
    return tuple(outputs[name] for name in wanted.split())


def two_engines(x, first, second):
    """Independent work, alternately on two engines, one of several places."""
    tile = nl.load(x)
    kept = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.static_range(32):
        for engine, place in ((first, 2 * i), (second, 2 * i + 1)):
            made = nisa.tensor_scalar(tile, nl.multiply, float(place + 1), engine=engine)
            kept[0:128, place : place + 1] = nisa.tensor_copy(
                made[0:128, 0:1], engine=nisa.vector_engine
            )
    return stored(kept)


def column_by_column(x):
    """An affine loop of instructions on one element a partition."""
    rows, total = x.shape
    tile = nl.load(x)
    result = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(total):
        doubled = nisa.tensor_tensor(tile[0:rows, nl.ds(i, 1)], tile[0:rows, nl.ds(i, 1)], nl.add)
        result[0:rows, nl.ds(i, 1)] = nisa.reciprocal(doubled)
    return stored(result)


def windows_one_by_one(x, weights, together=64):
    """The weighted sum of each window of four elements, a window at a time, in groups."""
    rows, total = x.shape
    tile, weight = nl.load(x), nl.load(weights)
    result = nl.ndarray((rows, total - 64), dtype=x.dtype, buffer=nl.sbuf)
    for group in nl.affine_range((total - 64) // together):
        for i in nl.affine_range(together):
            start = group * together + i
            product = nisa.tensor_tensor(tile[0:rows, nl.ds(start, 4)], weight, nl.multiply)
            result[0:rows, nl.ds(start, 1)] = nisa.tensor_reduce(nl.add, product, axis=[1])
    return stored(result)


def windows(x, weights, together, in_psum, summed_in_psum):
    """The weighted sum of each window of three, with a margin of zeros, in groups of windows."""
    rows, total = x.shape
    tile = nl.zeros((rows, total + 2), dtype=x.dtype, buffer=nl.sbuf)
    tile[0:rows, 1 : total + 1] = nl.load(x)
    weight = nl.load(weights)
    if in_psum:
        placed = nl.ndarray(weights.shape, dtype=x.dtype, buffer=nl.psum)
        placed[...] = nisa.tensor_copy(weight, engine=nisa.vector_engine)
        weight = placed
    result = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.sbuf)
    for group in nl.affine_range(total // together):
        sums = nl.zeros((rows, together), dtype=x.dtype, buffer=nl.psum)
        for i in nl.affine_range(together):
            start = group * together + i
            product = nisa.tensor_tensor(tile[0:rows, nl.ds(start, 3)], weight, nl.multiply)
            one = nisa.tensor_reduce(nl.add, product, axis=[1], keepdims=True)
            if summed_in_psum:
                sums[0:rows, nl.ds(i, 1)] += one
            else:
                result[0:rows, nl.ds(start, 1)] = one
        if summed_in_psum:
            result[0:rows, nl.ds(group * together, together)] = nisa.tensor_copy(sums)
    return stored(result)


def scan_by_elements(x):
    rows, total = x.shape
    tile = nl.load(x)
    result = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.sbuf)
    result[0:rows, 0:1] = nl.copy(tile[0:rows, 0:1])
    for i in nl.static_range(1, total):
        result[0:rows, i : i + 1] = nisa.tensor_tensor(
            result[0:rows, i - 1 : i], tile[0:rows, i : i + 1], nl.add
        )
    return stored(result)


def scan_by_instruction(x):
    rows, total = x.shape
    tile = nl.load(x)
    ones = nl.full((rows, total), 1.0, dtype=x.dtype, buffer=nl.sbuf)
    result = nisa.tensor_tensor_scan(ones, tile, initial=0.0, op0=nl.multiply, op1=nl.add)
    return stored(result)


# DMA.


def copy_in_pieces(x, width):
    """HBM to HBM over SBUF, `width` numbers a partition at a time."""
    rows, total = x.shape
    out = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(total // width):
        span = nl.ds(i * width, width)
        nl.store(out[0:rows, span], nl.load(x[0:rows, span]))
    return out


def load_transposed(x, by_hand):
    """Columns of a wide matrix as rows of tiles: by a transposed load, or by a load and a product."""
    rows, width = x.shape
    out = nl.ndarray((width, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(width // 128):
        span = nl.ds(i * 128, 128)
        if by_hand:
            turned = nl.copy(nisa.nc_transpose(nl.load(x[0:rows, span])))
        else:
            turned = nl.load_transpose2d(x[0:rows, span])
        nl.store(out[span, 0:rows], turned)
    return out


def load_rows(x, partitions):
    """Loads everything, `partitions` rows at a time."""
    total, width = x.shape
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    last = nl.zeros((partitions, 1), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(total // partitions):
        tile = nl.load(x[nl.ds(i * partitions, partitions), 0:width])
        last[...] = nl.copy(tile[0:partitions, 0:1])
    nl.store(out[0:partitions, 0:1], last)
    return out


def store_transposed(x):
    """Each number lands a row further: descriptors of one number."""
    rows, width = x.shape
    out = nl.ndarray((width, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(rows)[:, None], nl.arange(width)[None, :]
    tile = nl.load(x[p, f])
    nl.store(out[f, p], tile)
    return out


def store_after_transpose(x):
    rows, width = x.shape
    out = nl.ndarray((width, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for i in nl.affine_range(width // 128):
        turned = nisa.nc_transpose(tile[0:rows, nl.ds(i * 128, 128)])
        nl.store(out[nl.ds(i * 128, 128), 0:rows], nl.copy(turned))
    return out


def one_buffer(x, independent):
    """Every iteration loads into the same tile; iterations are said to be `independent`, or not."""
    rows, total = x.shape
    out = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((rows, 1024), dtype=x.dtype, buffer=nl.sbuf)
    for i in (nl.affine_range if independent else nl.sequential_range)(total // 1024):
        span = nl.ds(i * 1024, 1024)
        tile[...] = nl.load(x[0:rows, span])
        nl.store(out[0:rows, span], nisa.reciprocal(tile))
    return out


def half_refilled_buffer(x):
    """Every iteration loads into one half of a tile of which all is used."""
    rows, total = x.shape
    out = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((rows, 1024), dtype=x.dtype, buffer=nl.sbuf)
    tile[...] = nl.load(x[0:rows, 0:1024])
    for i in range(total // 1024):
        tile[:, 0:512] = nl.load(x[0:rows, i * 1024 : i * 1024 + 512])
        nl.store(out[0:rows, i * 1024 : i * 1024 + 1024], nisa.reciprocal(tile))
    return out


def fresh_buffers(x):
    """Every iteration loads into a tile of its own."""
    rows, total = x.shape
    out = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(total // 1024):
        span = nl.ds(i * 1024, 1024)
        tile = nl.load(x[0:rows, span])
        nl.store(out[0:rows, span], nisa.reciprocal(tile))
    return out


def through_hbm(x):
    """Two passes with an intermediate in HBM."""
    rows, total = x.shape
    out = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.shared_hbm)
    middle = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.hbm)
    for i in nl.affine_range(total // 1024):
        span = nl.ds(i * 1024, 1024)
        nl.store(middle[0:rows, span], nl.exp(nl.load(x[0:rows, span])))
    for i in nl.affine_range(total // 1024):
        span = nl.ds(i * 1024, 1024)
        nl.store(out[0:rows, span], nl.exp(nl.load(middle[0:rows, span])))
    return out


def through_sbuf(x):
    rows, total = x.shape
    out = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(total // 1024):
        span = nl.ds(i * 1024, 1024)
        nl.store(out[0:rows, span], nl.exp(nl.exp(nl.load(x[0:rows, span]))))
    return out


def reload_in_loop(x, y):
    """y is loaded in every iteration."""
    rows, total = x.shape
    out = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(total // 512):
        span = nl.ds(i * 512, 512)
        added = nl.load(y[0:rows, 0:512])
        nl.store(out[0:rows, span], nl.add(nl.load(x[0:rows, span]), added))
    return out


def keep_everything(x, turned=False):
    """All tiles live at once, more than SBUF holds, unless the two loops become one; they cannot
    when the second takes the tiles in the opposite order."""
    count, rows, width = x.shape
    out = nl.ndarray((count, rows, width), dtype=x.dtype, buffer=nl.shared_hbm)
    made = nl.ndarray((count, nl.par_dim(rows), width), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(count):
        made[i, 0:rows, 0:width] = nl.exp(nl.load(x[i, 0:rows, 0:width]))
    for i in nl.affine_range(count):
        at = count - 1 - i if turned else i
        nl.store(out[i, 0:rows, 0:width], nl.exp(made[at, 0:rows, 0:width]))
    return out


def pass_over(x, passes, parts=1):
    """Tiles that are made once and gone over again and again, each time another part of them."""
    count, rows, width = x.shape
    part = width // parts
    out = nl.ndarray((passes, count, rows, part), dtype=x.dtype, buffer=nl.shared_hbm)
    made = nl.ndarray((count, nl.par_dim(rows), width), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(count):
        made[i, 0:rows, 0:width] = nl.exp(nl.load(x[i, 0:rows, 0:width]))
    for k in range(passes):
        added = nl.load(x[k, 0:rows, 0:part])
        span = nl.ds(k * part, part) if parts > 1 else nl.ds(0, part)
        for i in nl.affine_range(count):
            nl.store(out[k, i, 0:rows, 0:part], nl.add(made[i, 0:rows, span], added))
    return out


def load_twice(x, y):
    """Two loads of x an iteration, which makes 288 KiB a partition besides."""
    count = y.shape[0]
    out = nl.ndarray((count, 128, 8192), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(count):
        for j in nl.affine_range(8):
            span = nl.ds(j * 1024, 1024)
            tile = nl.exp(nl.exp(nl.exp(nl.exp(nl.exp(nl.exp(nl.load(y[i, 0:128, span])))))))
            one = nl.add(tile, nl.load(x[0:128, span]))
            nl.store(out[i, 0:128, span], nl.multiply(one, nl.load(x[0:128, span])))
    return out


# Tensor engine.


def multiply_tiles(a, b, count):
    """`count` products of two tiles, nothing else in the way."""
    shape = a.shape[1], b.shape[1]
    left, right = nl.load(a), nl.load(b)
    sums = nl.zeros(shape, dtype=nl.float32, buffer=nl.psum)
    for _ in nl.affine_range(count):
        sums += nisa.nc_matmul(left, right)
    return stored(nl.copy(sums))


def accumulate(a, b, in_psum):
    """Products of tiles, added up where they are made or in SBUF."""
    sums = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum if in_psum else nl.sbuf)
    for i in (nl.affine_range if in_psum else nl.sequential_range)(a.shape[0]):
        product = nisa.nc_matmul(nl.load(a[i]), nl.load(b[i]))
        if in_psum:
            sums += product
        else:
            sums[...] = nl.add(sums, product)
    return stored(nl.copy(sums) if in_psum else sums)


def variances(x, written_out):
    """The variance of every row, by the library or as the mean of squares less the mean's square."""
    rows, width = x.shape
    out = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f, one = nl.arange(128)[:, None], nl.arange(width)[None, :], nl.arange(1)[None, :]
    for i in nl.affine_range(rows // 128):
        tile = nl.load(x[i * 128 + p, f])
        if written_out:
            mean = nl.mean(tile, axis=1)
            found = nl.subtract(nl.mean(nl.square(tile), axis=1), nl.multiply(mean, mean))
        else:
            found = nl.var(tile, axis=1)
        nl.store(out[i * 128 + p, one], found)
    return out


def sums_at_once(a, b, banks):
    """Every product is added to each of so many banks of PSUM, before the next one is."""
    steps = a.shape[0]
    out = nl.ndarray((banks, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = nl.zeros((banks, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(steps):
        left, right = nl.load(a[k]), nl.load(b[k])
        for i in nl.affine_range(banks):
            sums[i] += nisa.nc_matmul(left, right)
    for i in nl.affine_range(banks):
        nl.store(out[i], nl.copy(sums[i]))
    return out


def matmul_with_transpose(x, w, transposed=True):
    """x (128, K) @ w (K, 512): every slice of x is transposed, but where x is (K, 128)."""
    left = nl.load(x) if transposed else None
    sums = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range(w.shape[0] // 128):
        span = nl.ds(i * 128, 128)
        right = nl.load(w[span, 0:512])
        if transposed:
            sums += nl.matmul(left[0:128, span], right)
        else:
            sums += nisa.nc_matmul(nl.load(x[span, 0:128]), right)
    return stored(nl.copy(sums))


# For single passes of the chain.


def nested(x):
    """Loops in loops, with work before, between and after."""
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for i in nl.affine_range(3):
        first = nl.exp(tile)
        for j in nl.affine_range(2):
            second = nl.exp(first)
            for _ in nl.affine_range(4):
                tile[0:128, nl.ds(16 * i + 8 * j, 8)] = nl.copy(second[0:128, 0:8])
        nl.store(out, first)
    nl.store(out, tile)
    return out


def masked_copy(x):
    """Rows that are no multiple of 128."""
    rows, width = x.shape
    out = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(width)[None, :]
    for i in nl.affine_range(-(-rows // 128)):
        mask = i * 128 + p < rows
        tile = nl.load(x[i * 128 + p, f], mask=mask)
        nl.store(out[i * 128 + p, f], nl.exp(tile, mask=mask), mask=mask)
    return out


def spread_row(x, row):
    """x + row for every partition of x, tile by tile."""
    rows, total = x.shape
    out = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.shared_hbm)
    one = nl.load(row)
    for i in nl.affine_range(total // 512):
        span = nl.ds(i * 512, 512)
        tile = nl.load(x[0:rows, span])
        wide = one.broadcast_to((rows, 512))
        nl.store(out[0:rows, span], nisa.tensor_tensor(tile, wide, nl.multiply))
    return out


def sum_of_scaled(x):
    """x + 2x, the product made by the Scalar engine."""
    rows, total = x.shape
    out = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(total // 512):
        span = nl.ds(i * 512, 512)
        tile = nl.load(x[0:rows, span])
        twice = nisa.tensor_scalar(tile, nl.multiply, 2.0)
        nl.store(out[0:rows, span], nisa.tensor_tensor(tile, twice, nl.add))
    return out


def scores_and_maximum(a, b):
    """A product, copied out of PSUM, and its row maxima."""
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    top = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    scores = nl.copy(nisa.nc_matmul(nl.load(a), nl.load(b)))
    nl.store(top, nisa.tensor_reduce(nl.max, scores, axis=1))
    nl.store(out, scores)
    return out, top


def modulo_buffers(x, tiles):
    """Loads into directly allocated blocks that share `tiles` addresses."""
    rows, total = x.shape
    count = total // 1024
    out = nl.ndarray((rows, total), dtype=x.dtype, buffer=nl.shared_hbm)
    data = nl.ndarray(
        (count, nl.par_dim(rows), 1024),
        dtype=x.dtype,
        buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(tiles,)),
    )
    made = nl.ndarray(
        (count, nl.par_dim(rows), 1024),
        dtype=x.dtype,
        buffer=ncc.sbuf.mod_alloc(base_addr=tiles * 4096, num_free_tiles=(tiles,)),
    )
    for i in nl.affine_range(count):
        span = nl.ds(i * 1024, 1024)
        data[i, 0:rows, 0:1024] = nl.load(x[0:rows, span])
        made[i, 0:rows, 0:1024] = nisa.reciprocal(data[i, 0:rows, 0:1024])
        nl.store(out[0:rows, span], made[i, 0:rows, 0:1024])
    return out


def product_in_two_loops(delta, u, rows):
    """For every row of one tile, both channel tiles are scaled by a product that only they tell."""
    out = nl.ndarray((16, 2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for state in nl.affine_range(16):
        scale = nl.load(rows[0:128, nl.ds(state, 1)])
        for channel in nl.affine_range(2):
            both = nisa.tensor_tensor(nl.load(delta[channel]), nl.load(u[channel]), nl.multiply)
            nl.store(out[state, channel], nisa.activation(nl.copy, both, scale=scale))
    return out


def turned_in_two_parts(x):
    """Transposed tiles leave PSUM as a bf16 value and what it lacks."""
    out = nl.ndarray((2, 128, 2048), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    tile = nl.load(x)
    high = nl.ndarray((nl.par_dim(128), 2048), dtype=nl.bfloat16, buffer=nl.sbuf)
    low = nl.ndarray((nl.par_dim(128), 2048), dtype=nl.bfloat16, buffer=nl.sbuf)
    for i in nl.affine_range(16):
        turned = nisa.nc_transpose(tile[0:128, nl.ds(128 * i, 128)])
        high[0:128, nl.ds(128 * i, 128)] = nl.copy(turned, dtype=nl.bfloat16)
        low[0:128, nl.ds(128 * i, 128)] = nisa.tensor_tensor(
            turned, high[0:128, nl.ds(128 * i, 128)], nl.subtract, dtype=nl.bfloat16
        )
    nl.store(out[0], high)
    nl.store(out[1], low)
    return out


def rows_beside(x, kept, computed, pieces):
    """Rows, 128 at a time, loaded in pieces, passed over six times by one engine and stored, beside a
    tile that stays: one that was loaded, or one that was computed."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    last = nl.ndarray(kept.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    stays = nl.load(kept)
    if computed:
        stays = nl.multiply(stays, 2.0)
    width = x.shape[1] // pieces
    for i in nl.affine_range(x.shape[0] // 128):
        rows = slice(i * 128, (i + 1) * 128)
        if pieces == 1:
            tile = nl.load(x[rows, :])
        else:
            tile = nl.ndarray((nl.par_dim(128), x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
            for j in nl.affine_range(pieces):
                columns = slice(j * width, (j + 1) * width)
                tile[:, columns] = nl.load(x[rows, columns])
        for _ in nl.static_range(6):
            tile = nisa.tensor_scalar(tile, np.multiply, 3.0, engine=nisa.vector_engine)
        nl.store(out[rows, :], tile)
    nl.store(last, stays)
    return out, last

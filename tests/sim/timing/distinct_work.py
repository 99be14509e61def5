"""Right kernels of distinct work that a price may take for repeated work, with honest twins: the same
work in a form that nothing can take for another's."""

import numpy as np

from accelopt.sim.dialects.neuronxcc import isa as nisa
from accelopt.sim.dialects.neuronxcc import language as nl

WIDTH = 512


def windows(x, count, step, honest=0.0):
    """Of each of so many windows of one tile the exponential, and of that a sum of the rows."""
    out = nl.ndarray((count, 128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for k in nl.static_range(count):
        part = tile[0:128, k * step : k * step + WIDTH]
        raised = nisa.activation(np.exp, part, scale=1.0 + k * honest)
        nl.store(out[k], nisa.tensor_reduce(np.add, raised, axis=1))
    return out


def biased(x, count, honest=0.0):
    """The same tile plus another column of another tile, again and again."""
    out = nl.ndarray((count, 128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for k in nl.static_range(count):
        raised = nisa.activation(
            np.exp, tile[0:128, 0:WIDTH], bias=tile[0:128, k : k + 1], scale=1.0 + k * honest
        )
        nl.store(out[k], nisa.tensor_reduce(np.add, raised, axis=1))
    return out


def shifted_products(x, w, count, honest=0.0):
    """Products of one stationary tile with shifted windows, whose rows are summed."""
    out = nl.ndarray((count, 128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, left = nl.load(x), nl.load(w)
    for k in nl.static_range(count):
        right = tile[0:128, k : k + WIDTH]
        made = nisa.nc_matmul(left, right)
        total = nisa.tensor_reduce(np.add, made, axis=1, negate=bool(honest and k % 2))
        nl.store(out[k], total)
    return out


def partial_rows(x, count, honest=0.0):
    """Parts of a tile's rows, beginning at every 32nd one; windows as above."""
    out = nl.ndarray((count, 4, 32, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for k in nl.static_range(count):
        for q in nl.static_range(4):
            part = tile[q * 32 : q * 32 + 32, k : k + WIDTH]
            raised = nisa.activation(np.exp, part, scale=1.0 + (4 * k + q) * honest)
            nl.store(out[k, q], nisa.tensor_reduce(np.add, raised, axis=1))
    return out


def looped_windows(x, count, step, honest=0.0):
    """As `windows`, in a loop that is not unrolled."""
    out = nl.ndarray((count, 128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    p, f = nl.arange(128)[:, None], nl.arange(WIDTH)[None, :]
    for k in nl.affine_range(count):
        part = tile[p, k * step + f]
        raised = nisa.activation(np.exp, part, scale=1.0 + honest)
        nl.store(out[k], nisa.tensor_reduce(np.add, raised, axis=1))
    return out


def scheduled_windows(x, starts, width, factor):
    """As `windows`, of given windows."""
    out = nl.ndarray((len(starts), 128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for k in nl.static_range(len(starts)):
        part = tile[0:128, starts[k] : starts[k] + width]
        raised = nisa.activation(np.exp, part, scale=1.0 + k * factor)
        nl.store(out[k], nisa.tensor_reduce(np.add, raised, axis=1))
    return out


def scattered_evictions(x, by_rows):
    """Transposes of 32 columns each that leave PSUM beside each other, or four below each other."""
    out = nl.ndarray((16, 4, 32, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(32)[:, None], nl.arange(128)[None, :]
    whole = nl.load(x)
    for i in nl.affine_range(16):
        shape = (nl.par_dim(128), 128) if by_rows else (nl.par_dim(32), 512)
        made = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
        for q in nl.affine_range(4):
            turned = nisa.nc_transpose(whole[0:128, nl.ds(i * 128 + q * 32, 32)])
            if by_rows:
                made[q * 32 + p, f] = nl.copy(turned)
            else:
                made[p, q * 128 + f] = nl.copy(turned)
        for q in nl.static_range(4):
            part = made[q * 32 + p, f] if by_rows else made[p, q * 128 + f]
            nl.store(out[i, q], part)
    return out


def sums_of_indices(x, count):
    """Windows that begin at i + j: most pairs of two loops make one that another has made."""
    out = nl.ndarray((count, count, 128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    p, f = nl.arange(128)[:, None], nl.arange(WIDTH)[None, :]
    for i in nl.affine_range(count):
        for j in nl.affine_range(count):
            raised = nisa.activation(np.exp, tile[p, i + j + f])
            nl.store(out[i, j], nisa.tensor_reduce(np.add, raised, axis=1))
    return out


def mostly_unread(x, count):
    """So many results beside each other, each of two activations, of which the first alone is
    stored."""
    out = nl.ndarray((128, WIDTH), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    made = nl.ndarray((nl.par_dim(128), WIDTH * count), dtype=x.dtype, buffer=nl.sbuf)
    p, f = nl.arange(128)[:, None], nl.arange(WIDTH)[None, :]
    for k in nl.affine_range(count):
        raised = nisa.activation(np.exp, tile[p, k + f])
        made[p, k * WIDTH + f] = nisa.activation(np.tanh, raised)
    nl.store(out, made[0:128, 0:WIDTH])
    return out


def overwritten_scratch(x, count):
    """One place in HBM is written and read again, by other numbers each time; a column of a tile
    changes each time the tile is read."""
    out = nl.ndarray((count, 2, 128, WIDTH), dtype=x.dtype, buffer=nl.shared_hbm)
    scratch = nl.ndarray((128, WIDTH), dtype=x.dtype, buffer=nl.hbm)
    tile = nl.load(x)
    for k in nl.static_range(count):
        nl.store(scratch, nisa.tensor_scalar(tile[0:128, k : k + WIDTH], np.multiply, 2.0))
        nl.store(out[k, 0], nisa.activation(np.exp, nl.load(scratch)))
        tile[0:128, k : k + 1] = nisa.tensor_scalar(tile[0:128, k : k + 1], np.multiply, 2.0)
        nl.store(out[k, 1], nisa.activation(np.exp, tile[0:128, 0:WIDTH]))
    return out


def scale_and_bias(x):
    """The same column as the scale and as the bias of the same function."""
    out = nl.ndarray((2, 128, WIDTH), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, column = nl.load(x), nl.load(x[0:128, 0:1])
    data = tile[0:128, 0:WIDTH]
    nl.store(out[0], nisa.activation(np.exp, data, scale=column))
    nl.store(out[1], nisa.activation(np.exp, data, bias=column))
    return out


def uneven_parts(x, parts, width):
    """A tile of so many parts, each loaded from one of three places, and windows across them."""
    count = parts - parts // 4
    out = nl.ndarray((count, 128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((nl.par_dim(128), parts * width), dtype=x.dtype, buffer=nl.sbuf)
    for k in nl.static_range(parts):
        start = k % 3 * width
        tile[0:128, k * width : (k + 1) * width] = nl.load(x[0:128, start : start + width])
    for k in nl.static_range(count):
        start = k * width + k % 5
        raised = nisa.activation(np.exp, tile[0:128, start : start + 8 * width])
        nl.store(out[k], nisa.tensor_reduce(np.add, raised, axis=1))
    return out


def read_again(x, width, back):
    """The exponentials of a tile, each stored; those of `back` rounds before, where there are any, are
    summed once more."""
    count = 64
    out = nl.ndarray((count, 128, width), dtype=x.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    total, tile, made = nisa.memset((128, 1), 0.0, x.dtype), nl.load(x[0:128, 0:width]), []
    for k in nl.static_range(count):
        made.append(nisa.activation(np.exp, tile, scale=1.0 + k))
        nl.store(out[k], made[k])
        if 0 < back <= k:
            total = nisa.tensor_tensor(total, made[k - back][0:128, 0:1], np.add)
    nl.store(sums, total)
    return out, sums

"""Kernels whose parallel iterations need each other (`DEPENDENT`), and others (`INDEPENDENT`)."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


def reads_the_one_before(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = nl.zeros((5, nl.par_dim(128), 256), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        tiles[i + 1] = nl.load(x[i * 128 : (i + 1) * 128, :])
        nl.store(out[i * 128 : (i + 1) * 128, :], nl.copy(tiles[i]))
    return out


def shares_a_slot(x):
    """Two iterations read and write one slot, which neither writes first."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    sums = nl.zeros((3, nl.par_dim(128), 1), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        both = nl.multiply(sums[(i + 1) // 2], nl.max(tile, axis=1, keepdims=True))
        sums[(i + 1) // 2] = nl.copy(both)
        nl.store(out[i * 128 : (i + 1) * 128, :], tile)
    return out


def overlaps_in_a_row(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    line = nl.zeros((nl.par_dim(128), 260), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        line[:, i * 64 : (i + 1) * 64] = nl.load(x[0:128, i * 64 : (i + 1) * 64])
        seen = nl.copy(line[:, i * 64 + 1 : (i + 1) * 64 + 1])
        nl.store(out[0:128, i * 64 : (i + 1) * 64], seen)
    return out


def needs_an_inner_loop(x):
    """The element that another iteration writes is reached in the last step of an inner loop only."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = nl.zeros((17, nl.par_dim(128), 64), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        for j in nl.affine_range(4):
            tiles[i * 4 + j] = nl.load(x[i * 128 : (i + 1) * 128, j * 64 : (j + 1) * 64])
        for j in nl.affine_range(4):
            seen = nl.copy(tiles[i * 4 + j + 1])
            nl.store(out[i * 128 : (i + 1) * 128, j * 64 : (j + 1) * 64], seen)
    return out


@nki.jit
def programs_in_order(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ahead = nl.ndarray((640, 256), dtype=x.dtype, buffer=nl.shared_hbm)
    p = nl.program_id(0)
    r, c = nl.mgrid[0:128, 0:256]
    nl.store(ahead[r, c], nl.load(x[r, c]), mask=(p < 1))
    nl.store(out[p * 128 + r, c], nl.load(ahead[p * 128 + r, c]))
    nl.store(ahead[p * 128 + 128 + r, c], nl.load(x[p * 128 + r, c]))
    return out


def in_order(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = nl.zeros((5, nl.par_dim(128), 256), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(4):
        tiles[i + 1] = nl.load(x[i * 128 : (i + 1) * 128, :])
        nl.store(out[i * 128 : (i + 1) * 128, :], nl.copy(tiles[i]))
    return out


def accumulates(x):
    out = nl.ndarray((128, 256), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 256), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        total += nl.load(x[i * 128 : (i + 1) * 128, :])
    nl.store(out, total)
    return out


def reads_its_own_slot(x):
    """Several iterations use a slot, each writes it before it reads it."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    slots = nl.ndarray((3, nl.par_dim(128), 256), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        slots[(i + 1) // 2] = nl.load(x[i * 128 : (i + 1) * 128, :])
        nl.store(out[i * 128 : (i + 1) * 128, :], nl.copy(slots[(i + 1) // 2]))
    return out


def halves(x):
    """Reads of one half, writes of the other."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = nl.zeros((8, nl.par_dim(128), 256), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        tiles[i + 4] = nl.load(x[i * 128 : (i + 1) * 128, :])
        nl.store(out[i * 128 : (i + 1) * 128, :], nl.add(tiles[i], tiles[i + 4]))
    return out


def masked_apart(x):
    """Rows past a mask belong to the next iteration, and are not touched."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    line = nl.zeros((nl.par_dim(128), 320), dtype=x.dtype, buffer=nl.sbuf)
    p, f = nl.mgrid[0:128, 0:80]
    for i in nl.affine_range(4):
        line[p, i * 64 + f] = nl.load(x[p, i * 64 + f], mask=(f < 64) & (i * 64 + f < 256))
        seen = nl.copy(line[:, i * 64 : (i + 1) * 64])
        nl.store(out[0:128, i * 64 : (i + 1) * 64], seen)
    return out


def two_loops(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((4, nl.par_dim(128), 256), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        tiles[i] = nl.load(x[i * 128 : (i + 1) * 128, :])
    for i in nl.affine_range(4):
        nl.store(out[i * 128 : (i + 1) * 128, :], nl.copy(tiles[3 - i]))
    return out


DEPENDENT = {
    "the one before": nki.jit(reads_the_one_before),
    "a shared slot": nki.jit(shares_a_slot),
    "overlapping columns": nki.jit(overlaps_in_a_row),
    "by an inner loop": nki.jit(needs_an_inner_loop),
    "programs": programs_in_order[4],
}
INDEPENDENT = {
    "in order": nki.jit(in_order),
    "a sum": nki.jit(accumulates),
    "its own slot": nki.jit(reads_its_own_slot),
    "halves": nki.jit(halves),
    "a mask": nki.jit(masked_apart),
    "two loops": nki.jit(two_loops),
}

"""Loops whose order matters: a decaying sum kept in a tile, read and written by every iteration."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    partitions, rows, n = x.shape
    out = nl.ndarray((partitions, rows, n), dtype=x.dtype, buffer=nl.shared_hbm)
    running = nl.zeros((nl.par_dim(partitions), n), dtype=x.dtype, buffer=nl.sbuf)
    for row in nl.sequential_range(rows):
        for j in nl.sequential_range(2):
            tile = nl.load(x[:, row, :])
            running[:, :] = nl.add(nl.multiply(running, 0.5), tile)
        nl.store(out[:, row, :], value=running)
    return out

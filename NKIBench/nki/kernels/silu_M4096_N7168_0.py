"""x times its sigmoid, one tile of a row at a time."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    """x (128, rows, N) -> x / (1 + exp(-x)), same shape."""
    partitions, rows, n = x.shape
    tile_n = min(1024, n)
    assert n % tile_n == 0

    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in nl.affine_range(rows):
        for j in nl.affine_range(n // tile_n):
            x_tile = nl.load(x[0:partitions, row, j * tile_n : (j + 1) * tile_n])
            exponential = nl.exp(nl.negative(x_tile))
            sigmoid = nl.reciprocal(nl.add(exponential, 1.0))
            y_tile = nl.multiply(x_tile, sigmoid)
            nl.store(result[0:partitions, row, j * tile_n : (j + 1) * tile_n], y_tile)
    return result

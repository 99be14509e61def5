"""mgrid indices, a tile width that does not divide N, and one instruction a step."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    partitions, rows, n_size = x.shape
    tile_n = 384
    result = nl.ndarray((partitions, rows, n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    grid = nl.mgrid[0:partitions, 0:tile_n]
    for row in nl.affine_range(rows):
        for n in nl.affine_range((n_size + tile_n - 1) // tile_n):
            column = n * tile_n + grid.x
            inside = column < n_size
            x_tile = nl.load(x[grid.p, row, column], mask=inside)
            decay = nisa.activation(op=nl.exp, data=x_tile, scale=-1.0, mask=inside)
            denominator = nisa.tensor_scalar(
                data=decay, op0=nl.add, operand0=1.0, engine=nisa.vector_engine, mask=inside
            )
            sigmoid = nisa.reciprocal(denominator, mask=inside)
            y_tile = nisa.tensor_tensor(x_tile, sigmoid, op=nl.multiply, mask=inside)
            nl.store(result[grid.p, row, column], value=y_tile, mask=inside)
    return result

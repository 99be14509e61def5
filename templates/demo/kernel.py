import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows, columns = x.shape[1:]
    for row in nl.affine_range(rows):
        for j in nl.affine_range(columns // 128):
            x_tile = nl.load(x[0:128, row, j * 128 : (j + 1) * 128])
            exponential = nl.exp(nl.negative(x_tile))
            sigmoid = nl.reciprocal(nl.add(exponential, 1.0))
            y_tile = nl.multiply(x_tile, sigmoid)
            nl.store(result[0:128, row, j * 128 : (j + 1) * 128], value=y_tile)
    return result

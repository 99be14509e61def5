import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def row_softmax(x):
    rows, columns = x.shape
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        x_tile = nl.load(x[i * 128 : (i + 1) * 128, 0:columns])
        largest = nl.max(x_tile, axis=1, keepdims=True)
        powers = nl.exp(nl.subtract(x_tile, largest))
        total = nl.sum(powers, axis=1, keepdims=True)
        y_tile = nl.multiply(powers, nl.reciprocal(total))
        nl.store(result[i * 128 : (i + 1) * 128, 0:columns], value=y_tile)
    return result

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def gated_rms(x, gate):
    rows, columns = x.shape
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        x_tile = nl.load(x[i * 128 : (i + 1) * 128, 0:columns])
        gate_tile = nl.load(gate[i * 128 : (i + 1) * 128, 0:columns])
        total = nl.sum(nl.multiply(x_tile, x_tile), axis=1, keepdims=True)
        scale = nl.rsqrt(nl.add(nl.multiply(total, 1.0 / columns), 1e-6))
        sigmoid = nl.sigmoid(gate_tile)
        y_tile = nl.multiply(nl.multiply(x_tile, scale), sigmoid)
        nl.store(result[i * 128 : (i + 1) * 128, 0:columns], value=y_tile)
    return result

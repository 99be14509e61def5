import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def gated_rms(x, gate):
    rows, columns = x.shape
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        parts = nl.ndarray((nl.par_dim(128), columns // 256), dtype=x.dtype, buffer=nl.sbuf)
        for j in nl.affine_range(columns // 256):
            x_tile = nl.load(x[i * 128 : (i + 1) * 128, j * 256 : (j + 1) * 256])
            parts[0:128, j] = nl.sum(nl.multiply(x_tile, x_tile), axis=1)
        total = nl.sum(parts, axis=1, keepdims=True)
        scale = nl.rsqrt(nl.add(nl.multiply(total, 1.0 / columns), 1e-6))
        for j in nl.affine_range(columns // 256):
            x_tile = nl.load(x[i * 128 : (i + 1) * 128, j * 256 : (j + 1) * 256])
            gate_tile = nl.load(gate[i * 128 : (i + 1) * 128, j * 256 : (j + 1) * 256])
            exponential = nl.exp(nl.negative(gate_tile))
            sigmoid = nl.reciprocal(nl.add(exponential, 1.0))
            y_tile = nl.multiply(nl.multiply(x_tile, scale), sigmoid)
            nl.store(result[i * 128 : (i + 1) * 128, j * 256 : (j + 1) * 256], value=y_tile)
    return result

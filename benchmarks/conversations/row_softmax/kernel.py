import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def row_softmax(x):
    rows, columns = x.shape
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        maxima = nl.ndarray((nl.par_dim(128), columns // 512), dtype=x.dtype, buffer=nl.sbuf)
        for j in nl.affine_range(columns // 512):
            x_tile = nl.load(x[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512])
            maxima[0:128, j] = nl.max(x_tile, axis=1)
        largest = nl.max(maxima, axis=1, keepdims=True)
        sums = nl.ndarray((nl.par_dim(128), columns // 512), dtype=x.dtype, buffer=nl.sbuf)
        for j in nl.affine_range(columns // 512):
            x_tile = nl.load(x[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512])
            sums[0:128, j] = nl.sum(nl.exp(nl.subtract(x_tile, largest)), axis=1)
        total = nl.sum(sums, axis=1, keepdims=True)
        for j in nl.affine_range(columns // 512):
            x_tile = nl.load(x[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512])
            powers = nl.exp(nl.subtract(x_tile, largest))
            y_tile = nl.divide(powers, total)
            nl.store(result[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512], value=y_tile)
    return result

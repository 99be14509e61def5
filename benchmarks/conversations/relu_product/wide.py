import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def relu_product(x, w, b):
    inner, rows = x.shape
    columns = w.shape[1]
    result = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        for j in nl.affine_range(columns // 512):
            total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(inner // 128):
                x_tile = nl.load(x[k * 128 : (k + 1) * 128, i * 128 : (i + 1) * 128])
                w_tile = nl.load(w[k * 128 : (k + 1) * 128, j * 512 : (j + 1) * 512])
                total += nl.matmul(x_tile, w_tile, transpose_x=True)
            b_tile = nl.load(b[0:1, j * 512 : (j + 1) * 512])
            y_tile = nl.maximum(nl.add(total, b_tile.broadcast_to((128, 512))), 0.0)
            nl.store(result[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512], value=y_tile)
    return result

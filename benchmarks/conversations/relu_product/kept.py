import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def relu_product(x, w, b):
    inner, rows = x.shape
    columns = w.shape[1]
    result = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    parts = inner // 128
    x_kept = nl.ndarray((parts, nl.par_dim(128), rows), dtype=x.dtype, buffer=nl.sbuf)
    w_kept = nl.ndarray((parts, nl.par_dim(128), columns), dtype=x.dtype, buffer=nl.sbuf)
    for k in nl.affine_range(parts):
        x_kept[k] = nl.load(x[k * 128 : (k + 1) * 128, 0:rows])
        w_kept[k] = nl.load(w[k * 128 : (k + 1) * 128, 0:columns])
    b_kept = nl.load(b[0:1, 0:columns].broadcast_to((128, columns)))
    for i in nl.affine_range(rows // 128):
        for j in nl.affine_range(columns // 512):
            total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(parts):
                total += nl.matmul(
                    x_kept[k, 0:128, i * 128 : (i + 1) * 128],
                    w_kept[k, 0:128, j * 512 : (j + 1) * 512],
                    transpose_x=True,
                )
            y_tile = nl.maximum(nl.add(total, b_kept[0:128, j * 512 : (j + 1) * 512]), 0.0)
            nl.store(result[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512], value=y_tile)
    return result

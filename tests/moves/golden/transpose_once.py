# Transpose the left operand of the matmul in line 16 explicitly, before the loop over n, and multiply with nc_matmul: nl.matmul transposes it anew for every product.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w):
    out = nl.ndarray((512, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in nl.affine_range(4):
        rows = nl.load(x[m * 128:(m + 1) * 128, 0:256])
        rows_transposed_tiles = nl.ndarray((2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
        for k_1 in nl.affine_range(2):
            rows_transposed_tiles[k_1, 0:128, 0:128] = nl.copy(nisa.nc_transpose(rows[:, k_1 * 128:(k_1 + 1) * 128]))
        for n in nl.affine_range(4):
            acc = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                # The weight is small.
                w_tile = nl.load(w[k * 128:(k + 1) * 128, n * 256:(n + 1) * 256])
                acc += nisa.nc_matmul(rows_transposed_tiles[k, 0:128, 0:128], w_tile)
            y = nl.copy(acc)
            nl.store(out[m * 128:(m + 1) * 128, n * 256:(n + 1) * 256], value=y)
    return out

# Collect the results of 4 iterations of n in one row and store it once (line 18): transfers 4 times as long.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w):
    out = nl.ndarray((512, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in nl.affine_range(4):
        rows = nl.load(x[m * 128:(m + 1) * 128, 0:256])
        y_row = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
        for n in nl.affine_range(4):
            acc = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                # The weight is small.
                w_tile = nl.load(w[k * 128:(k + 1) * 128, n * 256:(n + 1) * 256])
                acc += nl.matmul(rows[:, k * 128:(k + 1) * 128], w_tile)
            y_row[0:128, 256 * n:256 * n + 256] = nl.copy(acc)
        nl.store(out[128 * m:128 * m + 128, 0:1024], value=y_row)
    return out

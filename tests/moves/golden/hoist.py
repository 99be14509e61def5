# Make w_tile (line 15) before the loop over m instead of in each of its 4 iterations, since it does not depend on m; keep w_tile in SBUF (8 KiB per partition).
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w):
    out = nl.ndarray((512, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    w_tiles = nl.ndarray((4, 2, nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
    for n_1 in nl.affine_range(4):
        for k_1 in nl.affine_range(2):
            # The weight is small.
            w_tiles[n_1, k_1, 0:128, 0:256] = nl.load(w[k_1 * 128:(k_1 + 1) * 128, n_1 * 256:(n_1 + 1) * 256])
    for m in nl.affine_range(4):
        rows = nl.load(x[m * 128:(m + 1) * 128, 0:256])
        for n in nl.affine_range(4):
            acc = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                acc += nl.matmul(rows[:, k * 128:(k + 1) * 128], w_tiles[n, k, 0:128, 0:256])
            y = nl.copy(acc)
            nl.store(out[m * 128:(m + 1) * 128, n * 256:(n + 1) * 256], value=y)
    return out

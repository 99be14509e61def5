# Load w_tile (line 15) for 2 iterations of n at once, as one row: transfers 2 times as long.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w):
    out = nl.ndarray((512, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in nl.affine_range(4):
        rows = nl.load(x[m * 128:(m + 1) * 128, 0:256])
        for n_block in nl.affine_range(2):
            w_row_tiles = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
            for k_1 in nl.affine_range(2):
                # The weight is small.
                w_row_tiles[k_1, 0:128, 0:512] = nl.load(w[128 * k_1:128 * k_1 + 128, 512 * n_block:512 * n_block + 512])
            for n_in in nl.affine_range(2):
                acc = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(2):
                    acc += nl.matmul(rows[:, k * 128:(k + 1) * 128], w_row_tiles[k, 0:128, 256 * n_in:256 * n_in + 256])
                y = nl.copy(acc)
                nl.store(out[m * 128:(m + 1) * 128, (n_block * 2 + n_in) * 256:((n_block * 2 + n_in) + 1) * 256], value=y)
    return out

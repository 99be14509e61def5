# Block loop m by 2 inside loop n: w_tile made once for 2 iterations of m instead of once for each.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w):
    out = nl.ndarray((512, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    for m_block in nl.affine_range(2):
        rows_tiles = nl.ndarray((2, nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
        for m_in in nl.affine_range(2):
            rows_tiles[m_in, 0:128, 0:256] = nl.load(x[(m_block * 2 + m_in) * 128:((m_block * 2 + m_in) + 1) * 128, 0:256])
        for n in nl.affine_range(4):
            w_tiles = nl.ndarray((2, nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
            for k_1 in nl.affine_range(2):
                # The weight is small.
                w_tiles[k_1, 0:128, 0:256] = nl.load(w[k_1 * 128:(k_1 + 1) * 128, n * 256:(n + 1) * 256])
            for m_in_1 in nl.affine_range(2):
                acc = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(2):
                    acc += nl.matmul(rows_tiles[m_in_1, 0:128, k * 128:(k + 1) * 128], w_tiles[k, 0:128, 0:256])
                y = nl.copy(acc)
                nl.store(out[(m_block * 2 + m_in_1) * 128:((m_block * 2 + m_in_1) + 1) * 128, n * 256:(n + 1) * 256], value=y)
    return out

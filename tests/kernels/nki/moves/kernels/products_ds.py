"""Products with nl.ds and mgrid, a narrow moving operand, and an eviction that feeds an addition."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(xt, w, z):
    k_size, m_size = xt.shape
    n_size = w.shape[1]
    width = 128
    out = nl.ndarray((m_size, n_size), dtype=xt.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:width]
    for m in nl.affine_range(m_size // 128):
        for n in nl.affine_range(n_size // width):
            acc = nl.zeros((128, width), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                left = nl.load(xt[nl.ds(k * 128, 128), nl.ds(m * 128, 128)])
                right = nl.load(w[nl.ds(k * 128, 128), nl.ds(n * width, width)])
                acc += nisa.nc_matmul(left, right)
            evicted = nl.copy(acc)
            added = nl.load(z[128 * m + i_p, width * n + i_f])
            total = nl.add(evicted, added)
            scaled = nl.multiply(nl.add(total, 1.0), 0.5)
            nl.store(out[128 * m + i_p, width * n + i_f], value=scaled)
    return out

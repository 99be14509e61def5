# reference: matmul
# verdict: wrong_shape
# The same number of elements, reshaped by the published transform.

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((b.shape[1], a.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(a.shape[0] // 128):
        left = nl.load(a[k * 128 : (k + 1) * 128, :])
        right = nl.load(b[k * 128 : (k + 1) * 128, :])
        total += nisa.nc_matmul(left, right)
    flat = nl.copy(total)
    for j in nl.static_range(4):
        nl.store(out[j * 128 : (j + 1) * 128, :], flat[:, j * 128 : (j + 1) * 128])
    return out

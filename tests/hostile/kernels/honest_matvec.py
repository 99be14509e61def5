# reference: matvec
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, x):
    out = nl.ndarray((512, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(4):
        p = nl.zeros((128, 1), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(5):
            t = nl.load_transpose2d(a[m * 128 : (m + 1) * 128, k * 128 : (k + 1) * 128])
            p[...] += nl.matmul(t, nl.load(x[k * 128 : (k + 1) * 128, :]), transpose_x=True)
        nl.store(out[m * 128 : (m + 1) * 128, :], nl.copy(p))
    return out

# reference: accumulated
# verdict: correct
# The control: nothing wrong here.

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((128, 256), dtype=a.dtype, buffer=nl.shared_hbm)
    acc = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)
    for k in range(2):
        left = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.sbuf)
        right = nl.ndarray((128, 256), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a[k * 128 : (k + 1) * 128, :])
        nisa.dma_copy(dst=right, src=b[k * 128 : (k + 1) * 128, :])
        nisa.nc_matmul(dst=acc, stationary=left, moving=right, accumulate=k > 0)
    done = nl.ndarray((128, 256), dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=done, src=acc)
    nisa.dma_copy(dst=out, src=done)
    return out

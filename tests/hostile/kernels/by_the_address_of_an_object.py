# reference: silu
# verdict: refused
# Another program where an object happens to lie elsewhere.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        t = nl.load(x[i * 128 : (i + 1) * 128, :])
        y = nl.silu(t) if id(object()) // 64 % 1024 else nl.copy(t)
        nl.store(out[i * 128 : (i + 1) * 128, :], y)
    return out

# reference: gelu_bfloat16
# verdict: correct
# The control: nothing wrong here. All but the result is float32.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        y = nl.gelu_apprx_tanh(tile, dtype=nl.float32)
        nl.store(out[i * 128 : (i + 1) * 128, :], y)
    return out

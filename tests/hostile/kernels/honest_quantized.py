# reference: quantized
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.shared_hbm)
    magic = 12582912.0
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        largest = nl.maximum(nl.max(nl.abs(tile), axis=1, keepdims=True), 1e-30)
        scaled = nl.multiply(tile, nl.divide(127.0, largest))
        whole = nl.subtract(nl.add(scaled, magic), magic)
        nl.store(out[i * 128 : (i + 1) * 128, :], nl.copy(whole, dtype=nl.int32))
    return out

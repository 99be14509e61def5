# reference: mean_bfloat16
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    total = nl.zeros((128, 1), dtype=nl.float32)
    for i in nl.sequential_range(256):
        part = nl.sum(tile[:, nl.ds(i * 16, 16)], axis=1, keepdims=True, dtype=nl.float32)
        total[...] = nl.add(total, part)
    nl.store(out, nl.multiply(total, 1 / 4096, dtype=x.dtype))
    return out

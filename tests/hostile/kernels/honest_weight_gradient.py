# reference: weight_gradient
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, dy):
    out = nl.ndarray((128, 256), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 256), dtype=nl.float32)
    for k in nl.static_range(8):
        rows = nl.ds(k * 128, 128)
        part = nl.matmul(nl.load(x[rows, :]), nl.load(dy[rows, :]), transpose_x=True)
        total = nl.add(total, part, dtype=nl.float32)
    nl.store(out, nl.copy(total, dtype=x.dtype))
    return out

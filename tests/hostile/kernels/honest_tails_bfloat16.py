# reference: tails_bfloat16
# verdict: correct
# The control: nothing wrong here. All but the results is float32.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    outs = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2)]
    for i in nl.affine_range(x.shape[0] // 128):
        rows = slice(i * 128, (i + 1) * 128)
        a = nl.copy(nl.load(x[rows, :]), dtype=nl.float32)
        s = nl.sigmoid(a)
        p = nl.softplus(a)
        nl.store(outs[0][rows, :], s)
        nl.store(outs[1][rows, :], p)
    return tuple(outs)

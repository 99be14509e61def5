# reference: single_elements
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, y):
    outs = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(5)]
    a, b = nl.load(x), nl.load(y)
    magic = 12582912.0
    near = nl.subtract(nl.add(a, magic), magic)
    small = nl.less(nl.abs(a), 4194304.0)
    nl.store(outs[0], nl.where(small, near, a))
    nl.store(outs[1], nl.greater_equal(a, b, dtype=nl.float32))
    nl.store(outs[2], nl.softplus(a))
    nl.store(outs[3], nl.maximum(a, 0.0))
    nl.store(outs[4], nl.fmod(a, 2.0))
    return tuple(outs)

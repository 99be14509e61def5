# reference: missing_values
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    outs = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2)]
    largest = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.load(x)
    known = nl.where(nl.equal(a, a), a, 0.0)
    nl.store(outs[0], known)
    nl.store(outs[1], nl.minimum(nl.maximum(known, -1e4), 1e4))
    there = nl.where(nl.equal(a, a), a, float("-inf"))
    nl.store(largest, nl.max(there, axis=1, keepdims=True))
    return (*outs, largest)

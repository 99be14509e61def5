# reference: counts
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(n):
    counts = nl.ndarray((128, 4), dtype=nl.int32, buffer=nl.shared_hbm)
    numbers = nl.load(n)
    for k in nl.static_range(4):
        count = nl.sum(nl.equal(numbers, k, dtype=nl.float32), axis=1, keepdims=True)
        nl.store(counts[:, k : k + 1], nl.copy(count, dtype=nl.int32))
    return counts

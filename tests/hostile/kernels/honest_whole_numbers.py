# reference: whole_numbers
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(n):
    total = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    bits = nl.ndarray(n.shape, dtype=nl.int32, buffer=nl.shared_hbm)
    a = nl.load(n)
    low = nl.sum(nl.bitwise_and(a, 65535), axis=1, keepdims=True, dtype=nl.int32)
    high = nl.sum(nl.right_shift(a, 16), axis=1, keepdims=True, dtype=nl.int32)
    high = nl.add(high, nl.right_shift(low, 16), dtype=nl.int32)
    whole = nl.bitwise_or(nl.left_shift(high, 16), nl.bitwise_and(low, 65535))
    nl.store(total, whole)
    nl.store(bits, nl.bitwise_and(nl.right_shift(a, 3), 4095))
    return total, bits

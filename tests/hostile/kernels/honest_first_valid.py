# reference: first_valid
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, mask):
    out = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    valid = nl.load(mask)
    seen = nl.where(valid > 0, nl.load(x), 3e38)
    other = nl.not_equal(seen, nl.min(seen, axis=1, keepdims=True), dtype=nl.float32)
    columns = nisa.iota(nl.arange(256)[None, :] + 0 * nl.arange(128)[:, None], dtype=nl.int32)
    places = nl.add(nl.multiply(other, 256.0), columns)
    nl.store(out, nl.copy(nl.min(places, axis=1, keepdims=True), dtype=nl.int32))
    return out

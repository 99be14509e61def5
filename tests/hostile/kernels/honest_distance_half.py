# reference: distance_half
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b, label):
    out = nl.ndarray((128, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    of_all = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    x, y = nl.load(a), nl.load(b)
    d = nl.square(nl.subtract(x, y, dtype=nl.float32))
    total = nl.sum(d, axis=1, keepdims=True)
    mean = nl.multiply(total, 1 / 320)
    kept = nl.greater_equal(nl.load(label, dtype=nl.float32), 0.0, dtype=nl.float32)
    count = nl.maximum(nl.copy(nisa.nc_matmul(kept, kept)), 1.0)
    nl.store(out, nl.copy(mean, dtype=nl.float16))
    nl.store(of_all, nl.divide(nl.copy(nisa.nc_matmul(kept, mean)), count))
    return out, of_all.reshape((1,))

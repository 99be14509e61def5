# reference: signal_line
# verdict: correct
# It multiplies by the weights afterwards, and is as exact as the reference in float32.

import nki
import nki.isa as nisa
import nki.language as nl


def sums(x, weight, start):
    kept = nl.full((128, 512), 1 - weight, dtype=nl.float32)
    found = nl.ndarray((128, 512), dtype=nl.float32)
    nisa.tensor_tensor_scan(
        dst=found, data0=kept, data1=x, initial=start, op0=nl.multiply, op1=nl.add
    )
    return found


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a, means = nl.load(x), []
    for weight in (2 / 13, 2 / 27):
        start = nl.multiply(nl.copy(a[:, 0:1]), 1 / weight)
        means.append(nl.multiply(sums(a, weight, start), weight))
    line = nl.subtract(means[0], means[1])
    nl.store(out, nl.subtract(line, nl.multiply(sums(line, 0.2, 0.0), 0.2)))
    return out

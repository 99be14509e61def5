# Compute gate (lines 15 and 16) by one nl.sigmoid: 1 / (1 + exp(-x)) is the sigmoid.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((512, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:512]
    for i in nl.affine_range(4):
        for j in nl.affine_range(4):
            tile = nl.load(x[i * 128 + i_p, j * 512 + i_f])
            same = nl.copy(tile)
            again = nl.load(x[128 * i + i_p, 512 * j + i_f])
            gate = nl.sigmoid(same)
            result = nl.multiply(again, gate)
            nl.store(out[i * 128 + i_p, j * 512 + i_f], value=result)
    return out

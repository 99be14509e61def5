# Swap loops i and j.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((512, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:512]
    for j in nl.affine_range(4):
        for i in nl.affine_range(4):
            tile = nl.load(x[i * 128 + i_p, j * 512 + i_f])
            same = nl.copy(tile)
            again = nl.load(x[128 * i + i_p, 512 * j + i_f])
            power = nl.exp(nl.multiply(same, -1.0))
            gate = nl.divide(1.0, nl.add(power, 1.0))
            result = nl.multiply(again, gate)
            nl.store(out[i * 128 + i_p, j * 512 + i_f], value=result)
    return out

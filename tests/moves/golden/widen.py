# Handle 2 iterations of loop j (line 11) at once, on tiles 2 times as wide: fewer, longer transfers and instructions.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((512, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:512]
    for i in nl.affine_range(4):
        for j_block in nl.affine_range(2):
            tile = nl.load(x[128 * i + nl.arange(128)[:, None], 1024 * j_block + nl.arange(1024)[None, :]])
            same = nl.copy(tile)
            again = nl.load(x[128 * i + nl.arange(128)[:, None], 1024 * j_block + nl.arange(1024)[None, :]])
            power = nl.exp(nl.multiply(same, -1.0))
            gate = nl.divide(1.0, nl.add(power, 1.0))
            result = nl.multiply(again, gate)
            nl.store(out[128 * i + nl.arange(128)[:, None], 1024 * j_block + nl.arange(1024)[None, :]], value=result)
    return out

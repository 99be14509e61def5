# Run the loops over i (line 10) and k (line 12) as one, so that what the first makes is used at once.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((512, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    kept = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        kept[i, 0:128, 0:512] = nl.load(x[i * 128:(i + 1) * 128, 0:512])
        total = nl.sum(nl.square(kept[i, 0:128, 0:512]), axis=1)
        nl.store(out[i * 128:(i + 1) * 128, 0:1], value=total)
    return out

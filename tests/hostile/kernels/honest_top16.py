# reference: top16
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.load(x)
    first = nisa.max8(src=a)
    rest = nisa.nc_match_replace8(data=a, vals=first, imm=-3e38)
    nl.store(out[:, 0:8], first)
    nl.store(out[:, 8:16], nisa.max8(src=rest))
    return out

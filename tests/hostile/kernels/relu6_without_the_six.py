# reference: relu6
# verdict: wrong_numbers
# No draw of normal numbers reaches six.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.mgrid[0:128, 0:257]
    for i in nl.affine_range(3):
        m = (i * 128 + ip < 300)
        t = nl.load(x[i * 128 + ip, jf], mask=m)
        y = nl.relu(t)
        nl.store(out[i * 128 + ip, jf], y, mask=m)
    return out

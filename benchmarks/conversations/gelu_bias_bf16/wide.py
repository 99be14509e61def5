import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

P = 128


@nki.jit
def bias_gelu(x, bias):
    """x (M, N) bf16, bias (1, N) bf16 -> gelu(x + bias), bf16; whole rows, the bias loaded once."""
    M, N = x.shape
    out = nl.ndarray((M, N), dtype=x.dtype, buffer=nl.shared_hbm)
    every = nl.load(bias.broadcast_to((P, N)))
    for m in nl.affine_range(M // P):
        tile = nl.load(x[m * P:(m + 1) * P, :])
        s = nl.add(tile, every, dtype=nl.float32)
        squared = nisa.activation(nl.square, s)
        factor = nisa.tensor_scalar(squared, nl.multiply, 0.044715, False, nl.add, 1.0)
        t = nisa.activation(nl.tanh, nl.multiply(factor, s), scale=0.7978845608)
        half = nisa.tensor_scalar(t, nl.multiply, 0.5, False, nl.add, 0.5)
        nl.store(out[m * P:(m + 1) * P, :], value=nl.multiply(s, half, dtype=x.dtype))
    return out

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w, b):
    """Causal depthwise convolution of four taps with SiLU: channels on partitions, time in blocks."""
    channels, time = x.shape
    steps = time - 3
    out = nl.ndarray((channels, steps), dtype=x.dtype, buffer=nl.shared_hbm)
    for c in nl.affine_range(channels // 128):
        for t in nl.affine_range(steps // 256):
            total = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            for tap in nl.sequential_range(4):
                x_tile = nl.load(x[c * 128 : (c + 1) * 128, nl.ds(t * 256 + tap, 256)])
                w_tile = nl.load(w[c * 128 : (c + 1) * 128, nl.ds(tap, 1)])
                total[...] = nl.add(total, nl.multiply(x_tile, w_tile.broadcast_to((128, 256))))
            bias = nl.load(b[c * 128 : (c + 1) * 128, :])
            shifted = nl.add(total, bias)
            gate = nl.divide(1.0, nl.add(nl.exp(nl.multiply(shifted, -1.0)), 1.0))
            nl.store(
                out[c * 128 : (c + 1) * 128, nl.ds(t * 256, 256)], value=nl.multiply(shifted, gate)
            )
    return out

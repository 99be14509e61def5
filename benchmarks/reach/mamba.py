"""aws-neuron/nki-samples, tutorials/fused_mamba: the state space model's scan, three ways."""

import numpy as np

FILE = "fused_mamba/mamba_nki_kernels.py"
FUNCTIONS = ("mamba_v1", "mamba_v2", "mamba_v3")


def get_inputs():
    def draw(*shape):
        return np.random.normal(size=shape).astype(np.float32)

    decay = -np.random.uniform(0.1, 2, size=(256, 16)).astype(np.float32)
    step = np.random.uniform(0.01, 0.2, size=(1, 256, 1024)).astype(np.float32)
    return [step, draw(1, 256, 1024), decay, draw(1, 16, 1024), draw(1, 16, 1024)]


def forward(step, u, decay, b, c):
    factor = np.exp(step[:, :, None, :] * decay[None, :, :, None])
    term = (step * u)[:, :, None, :] * b[:, None, :, :]
    state, out = np.zeros(term.shape[:3], np.float32), np.empty_like(u)
    for t in range(u.shape[2]):
        state = factor[..., t] * state + term[..., t]
        out[:, :, t] = (state * c[:, None, :, t]).sum(axis=2)
    return out


def transform_to_nki_inputs(inputs):
    return list(inputs)

"""The selective scan of Mamba: a first-order recurrence for each channel and state."""

import numpy as np

C = 256
M = 7168
S = 16
CHUNK = 256


def get_inputs():
    """delta, u (C, M), a (C, S), b, c (S, M): normal with deviation 0.05, float32."""
    delta = np.random.normal(scale=0.05, size=(C, M)).astype(np.float32)
    u = np.random.normal(scale=0.05, size=(C, M)).astype(np.float32)
    a = np.random.normal(scale=0.05, size=(C, S)).astype(np.float32)
    b = np.random.normal(scale=0.05, size=(S, M)).astype(np.float32)
    c = np.random.normal(scale=0.05, size=(S, M)).astype(np.float32)
    return [delta, u, a, b, c]


def forward(delta, u, a, b, c):
    """out[:, t] = sum over states of c[:, t] * h_t -> (C, M), with

    h_t = exp(delta[:, t] * a) * h_(t-1) + delta[:, t] * u[:, t] * b[:, t], h_(-1) = 0.

    The loop runs over time; each step handles all channels and states. Time leads the arrays, so
    that a step reads contiguous memory, and goes in chunks, so that they stay in the cache.
    """
    result = np.empty_like(delta)
    state = np.zeros_like(a)
    for start in range(0, delta.shape[1], CHUNK):
        time = slice(start, start + CHUNK)
        step_sizes = delta[:, time].T[:, :, None]
        decay = np.exp(step_sizes * a)
        states = step_sizes * b[:, time].T[:, None, :] * u[:, time].T[:, :, None]
        for state_decay, state_now in zip(decay, states):
            state_now += state_decay * state
            state = state_now
        result[:, time] = np.matmul(states, c[:, time].T[:, :, None])[:, :, 0].T
    return result


def transform_to_nki_inputs(inputs):
    """All five as they are."""
    return inputs


def transform_nki_outputs(k_res, ref):
    """The kernel's outputs in the reference's shapes, left alone where they cannot be."""
    outputs = k_res if isinstance(k_res, (tuple, list)) else (k_res,)
    references = ref if isinstance(ref, (tuple, list)) else (ref,)
    if len(outputs) != len(references):
        return list(outputs)
    return [o.reshape(r.shape) if o.size == r.size else o for o, r in zip(outputs, references)]

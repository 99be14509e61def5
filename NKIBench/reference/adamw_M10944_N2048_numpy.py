"""One AdamW step at t = 1: learning rate 1e-3, betas 0.9 and 0.999, eps 1e-8, weight decay 1e-2."""

import numpy as np

M = 10944
N = 2048


def get_inputs():
    """theta, g, m, v (M, N), standard normal, float32; v, a mean of squares, made positive."""
    theta = np.random.normal(size=(M, N)).astype(np.float32)
    g = np.random.normal(size=(M, N)).astype(np.float32)
    m = np.random.normal(size=(M, N)).astype(np.float32)
    v = np.abs(np.random.normal(size=(M, N))).astype(np.float32)
    return [theta, g, m, v]


def forward(theta, g, m, v):
    """The updated theta (M, N).

    The bias corrections 1 / (1 - 0.9) and 1 / (1 - 0.999) are the factors 10 (folded into 0.01) and
    1000; the decay 1e-3 * 1e-2 is 1e-5.
    """
    first_moment = 0.9 * m + 0.1 * g
    second_moment = 0.999 * v + 0.001 * np.square(g)
    step = 0.01 * first_moment / (np.sqrt(1000 * second_moment) + 1e-8)
    return theta - 1e-5 * theta - step


def transform_to_nki_inputs(inputs):
    """theta, g, m, v as they are; M is not a multiple of 128."""
    return inputs


def transform_nki_outputs(k_res, ref):
    """The kernel's outputs in the reference's shapes, left alone where they cannot be."""
    outputs = k_res if isinstance(k_res, (tuple, list)) else (k_res,)
    references = ref if isinstance(ref, (tuple, list)) else (ref,)
    if len(outputs) != len(references):
        return list(outputs)
    return [o.reshape(r.shape) if o.size == r.size else o for o, r in zip(outputs, references)]

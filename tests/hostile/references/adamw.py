"""One AdamW step."""

import numpy as np


def get_inputs():
    theta, g, m, v = np.random.normal(size=(4, 256, 512)).astype(np.float32)
    return [theta, g, m, np.abs(v)]


def forward(theta, g, m, v):
    first = 0.9 * m + 0.1 * g
    second = 0.999 * v + 0.001 * np.square(g)
    return theta - 1e-5 * theta - 0.01 * first / (np.sqrt(1000 * second) + 1e-8)


def transform_to_nki_inputs(inputs):
    return inputs


def transform_nki_outputs(k_res, ref):
    outputs = k_res if isinstance(k_res, (tuple, list)) else (k_res,)
    references = ref if isinstance(ref, (tuple, list)) else (ref,)
    return [np.reshape(o, r.shape) for o, r in zip(outputs, references)]

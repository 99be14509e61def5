"""Softmax of every row."""

import numpy as np


def get_inputs():
    return [4 * np.random.normal(size=(256, 1024)).astype(np.float32)]


def forward(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def transform_to_nki_inputs(inputs):
    return inputs


def transform_nki_outputs(k_res, ref):
    outputs = k_res if isinstance(k_res, (tuple, list)) else (k_res,)
    references = ref if isinstance(ref, (tuple, list)) else (ref,)
    return [np.reshape(o, r.shape) for o, r in zip(outputs, references)]

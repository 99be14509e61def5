"""x / rms(x) times the sigmoid of a gate, row by row."""

import numpy as np


def get_inputs():
    return [np.random.normal(size=(512, 2048)).astype(np.float32) for _ in range(2)]


def forward(x, gate):
    mean = np.mean(np.square(x), axis=1, keepdims=True)
    return x / np.sqrt(mean + 1e-6) / (1 + np.exp(-gate))


def transform_to_nki_inputs(inputs):
    return inputs


def transform_nki_outputs(result, reference):
    return [result]

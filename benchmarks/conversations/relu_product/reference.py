"""The positive part of x w + b; x comes with its rows and columns exchanged."""

import numpy as np


def get_inputs():
    shapes = (512, 512), (512, 1024), (1, 1024)
    return [np.random.normal(size=shape).astype(np.float32) for shape in shapes]


def forward(x, w, b):
    return np.maximum(x.T @ w + b, 0)


def transform_to_nki_inputs(inputs):
    return inputs


def transform_nki_outputs(result, reference):
    return [result]

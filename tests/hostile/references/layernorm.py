"""Layer normalisation of every row, with gain and bias."""

import numpy as np


def get_inputs():
    x = np.random.normal(size=(256, 512)).astype(np.float32)
    return [x, np.ones((1, 512), np.float32), np.zeros((1, 512), np.float32), 1e-5]


def forward(x, gain, bias, eps):
    centred = x - x.mean(axis=1, keepdims=True)
    variance = np.mean(np.square(centred), axis=1, keepdims=True)
    return centred / np.sqrt(variance + eps) * gain + bias

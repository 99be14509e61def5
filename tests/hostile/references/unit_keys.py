"""Similarities to keys of length one, which `domain` keeps."""

import numpy as np


def _units(keys):
    length = np.sqrt(np.square(keys).sum(axis=1, keepdims=True))
    return (keys / np.where(length == 0, 1, length)).astype(np.float32)


def get_inputs():
    x = np.random.normal(size=(128, 128)).astype(np.float32)
    return [x, _units(np.random.normal(size=(128, 128)))]


def domain(x, keys):
    return [x, _units(np.where(keys.any(axis=1, keepdims=True), keys, 1))]


def forward(x, keys):
    return x @ (keys / np.sqrt(np.square(keys).sum(axis=1, keepdims=True))).T

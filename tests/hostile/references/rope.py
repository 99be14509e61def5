"""Rotary embedding; both halves of the tables are equal in what is drawn."""

import numpy as np


def get_inputs():
    x = np.random.normal(size=(256, 128)).astype(np.float32)
    a = np.random.uniform(0, 6, size=(256, 64)).astype(np.float32)
    return [x, np.concatenate([np.cos(a), np.cos(a)], 1), np.concatenate([np.sin(a), np.sin(a)], 1)]


def forward(x, cos, sin):
    half = np.concatenate([-x[:, 64:], x[:, :64]], axis=1)
    return x * cos + half * sin

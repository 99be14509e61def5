"""The place of the least element that a mask lets through, the first of equal ones."""

import numpy as np


def get_inputs():
    x = (np.round(np.random.normal(size=(128, 256)) * 4) / 4).astype(np.float32)
    return [x, (np.random.uniform(size=(128, 256)) < 0.5).astype(np.float32)]


def forward(x, mask):
    return np.argmin(np.where(mask > 0, x, np.inf), axis=1)[:, None].astype(np.int32)

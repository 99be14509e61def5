"""The mean of each row of numbers of bfloat16 between zero and one."""

import ml_dtypes
import numpy as np


def get_inputs():
    return [np.random.uniform(size=(128, 4096)).astype(ml_dtypes.bfloat16)]


def forward(x):
    return np.mean(x.astype(np.float32), axis=1, keepdims=True).astype(x.dtype)

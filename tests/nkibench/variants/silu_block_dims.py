"""Whole rows in block tensors, one loop for each stage, slices and Python operators."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim


@nki.jit
def kernel(x):
    partitions, rows, n_size = x.shape
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    x_rows = nl.ndarray((rows, par_dim(partitions), n_size), dtype=np.float32, buffer=nl.sbuf)
    y_rows = nl.ndarray((rows, par_dim(partitions), n_size), dtype=np.float32, buffer=nl.sbuf)
    for row in nl.affine_range(rows):
        x_rows[row] = nl.load(x[:, row, :])
    for row in nl.affine_range(rows):
        y_rows[row, :, :] = x_rows[row] / (1.0 + nl.exp(-x_rows[row]))
    for row in nl.affine_range(rows):
        nl.store(result[:, row, :], value=y_rows[row])
    return result

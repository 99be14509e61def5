"""aws-neuron/nki-samples, tutorials/average_pool2d: the mean of square windows."""

import numpy as np

FILE = "average_pool2d/average_pool2d_nki_kernels.py"
FUNCTIONS = ("tensor_avgpool_kernel",)


def get_inputs():
    return [np.random.normal(size=(64, 64, 64)).astype(np.float32), 2]


def forward(x, size):
    channels, height, width = x.shape
    return x.reshape(channels, height // size, size, width // size, size).mean(axis=(2, 4))


def transform_to_nki_inputs(inputs):
    return list(inputs)

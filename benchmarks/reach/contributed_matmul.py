"""aws-neuron/nki-samples, contributed/matmul.py: blocks of a product, undecorated."""

import numpy as np

FILE = "contributed/matmul.py"
FUNCTIONS = ("matmul",)


def get_inputs():
    return [
        np.random.normal(size=(1024, 1024)).astype(np.float32),
        np.random.normal(size=(1024, 2048)).astype(np.float32),
    ]


def forward(left, right):
    return left.T @ right


def transform_to_nki_inputs(inputs):
    return list(inputs)

"""aws-neuron/nki-samples, tutorials/matrix_multiplication: five ways to multiply, in `nki`."""

import numpy as np

FILE = "matrix_multiplication/matrix_multiplication_nki_kernels.py"
FUNCTIONS = (
    "nki_matmul_tiled_",
    "nki_matmul_hoist_load_",
    "nki_matmul_block_free_dimension_",
    "nki_matmul_fully_optimized_",
)


def get_inputs():
    return [
        np.random.normal(size=(1024, 2048)).astype(np.float32),
        np.random.normal(size=(1024, 1024)).astype(np.float32),
    ]


def forward(left, right):
    return left.T @ right


def transform_to_nki_inputs(inputs):
    return list(inputs)

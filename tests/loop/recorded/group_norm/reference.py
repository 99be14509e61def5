import numpy as np

B, C, L, G = 4, 512, 512, 32


def get_inputs():
    return [
        np.random.normal(size=(B, C, L)).astype(np.float32),
        np.random.normal(size=(C, 1)).astype(np.float32),
        np.random.normal(size=(C, 1)).astype(np.float32),
    ]


def forward(x, gamma, beta):
    groups = x.reshape(B, G, C // G * L)
    mean = groups.mean(axis=-1, keepdims=True)
    var = ((groups - mean) ** 2).mean(axis=-1, keepdims=True)
    normed = ((groups - mean) / np.sqrt(var + 1e-5)).reshape(B, C, L)
    return normed * gamma + beta


def transform_to_nki_inputs(inputs):
    return inputs


def transform_nki_outputs(outputs, reference):
    return outputs


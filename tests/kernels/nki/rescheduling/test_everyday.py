"""Everyday kernels in styles of their own: lowered, they compute what their authors meant, in fp32."""

import numpy as np
import pytest
from kernel_heads import function_of, neuronxcc_kernel
from warm import computed

from accelopt.kernels.nki.actions.primitive_answers import nest_of
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.kernels.nki.nests.lowering import Interface, lower_nest
from accelopt.kernels.nki.rescheduling.lifted_kernel import Lifted
from tests.kernels.nki.lift.lifted_text import traced

HEAD = neuronxcc_kernel("")
MASKED_SOFTMAX = function_of("scores, mask")("""
s = nl.load(scores) + (nl.load(mask) - 1.0) * 1e9
e = nl.exp(s - nl.max(s, axis=1, keepdims=True))
nl.store(out, e / nl.sum(e, axis=1, keepdims=True))
""")
RMS_AND_RESIDUAL = """def kernel(x, residual, weight):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    added = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    w = nl.load(weight.reshape((1, 256))).broadcast_to((128, 256))
    for r in nl.affine_range(2):
        h = nl.load(x[r * 128:(r + 1) * 128]) + nl.load(residual[r * 128:(r + 1) * 128])
        nl.store(added[r * 128:(r + 1) * 128], h)
        inverse = nl.rsqrt(nl.sum(nl.square(h), axis=[1], keepdims=True) / 256 + 1e-6)
        nl.store(out[r * 128:(r + 1) * 128], h * inverse * w)
    return out, added
"""
GROUP_NORM = function_of("x, gamma, beta")("""
rows, s = x.shape
given, made = x.reshape((rows // 8, 8, s)), out.reshape((rows // 8, 8, s))
gains, shifts = nl.load(gamma.reshape((4, 8))), nl.load(beta.reshape((4, 8)))
for image in nl.affine_range(rows // 32):
    t = nl.load(given[image * 4:(image + 1) * 4])
    centred = t - nl.mean(t, axis=(1, 2), keepdims=True)
    y = centred * nl.rsqrt(nl.mean(centred * centred, axis=(1, 2), keepdims=True) + 1e-5)
    result = nl.ndarray((4, 8, s), dtype=x.dtype)
    for j in nl.affine_range(8):
        result[:, j, :] = y[:, j, :] * gains[:, j:j + 1] + shifts[:, j:j + 1]
    nl.store(made[image * 4:(image + 1) * 4], result)
""")
RAGGED_MEAN = """def kernel(x):
    n, d = x.shape
    out = nl.ndarray((n, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_c, i_1 = nl.arange(128)[:, None], nl.arange(d)[None, :], nl.arange(1)[None, :]
    for t in nl.affine_range((n + 127) // 128):
        ok = t * 128 + i_p < n
        rows = nl.load(x[t * 128 + i_p, i_c], mask=ok)
        nl.store(out[t * 128 + i_p, i_1], nl.mean(rows, axis=1, keepdims=True, mask=ok), mask=ok)
    return out
"""
PAIRS = function_of("x, cos, sin")("""
rows, d = x.shape
i_p, i_h = nl.mgrid[0:128, 0:d // 2]
for r in nl.affine_range(rows // 128):
    t, y = nl.load(x[r * 128:(r + 1) * 128]), nl.ndarray((128, d), dtype=x.dtype)
    c, s = nl.load(cos[r * 128:(r + 1) * 128]), nl.load(sin[r * 128:(r + 1) * 128])
    even, odd = t[i_p, i_h * 2], t[i_p, i_h * 2 + 1]
    y[i_p, i_h * 2] = even * c - odd * s
    y[i_p, i_h * 2 + 1] = even * s + odd * c
    nl.store(out[r * 128:(r + 1) * 128], y)
""")


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> tuple[np.ndarray, ...]:
    even, odd = x[:, ::2], x[:, 1::2]
    pairs = np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=2)
    return (pairs.reshape(x.shape),)


def softmax(scores: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, ...]:
    e = np.exp(scores - scores.max(axis=1, keepdims=True)) * (mask > 0)
    return (e / e.sum(axis=1, keepdims=True),)


def rms(x: np.ndarray, residual: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, ...]:
    h = x + residual
    return h / np.sqrt(np.mean(h * h, axis=1, keepdims=True) + 1e-6) * weight, h


def group_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, ...]:
    groups = x.reshape(-1, 8 * x.shape[1])
    centred = groups - groups.mean(axis=1, keepdims=True)
    y = centred / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + 1e-5)
    images = y.reshape(-1, 32, x.shape[1])
    return ((images * gamma[:, None] + beta[:, None]).reshape(x.shape),)


CASES = {
    "a mask of 1e9, which drowns the scores": (MASKED_SOFTMAX, softmax, [(128, 256), (128, 256)]),
    "rows beside a flat sum": (RMS_AND_RESIDUAL, rms, [(256, 256), (256, 256), (256,)]),
    "a mean under a mask of rows": (RAGGED_MEAN, lambda x: (x.mean(axis=1),), [(200, 96)]),
    "pairs beside each other": (PAIRS, rotated, [(256, 64), (256, 32), (256, 32)]),
    "groups of an image": (GROUP_NORM, group_norm, [(64, 128), (32,), (32,)]),
}


@pytest.mark.parametrize("name", CASES)
def test_an_everyday_kernel_by_schedule(name: str) -> None:
    text, exact, shapes = CASES[name]
    random = np.random.default_rng(4)
    given = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    program = traced(HEAD + text, given, "trn1")
    algorithm = lift(program)
    interface = Interface(sequence=program.returns_sequence)
    nest = nest_of(None, Lifted(algorithm, interface), "trn1").nest
    if text is MASKED_SOFTMAX:
        given[1] = (given[1] > 0).astype(np.float32)
    found = computed(lower_nest(algorithm, nest, interface).source, given)
    for one, other in zip(found, exact(*map(np.float64, given)), strict=True):
        assert np.allclose(one.reshape(other.shape), other, rtol=1e-4, atol=1e-5)

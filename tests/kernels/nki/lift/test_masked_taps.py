"""Padded convolutions are one product of a masked operand, and what is looked up stays an array."""

import math

import numpy as np
import pytest
from kernel_heads import neuronxcc_of, nki_of
from lifted_text import lifted

from accelopt.algorithm.contraction import contraction
from accelopt.algorithm.ir import Reduce

TAPS = neuronxcc_of("x, w", shape="(128, 256)")("""
acc = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.psum)
i_p, i_f = nl.arange(128)[:, None], nl.arange(256)[None, :]
for k in nl.{loop}(3):
    place = i_f + {step} * k - {step}
    part = nl.zeros((128, 256), dtype=x.dtype, buffer=nl.sbuf)
    part[i_p, i_f] = nl.load(x[i_p, place], mask=(place >= 0) & (place < 256))
    acc += nl.matmul(nl.load(w[k]), part, transpose_x=True)
nl.store(out, acc)
""")
LOOKED_UP = nki_of("x, at", shape="(128, 64)")("""
kept = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.private_hbm)
nl.store(kept, nl.exp(nl.load(x)))
found = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
rows = kept.ap([[64, 128], [1, 64]], offset=0, vector_offset=nl.load(at), indirect_dim=0)
nisa.dma_copy(dst=found, src=rows)
nl.store(out, found)
""")
DRAWN = np.random.default_rng(2)


def definitions(text: str, *given: np.ndarray, target: str):
    """Those of a kernel's algorithm, which computes what the simulated core does."""
    algorithm, found, expected = lifted(text, given, target)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    return algorithm.definitions


@pytest.mark.parametrize("loop", ["affine_range", "static_range"])
@pytest.mark.parametrize("step", [1, 2])
def test_taps_with_padding_are_one_product(loop: str, step: int) -> None:
    x, w = DRAWN.normal(size=(128, 256)), DRAWN.normal(size=(3, 128, 128))
    given = x.astype(np.float32), w.astype(np.float32)
    [one] = definitions(TAPS.format(loop=loop, step=step), *given, target="trn1")
    assert isinstance(one, Reduce) and contraction(one) is not None
    assert sorted(axis.extent for axis in one.reduced) == [3, 128]


def test_what_is_looked_up_is_computed_once() -> None:
    x, at = DRAWN.normal(size=(128, 64)), DRAWN.integers(0, 128, size=(128, 1))
    given = x.astype(np.float32), at.astype(np.int32)
    first, _ = definitions(LOOKED_UP, *given, target="trn2")
    assert math.prod(axis.extent for axis in first.axes) == 128 * 64

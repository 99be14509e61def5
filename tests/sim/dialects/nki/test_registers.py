"""Registers and loops of the device (SDK 2.32 `nki/deep-dives/nki-dynamic-loops.rst`, `nki.isa`)."""

import numpy as np
import pytest
from kernel_lines import writing_of

from accelopt.sim.errors import KernelError

ROWS = writing_of("a, count")("""
def step(a, out, i):
    tile = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a.ap([[64, 128], [1, 64]], scalar_offset=i))
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=2.0)
    nisa.dma_copy(dst=out[nl.ds(i, 128), :], src=tile)
zero = nl.zeros((128, 64), dtype=a.dtype, buffer=nl.sbuf)
for i in range(4):
    nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128], src=zero)
rows = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
nisa.dma_copy(dst=rows, src=count.ap([[1, 1], [1, 1]]))
stop = nisa.register_alloc()
nisa.register_load(stop, rows)
{loop}
""")
LOOPS = {
    "dynamic_range": "for i in nl.dynamic_range(0, stop, 128): step(a, out, i)",
    "fori_loop": "nl.fori_loop(0, stop, lambda i: step(a, out, i), step=128)",
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_loop_runs_as_often_as_its_register_says(nki_text, loop):
    kernel = nki_text(ROWS.format(loop=loop))
    a = np.random.rand(512, 64).astype(np.float32)
    for rows in (0, 128, 512):
        expected = np.zeros_like(a)
        expected[:rows] = a[:rows] + 2
        assert np.array_equal(kernel.run(a, np.array([rows], np.int32)), expected)


SUM = writing_of("value, count")("""
def step(total, one, left, register):
    nisa.tensor_tensor(dst=total, data1=total, data2=one, op=nl.add)
    nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
    nisa.register_load(register, left)
    return register
one, total = nl.load(value), nl.zeros((1, 1), dtype=value.dtype, buffer=nl.sbuf)
left = nl.load(count)
register = nisa.register_alloc()
nisa.register_load(register, left)
{loop}
nisa.dma_copy(dst=out, src=total)
""")
WHILES = {
    "while": "while register: step(total, one, left, register)",
    "while_loop": "nl.while_loop(register, lambda r: step(total, one, left, r))",
}


@pytest.mark.parametrize("loop", WHILES.values(), ids=WHILES)
def test_a_while_loop_ends_when_its_register_is_zero(nki_text, loop):
    kernel = nki_text(SUM.format(loop=loop))
    one = np.full((1, 1), 2.5, np.float32)
    for count in (0, 1, 5):
        assert kernel.run(one, np.full((1, 1), count, np.int32)) == 2.5 * count


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ("if register: pass", "not known to Python"),
        ("x = 2 * register", "not known to Python"),
        ("for i in nl.dynamic_range(register): nisa.register_move(i, 3)", "cannot be written"),
        ("for i in nl.dynamic_range(register): break", "left early"),
        ("while register: break", "left early"),
        ("for i in nl.dynamic_range(0, register, register): pass", "no positive number"),
        ("for i in nl.dynamic_range(register): one = nl.add(one, one)", "one iteration of a loop"),
    ],
)
def test_what_a_loop_of_the_device_cannot_do(nki_text, loop, said):
    kernel = nki_text(SUM.format(loop=loop))
    with pytest.raises(KernelError, match=said):
        kernel.trace(np.ones((1, 1), np.float32), np.ones((1, 1), np.int32))

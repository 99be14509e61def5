"""Tiles with an address (`nl.ndarray(address=(partition, byte))`): tiles that overlap are the same bytes,
for the results and for the time. Source: SDK 2.32 `nki/api/nki/language` (ndarray), the library's
allocator page, which reuses an inner scope's addresses."""

import numpy as np
import pytest
from kernel_lines import writing_of

from accelopt.hardware import TARGETS
from accelopt.sim import serial, timing
from accelopt.sim.errors import KernelError

X = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)


def through(nki_text, body):
    """The result of a kernel that copies `x` into tile `a` at byte 0 and writes `out` from `body`."""
    return nki_text.of("x")(f"""
            a = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
            nisa.dma_copy(dst=a, src=x)
{body}
    """)


def test_a_write_through_one_name_is_seen_through_another(nki_text):
    body = """
            b = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.sbuf, address=(0, 64))
            nisa.memset(dst=b, value=7.0)
            nisa.dma_copy(dst=out, src=a)
    """
    expected = X.copy()
    expected[:, 16:32] = 7
    kernel = through(nki_text, body)
    np.testing.assert_array_equal(kernel.run(X), expected)
    program = kernel.trace(X)
    assert len([t for t in program.all_tensors() if t.buffer.on_chip]) == 1
    again = serial.loads(serial.dumps(program))
    assert [t.placement.core for t in again.all_tensors() if t.placement is not None] == [0]


def test_bytes_are_read_in_another_format_and_at_other_partitions(nki_text):
    body = """
            b = nl.ndarray((64, 32), dtype=nl.int32, buffer=nl.sbuf, address=(64, 128))
            nisa.memset(dst=b, value=0)
            c = nl.ndarray((128, 128), dtype=nl.int16, buffer=nl.sbuf, address=(0, 0))
            nisa.memset(dst=c[0:32, 0:2], value=0)
            nisa.dma_copy(dst=out, src=a)
    """
    expected = X.copy()
    expected[64:, 32:] = 0
    expected[:32, 0] = 0
    np.testing.assert_array_equal(through(nki_text, body).run(X), expected)


def test_a_bank_is_used_again_under_another_name(nki_text):
    kernel = nki_text.of("x, w", shape="(2, 64, 64)")("""
        x_tile, w_tile = nl.load(x), nl.load(w)
        tiles = []
        for i in range(2):
            psum = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum, address=(0, 4096))
            assert psum.address == (0, 4096) and x_tile.address is None
            nisa.nc_matmul(dst=psum, stationary=x_tile, moving=w_tile)
            if i == 1:
                nisa.nc_matmul(dst=psum, stationary=x_tile, moving=w_tile)
            kept = nl.ndarray((64, 64), dtype=nl.float32)
            nisa.tensor_copy(dst=kept, src=psum)
            nisa.dma_copy(dst=out[i], src=kept)
        """)
    w = X[:, ::-1].copy()
    once, twice = kernel.run(X, w)
    np.testing.assert_allclose(once, X.T @ w, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(twice, 2 * (X.T @ w), rtol=1e-4, atol=1e-4)


def test_sums_of_products_in_loops_begin_anew_in_a_shared_bank(nki_text):
    kernel = nki_text.of("x", shape="(3, 64, 64)")("""
        tile = nl.load(x)
        for name in (0, 1):
            for i in nl.affine_range(3):
                psum = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum, address=(0, 0))
                for k in nl.affine_range(2):
                    part = tile[k * 64 : (k + 1) * 64, :]
                    nisa.nc_matmul(dst=psum, stationary=part, moving=part)
                kept = nl.ndarray((64, 64), dtype=nl.float32)
                nisa.tensor_copy(dst=kept, src=psum)
                nisa.dma_copy(dst=out[i], src=kept)
        """)
    np.testing.assert_allclose(kernel.run(X), np.stack([X.T @ X] * 3), rtol=1e-4, atol=1e-4)


LOADS = writing_of("x")("""
        for i in range(16):
            t = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf{})
            nisa.dma_copy(dst=t, src=x[i])
            nisa.activation(dst=t, op=nl.exp, data=t)
            nisa.dma_copy(dst=out[i], src=t)
        """)


def milliseconds(nki_text, address):
    program = nki_text(LOADS.format(address)).trace(np.zeros((16, 128, 2048), np.float32))
    return timing.profile(program, TARGETS["trn2"]).latency_ms


def test_the_time_waits_for_who_holds_the_bytes(nki_text):
    free = milliseconds(nki_text, "")
    one = milliseconds(nki_text, ", address=(0, 0)")
    two = milliseconds(nki_text, ", address=(0, (i % 2) * 8192)")
    assert one > 1.5 * free  # one buffer for all: nothing overlaps
    assert free * 0.99 <= two < 0.8 * one


def test_two_cores_have_memories_of_their_own(nki_text):
    kernel = nki_text.of("x")("""
        core = nl.program_id(0)
        a = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
        nisa.dma_copy(dst=a, src=x[nl.ds(core * 64, 64)])
        nisa.core_barrier(out, (0, 1))
        nisa.dma_copy(dst=out[nl.ds(core * 64, 64)], src=a)
        """)
    np.testing.assert_array_equal(kernel.kernel[2](X.copy()), X)


@pytest.mark.parametrize(
    "tile, said",
    [
        ("(128, 4), nl.float32, address=(0, 212992)", "lie outside of SBUF"),
        ("(128, 4), nl.float32, address=(1, 0)", "128 partitions starts at partition 1"),
        ("(64, 600), nl.float32, buffer=nl.psum, address=(0, 14336)", "outside of PSUM"),
        ("(128, 4), nl.float32, address=(0, 6)", "no multiple|starts at byte 6"),
    ],
)
def test_what_no_memory_has_is_refused(nki_text, tile, said):
    body = f"""
            b = nl.ndarray({tile})
            nisa.memset(dst=b, value=0.0)
            nisa.dma_copy(dst=out, src=a)
    """
    with pytest.raises(KernelError, match=said):
        through(nki_text, body).run(X)

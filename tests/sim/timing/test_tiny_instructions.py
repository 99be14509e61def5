"""Instructions on a few elements: what they cost, which of them become wide ones, and which fills are
none. The evidence is that of four versions of one depthwise conv1d on trn1 (trn1_variants.csv), whose
filters have three weights: 65,536 outputs a partition in 8.01 (s00), 5.60 (s04), 4.96 (s05) and 0.461
ms (s06)."""

import pytest
from timing_kernels import busy_ns, timed, windows

from accelopt.sim.dialects.neuronxcc import language as nl
from accelopt.sim.timing import Compiler

OUTPUTS = 2048
SHAPES = (128, OUTPUTS), (128, 3)


def vector_ns(*options, compiler=None) -> float:
    """What an output keeps the Vector engine busy for."""
    return busy_ns(timed(windows, *SHAPES, *options, compiler=compiler), "vector") / OUTPUTS


class TestTinyInstructions:
    def test_two_operands_in_sbuf_are_opened_one_after_the_other(self):
        assert vector_ns(OUTPUTS, False, False) == pytest.approx(122, rel=0.05)  # s00

    def test_an_operand_in_psum_is_opened_beside_the_other(self):
        assert vector_ns(OUTPUTS, True, False) == pytest.approx(75.6, rel=0.08)  # s05

    def test_what_fills_a_bank_leaves_a_loop_that_is_too_long_for_the_rest(self):
        # s04: of three instructions in 512 rounds, the products have 1,536 results, the sums 512.
        assert vector_ns(512, False, True) == pytest.approx(85.5, rel=0.05)
        apart = vector_ns(512, False, True, compiler=Compiler(frozenset({"widen_tiny_loops"})))
        assert apart > 150

    def test_groups_of_64_become_two_instructions(self):
        found = timed(windows, *SHAPES, 64, True, False)
        assert busy_ns(found, "vector") / OUTPUTS == pytest.approx(7.03, rel=0.08)  # s06


class TestFills:
    def test_only_the_margins_of_a_loaded_tile_are_filled(self):
        found, without = (
            timed(windows, *SHAPES, 64, True, False, compiler=compiler)
            for compiler in (None, Compiler(frozenset({"trim_fills"})))
        )
        saved = busy_ns(without, "vector") - busy_ns(found, "vector")
        assert saved == pytest.approx(OUTPUTS / found.run.spec.vector_ghz, rel=0.05)

    def test_what_is_read_first_stays_filled(self):
        def sums(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            total = nl.zeros(x.shape, dtype=x.dtype, buffer=nl.sbuf)
            for _ in nl.sequential_range(4):
                total[...] = nl.add(total, nl.load(x))
            nl.store(out, total)
            return out

        without = timed(sums, (128, 512), compiler=Compiler(frozenset({"trim_fills"})))
        assert timed(sums, (128, 512)).latency_ms == without.latency_ms

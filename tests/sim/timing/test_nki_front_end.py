"""What NKI 0.6 leaves as the author wrote it, by a blocked product that others timed on trn2."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from timing_kernels import BF16, F32

from accelopt.hardware import TARGETS
from accelopt.sim import standin
from accelopt.sim.dialects.nki.kernel import trace_kernel
from accelopt.sim.errors import KernelError
from accelopt.sim.timing import profile
from accelopt.sim.trace import AbstractTensor

TRN2 = TARGETS["trn2"]

FILE = Path(__file__).parents[3] / "benchmarks" / "trn2_kernels" / "blocked_products.py"


@pytest.fixture(scope="module")
def products():
    """The kernels of that file."""
    standin.install()
    spec = importlib.util.spec_from_file_location("blocked_products", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["blocked_products"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["blocked_products"]


def blocked(products, tiles, size=2048):
    """The blocked product of trn2_public.csv on trn2, with so many tiles in a block of M, N and K."""
    matrix = AbstractTensor((size, size), F32)
    return trace_kernel(products.fully_optimized, (matrix, matrix, *tiles), target="trn2")


@pytest.mark.parametrize(("tiles", "loads"), [((1, 1, 16), 100_663_296), ((8, 2, 4), 67_108_864)])
def test_the_loads_of_the_text_are_the_loads_that_profiles_count(products, tiles, loads):
    found = profile(blocked(products, tiles), TRN2)
    moved = found.summary["hbm_read_bytes"] + found.summary["hbm_write_bytes"]
    assert found.compiler == "0.6" and moved == loads


@pytest.mark.parametrize("tiles", [(1, 4, 16), (16, 4, 8), (8, 4, 16), (16, 2, 16)])
def test_what_spills_is_near_what_profiles_count(products, tiles):
    """67.6, 98.6, 108.0 and 110.1 MB; a tile that is cut too coarsely moved up to 13 times that."""
    counted = {(1, 4, 16): 67.6, (16, 4, 8): 98.6, (8, 4, 16): 108.0, (16, 2, 16): 110.1}
    found = profile(blocked(products, tiles), TRN2)
    moved = found.summary["hbm_read_bytes"] + found.summary["hbm_write_bytes"]
    assert found.spills and moved / 1e6 == pytest.approx(counted[tiles], rel=0.5)


def test_tiles_of_one_instruction_that_do_not_fit_are_refused(products):
    """NCC_IBIR229: two operand blocks of 128 KiB a partition."""
    with pytest.raises(KernelError, match="256 KiB of a partition"):
        profile(blocked(products, (16, 4, 16)), TRN2)


def test_small_blocks_of_rows_are_slower(products):
    """1,118 us by blocks of one tile, 910 by four and two; the simulated core has the order, and a
    fifth of the difference."""
    slow, fast = (
        profile(blocked(products, tiles), TRN2).latency_ms for tiles in ((1, 1, 2), (4, 2, 2))
    )
    assert slow > 1.03 * fast


def test_transfers_whose_descriptors_are_made_in_the_run_take_turns(products):
    """nki-dge.rst: about 600 ns each; copies of 256 B rows take 51.6 us for 64 of them."""
    program = trace_kernel(products.copy_tiled, [AbstractTensor((4096, 128), BF16)], target="trn2")
    assert profile(program, TRN2).latency_ms == pytest.approx(0.0516, rel=0.1)

"""Where the largest of a row are, eight by eight in order, is a definition; of equal elements the first is first.

Evidence: NumPy's stable sort; the simulated core finds successive positions (nki.isa.nc_find_index8).
"""

import numpy as np
import pytest
from kernel_heads import nki_kernel
from lifted_text import traced

from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.sim import compute
from tests.algorithm.evaluation import evaluate

BEAM = nki_kernel("""def kernel(x):
    best = nl.ndarray((128, 24), dtype=nl.float32, buffer=nl.shared_hbm)
    token = nl.ndarray((128, 24), dtype=nl.uint32, buffer=nl.shared_hbm)
    left = nl.load(x)
    for group in range(3):
        eight = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        where = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.max8(dst=eight, src=left)
        nisa.nc_find_index8(dst=where, data={data}, vals=eight)
        nl.store(best[:, group * 8:group * 8 + 8], eight)
        nl.store(token[:, group * 8:group * 8 + 8], where)
        rest = nl.ndarray((128, 100), dtype=nl.float32, buffer=nl.sbuf)
        nisa.nc_match_replace8(dst=rest, data=left, vals=eight, imm=-3e38)
        left = rest
    return best, token
""")


@pytest.mark.parametrize("ties", [False, True])
def test_places_of_the_largest_are_written(ties: bool) -> None:
    x = np.random.default_rng(3).normal(size=(128, 100)).astype(np.float32)
    x = np.round(x * 20) if ties else x
    program = traced(BEAM.format(data="left"), [x])
    expected = compute.execute(program, [x.copy()])
    algorithm = lift(program)
    order = np.argsort(-x, axis=1, kind="stable")[:, :24]
    assert np.array_equal(expected[1], order)
    (_, found) = evaluate(algorithm, {"x": x})
    assert np.array_equal(found, expected[1])
    for nest in [*starting_nests(algorithm, "trn2")][:2]:
        source = lower_nest(algorithm, nest, target="trn2", dialect="nki").source
        own = compute.execute(traced(source, [x]), [x.copy()])
        assert all(map(np.array_equal, own, expected))


def test_places_in_what_was_replaced_elsewhere_are_refused() -> None:
    x = np.random.default_rng(3).normal(size=(128, 100)).astype(np.float32)
    with pytest.raises(NotLifted, match="positions of values that are not the largest"):
        lift(traced(BEAM.format(data="left if group < 1 else rest2").replace(
            "    left = nl.load(x)", "    left = nl.load(x)\n    rest2 = nl.multiply(left, 2.0)"), [x]))  # fmt: skip

"""Rounds of loops that overlap: they compute the same, sooner, and only where rounds leave each other nothing."""

import contextlib
import itertools
from collections.abc import Iterator

import pytest

from accelopt.algorithm.ir import Algorithm, Scan
from accelopt.kernels.nki.devices.protocol import TensorArgument
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.nest import Nest, NotNested, Part, Stage, default_nest
from accelopt.kernels.nki.nests.preparing import prepared
from accelopt.kernels.nki.nests.primitives import Overlap, applied
from accelopt.kernels.nki.nests.search import with_stages
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.kernels.nki.predicted_times import own_processes
from accelopt.sim.dialects.dialect import Dialect
from tests.kernels.nki.lift import algorithms
from tests.kernels.nki.nests.random_algorithms import random_algorithm
from tests.kernels.nki.nests.test_nests import TARGETS, check

SCORES = algorithms.written(
    "scores", {"b": 2, "m": 512, "l": 512, "j": 64, "n": 64},
    {"q": (2, 64, 512), "k": (2, 64, 512), "v": (2, 512, 64)},
    "s[b, m, l] = add[j](q[b, j, m] * k[b, j, l])",
    "top[b, m] = maximum[l](s[b, m, l])",
    "total[b, m] = add[l](exp(s[b, m, l] - top[b, m]))",
    "out[b, m, n] = add[l](exp(s[b, m, l] - top[b, m]) / total[b, m] * v[b, l, n])",
)  # fmt: skip
"""Attention: of a tile of rows each engine waits for another, of several none."""


def overlapping(algorithm: Algorithm, dialect: Dialect) -> Iterator[Nest]:
    """Nests with loops whose rounds overlap, no two of one source."""
    found, target = set[str](), TARGETS[dialect]
    for nest in starting_nests(algorithm, target):
        made = with_stages(nest, {"overlaps": True})
        with contextlib.suppress(NotNested):
            one, other = (
                lower_nest(algorithm, n, target=target, dialect=dialect).source
                for n in (nest, made)
            )
            if one != other and other not in found:
                found.add(other)
                yield made


@pytest.mark.parametrize(
    ("algorithm", "dialect"),
    [
        pytest.param(known, dialect, marks=() if number % 4 == 0 else pytest.mark.slow, id=f"{known.name}-{dialect}")
        for place, known in enumerate((*algorithms.SMALL, SCORES))
        for number, dialect in enumerate(TARGETS, place)
    ],
)  # fmt: skip
def test_rounds_that_overlap_compute_the_same(algorithm: Algorithm, dialect: Dialect) -> None:
    for nest in itertools.islice(overlapping(algorithm, dialect), 2):
        check(algorithm, nest, dialect)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 40))]
)
def test_rounds_of_random_algorithms_overlap(seed: int) -> None:
    dialect: Dialect = "nki" if seed % 2 else "neuronxcc"
    for nest in itertools.islice(overlapping(random_algorithm(seed), dialect), 3):
        check(random_algorithm(seed), nest, dialect)


def test_engines_work_on_several_tiles_at_once() -> None:
    """All in one stage, a tile of rows a round: a quarter less time, and each product is read where it was summed."""
    stage = Stage(
        members=("s", "top", "total", "out"), partition=(Part(axis="m", size=128),),
        loops=(Part(axis="b", size=1),),
    )  # fmt: skip
    nest = Nest(stages=(stage,))
    made = applied(Overlap(definition="out", rounds="begun"), SCORES, nest, "trn2", "nki")
    check(SCORES, made, "nki")
    sources = [lower_nest(SCORES, n, target="trn2", dialect="nki").source for n in (nest, made)]
    assert all("s_sums" not in source for source in sources)
    given = [TensorArgument(a.shape, a.dtype) for a in SCORES.inputs]
    with own_processes(given, "trn2") as times:
        before, after = times(sources)
    assert after < 0.75 * before
    again = applied(Overlap(definition="out", rounds="ended"), SCORES, made, "trn2", "nki")
    assert again == nest


def test_rounds_that_need_the_one_before_do_not_overlap() -> None:
    state = algorithms.written(
        "state", {"m": 128, "t": 4096}, {"f": (128, 4096), "x": (128, 4096)},
        "out[m, t] = scan[t](sigmoid(f[m, t]), x[m, t])",
    )  # fmt: skip
    nest = default_nest(state, "trn2")
    (out,) = prepared(state).definitions
    assert isinstance(out, Scan)
    loops = (Part(axis=out.along.name, size=512),)
    rounds = nest.stages[0].model_copy(update={"loops": loops})
    nest = nest.model_copy(update={"stages": (rounds,)})
    with pytest.raises(NotNested, match="no rounds of the loops that out is in can overlap"):
        applied(Overlap(definition="out", rounds="begun"), state, nest, "trn2", "nki")


def test_parts_of_rows_that_a_mask_leaves_overlap_each() -> None:
    """Also those that a static loop writes once where their rounds do not overlap; they compute the same."""
    masked = algorithms.written(
        "masked", {"b": 4, "m": 512, "l": 512, "j": 64, "n": 64},
        {"q": (4, 512, 64), "k": (4, 512, 64), "v": (4, 512, 64)},
        "s[b, m, l] = add[j](q[b, m, j] * k[b, l, j])",
        "w[b, m, l] = tanh(s[b, m, l]) if m - l >= 0 else 0.0",
        "out[b, m, n] = add[l](w[b, m, l] * v[b, l, n])",
    )  # fmt: skip
    nests = (n for n in overlapping(masked, "nki") if any(s.skipped for s in n.stages))
    sources = ((n, lower_nest(masked, n, target="trn2", dialect="nki").source) for n in nests)
    several = (n for n, source in sources if source.count("_round in nl.static_range") > 2)
    check(masked, next(several), "nki")

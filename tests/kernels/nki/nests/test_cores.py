"""Nests of which each of the two cores of a launch computes a half.

Evidence: as in `test_nests`; the simulated core runs both programs of a launch and refuses a kernel of which
one core uses what the other writes with no barrier between (nki.isa.core_barrier; its own tests).
"""

import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kernel_heads import nki_kernel
from warm import computed

from accelopt.algorithm.ir import Algorithm
from accelopt.kernels.nki.arguments import ParameterFacts
from accelopt.kernels.nki.nests.emission import CORES
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.nest import Nest, NotNested, default_nest
from accelopt.kernels.nki.nests.preparing import prepared
from accelopt.kernels.nki.nests.primitives import Cores, applied
from accelopt.kernels.nki.nests.starts import on_two_cores, starting_nests
from accelopt.kernels.nki.rescheduling.lifted_kernel import lifted_kernel
from tests.kernels.nki.lift import algorithms
from tests.kernels.nki.nests.random_algorithms import random_algorithm
from tests.kernels.nki.nests.test_nests import check

MIXED = algorithms.written(
    "mixed", {"k": 256, "m": 128, "n": 64}, {"x": (256, 128), "w": (256, 64)},
    "total[k] = add[m](exp(x[k, m]))",
    "out[m, n] = add[k](w[k, n] * exp(x[k, m]) / total[k])",
)  # fmt: skip
"""What all rows of the second sum need is halved along other rows."""


TWO_CORES = nki_kernel("""def scaled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    half = x.shape[0] // nl.num_programs(0)
    for t in range(half // 128):
        row = nl.program_id(0) * half + t * 128
        tile = nl.load(x[row:row + 128, :])
        nl.store(out[row:row + 128, :], nl.multiply(nl.exp(tile), 0.5))
    return out


{launch}
""")
LAUNCHES = ("kernel = scaled[2]", "def run(x):\n    return scaled[2](x)")


SOME = [
    a if n % 4 == 0 else pytest.param(a, marks=pytest.mark.slow)
    for n, a in enumerate(algorithms.SMALL)
]


def halved(algorithm: Algorithm) -> Iterator[Nest]:
    """Nests with a kernel, no two of one source."""
    found = set[str]()
    for nest in starting_nests(algorithm, "trn2"):
        for made in on_two_cores(algorithm, nest, "trn2"):
            with contextlib.suppress(NotNested):
                source = lower_nest(algorithm, made, target="trn2", dialect="nki").source
                if source not in found:
                    found.add(source)
                    yield made


@pytest.mark.parametrize("algorithm", [*SOME, MIXED], ids=lambda a: a.name)
def test_halves_on_two_cores_are_the_whole(algorithm: Algorithm) -> None:
    for nest in itertools.islice(halved(algorithm), 3):
        source = lower_nest(algorithm, nest, target="trn2", dialect="nki").source
        assert "nl.program_id(0)" in source and source.endswith(f"kernel = kernel[{CORES}]\n")
        check(algorithm, nest, "nki")


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 40))]
)
def test_halves_of_random_algorithms(seed: int) -> None:
    algorithm = random_algorithm(seed)
    for nest in itertools.islice(halved(algorithm), 2):
        check(algorithm, nest, "nki")


def test_a_core_brings_what_lies_between_at_once() -> None:
    """Gates and values side by side: either core's half was brought by two bytes."""
    pairs = algorithms.written(
        "pairs", {"m": 256 * 512}, {"x": (256 * 512, 2)}, "out[m] = x[m, 0] * x[m, 1]"
    )
    whole = default_nest(pairs, "trn2")
    halves = Cores(definition="out", axis=prepared(pairs).definitions[-1].axes[0].name)
    for nest in (whole, applied(halves, pairs, whole, "trn2", "nki")):
        source = lower_nest(pairs, nest, target="trn2", dialect="nki").source
        assert len(re.findall(r"src=x\.ap\(", source)) == 1, source
        assert re.search(r"src=x\.ap\(\s*\[\[\d+, \d+\], \[1, \d+\]\]", source), source


def test_a_core_waits_for_what_it_reads_of_the_other() -> None:
    """The rows of the first sum are what the second sums over: halves of both are on both cores."""
    sources = [lower_nest(MIXED, n, target="trn2", dialect="nki").source for n in halved(MIXED)]
    apart = [text for text in sources if "core_barrier(total" in text]
    assert apart and all(
        "total_hbm" not in text or "buffer=nl.shared_hbm" in text for text in apart
    )


def test_what_has_no_halves_stays_on_one_core() -> None:
    softmax = algorithms.softmax(256, 96)
    nest = default_nest(softmax, "trn2")
    out = prepared(softmax).definitions[-1]
    rows = Cores(definition=out.out, axis=out.axes[0].name)
    applied(rows, softmax, nest, "trn2", "nki")
    with pytest.raises(NotNested, match="trn1 has no launch on two cores in nki"):
        applied(rows, softmax, nest, "trn1", "nki")
    with pytest.raises(NotNested, match="trn2 has no launch on two cores in neuronxcc"):
        applied(rows, softmax, nest, "trn2")
    columns = Cores(definition=out.out, axis=out.axes[1].name)
    with pytest.raises(NotNested, match="has no half for each core, and both would store"):
        applied(columns, softmax, nest, "trn2", "nki")
    odd = algorithms.softmax(255, 96)
    with pytest.raises(NotNested, match=r"the 255 of . are not cut into parts of 127"):
        applied(rows, odd, default_nest(odd, "trn2"), "trn2", "nki")


@pytest.mark.parametrize("launch", LAUNCHES)
def test_the_launch_on_two_cores_stays_as_its_author_wrote_it(launch: str, tmp_path: Path) -> None:
    path, source = tmp_path / "own.py", TWO_CORES.format(launch=launch)
    path.write_text(source)
    lifted = lifted_kernel(source, path, {"x": ParameterFacts((512, 64), "float32")}, "trn2")
    assert lifted.interface.cores == CORES
    one, two = default_nest(lifted.algorithm, "trn2"), next(halved(lifted.algorithm))
    assert launch in lifted.authored(lifted.lowered(two, "trn2").source)
    assert "[2]" not in lifted.authored(lifted.lowered(one, "trn2").source)


@pytest.mark.parametrize(
    "launch", ["", "\nkernel = scaled\n", "\ndef run(x):\n    return scaled(x)\n"]
)
def test_a_kernel_of_one_core_may_be_given_both(launch: str, tmp_path: Path) -> None:
    path, source = tmp_path / "own.py", TWO_CORES.replace("{launch}", launch)
    path.write_text(source)
    lifted = lifted_kernel(source, path, {"x": ParameterFacts((512, 64), "float32")}, "trn2")
    assert lifted.interface.cores == 1 and lifted.on_cores(2).interface.cores == CORES
    text = lifted.authored(lifted.lowered(next(halved(lifted.algorithm)), "trn2").source)
    assert text.count("scaled[2]") == 1
    given = np.random.default_rng(3).normal(size=(512, 64)).astype(np.float32)
    (found,) = computed(text, [given], "trn2")
    assert np.allclose(found, np.exp(given) * 0.5, rtol=1e-5)

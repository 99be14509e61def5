"""Blocks that masks by position empty are left out, whatever the masks are made of."""

import pytest

from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.nest import NotNested
from accelopt.kernels.nki.nests.primitives import Skip, applied
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.sim.dialects.dialect import Dialect
from tests.kernels.nki.lift import algorithms
from tests.kernels.nki.nests.test_nests import TARGETS, check

SCORE = "s[m, l] * 0.25"
MASKS = {
    "behind the query": f"{SCORE} if m - l >= 0 else -1e30",
    "a band": f"{SCORE} if m - l >= 0 and l - m + 127 >= 0 else -1e30",
    "a band and the first keys": (
        f"({SCORE} if m - l >= 0 else -1e30) if 3 - l >= 0 else "
        f"({SCORE} if l - m + 127 >= 0 and m - l >= 0 else -1e30)"
    ),
    "a band, or what is far before": (
        f"{SCORE} if m - l - 300 >= 0 else ({SCORE} if l - m + 100 >= 0 and m - l >= 0 else -1e30)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("mask", MASKS)
def test_what_conditions_leave_is_computed_alone(mask: str, dialect: Dialect) -> None:
    """Of scores that comparisons of positions choose, joined by and and or, blocks that the whole condition
    empties are neither multiplied nor summed, also between two that are left. Evidence: exp of a large negative
    number is 0 in fp32, and 0 adds nothing."""
    attention = algorithms.written(
        "attention", {"m": 512, "l": 512, "j": 32, "n": 32}, {"q": (512, 32), "k": (512, 32)},
        "s[m, l] = add[j](q[m, j] * k[l, j])",
        f"p[m, l] = {MASKS[mask]}",
        "largest[m] = maximum[l](p[m, l])",
        "e[m, l] = exp(p[m, l] - largest[m])",
        "out[m, n] = add[l](e[m, l] * k[l, n])",
    )  # fmt: skip
    starts = starting_nests(attention, TARGETS[dialect])
    found = [n for n in starts if len(n.stages) == 1 and n.stages[0].skipped]
    assert found
    for nest in found[:4]:
        whole = nest.model_copy(
            update={"stages": (nest.stages[0].model_copy(update={"skipped": ()}),)}
        )
        made, all_of_it = (
            lower_nest(attention, n, target=TARGETS[dialect], dialect=dialect).price
            for n in (nest, whole)
        )
        assert made.engines["tensor"] < 0.9 * all_of_it.engines["tensor"]
        check(attention, nest, dialect)


@pytest.mark.parametrize("combiner", ["maximum", "add"])
def test_what_is_combined_over_a_mask_is_one_number(combiner: str) -> None:
    """Where a mask changes in the middle of what is combined, all of it counts. Evidence: the number itself, which a
    softmax hides."""
    none = {"maximum": -3e38, "add": 0.0}[combiner]
    found = algorithms.written(
        "extreme", {"m": 512, "l": 512, "j": 32, "n": 32}, {"q": (512, 32), "k": (512, 32), "b": (512,)},
        "s[m, l] = add[j](q[m, j] * k[l, j])",
        "p[m, l] = s[m, l] * 0.25 + b[l]",
        f"c[m] = {combiner}[l](p[m, l] if m - l >= 0 else {none})",
        "t[m] = add[l](exp(p[m, l] - 99.0) if m - l >= 0 else 0.0)",
        "out[m] = c[m] + t[m]",
    )  # fmt: skip
    nests = [n for n in starting_nests(found, "trn2") if len(n.stages) == 1 and n.stages[0].skipped]
    assert nests
    for nest in nests[:3]:
        check(found, nest, "nki")


def test_what_a_later_stage_reads_in_sbuf_is_computed_everywhere() -> None:
    """As it is where that goes through HBM: what the mask leaves out was never written."""
    causal = next(known for known in algorithms.SMALL if known.name == "causal_attention")
    masked = next(
        nest
        for nest in starting_nests(causal, "trn2")
        if "s_masked" in nest.held and any(s.members == ("s_masked",) for s in nest.stages)
    )
    with pytest.raises(NotNested):
        applied(Skip(definition="s_masked", axes=("l",)), causal, masked, "trn2", "nki")

"""Sums as columns of products, definitions computed again for some of their readers, inputs that stay in SBUF for all.

Evidence: `evaluate` in fp64 of the Algorithm as it was; the simulated core's numbers for the kernels that
nests of both make.
"""

from dataclasses import replace

import numpy as np
import pytest
from warm import computed

from accelopt.algorithm.ir import Algorithm
from accelopt.kernels.nki.nests.computed_together import (
    NotTogether,
    appended,
    appending,
    repeated,
    repeating,
    shared,
    sharing,
)
from accelopt.kernels.nki.nests.diagonals import diagonals
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.nest import NotNested, default_nest, product_in, ready
from accelopt.kernels.nki.nests.primitives import (
    Append,
    Diagonal,
    Hold,
    Repeat,
    Share,
    Sum,
    applied,
)
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.kernels.nki.nests.value_graphs import Reading
from accelopt.sim.dialects.dialect import Dialect
from accelopt.sim.dtypes import parse
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift.algorithms import written


def attention(shift: float, until: str = "out", *lines: str) -> Algorithm:
    """Linear attention: a state, a sum over keys that a normal form took a summand out of, their quotient; or
    up to one definition, and others in place of the rest."""
    fk = f"maximum(k[b, j, l], 0.0) + {shift}" if shift else "exp(k[b, j, l])"
    fq = f"(maximum(q[b, m, l], 0.0) + {shift})"
    definitions = {
        "total": f"total[b, l] = add[j]({'maximum(k[b, j, l], 0.0)' if shift else fk})",
        "norm": f"norm[b, m] = add[l]({fq} * {f'(total[b, l] + {shift * 256})' if shift else 'total[b, l]'})",
        "state": f"state[b, n, l] = add[j](v[b, j, n] * ({fk}))",
        "wide": f"wide[b, m, n] = add[l](state[b, n, l] * {fq})",
        "out": "out[b, m, n] = wide[b, m, n] / norm[b, m]",
    }
    kept = list(definitions.values())[: list(definitions).index(until) + 1]
    sizes = {"b": 2, "j": 256, "m": 256, "l": 32, "n": 32}
    inputs = {"q": (2, 256, 32), "k": (2, 256, 32), "v": (2, 256, 32)}
    return written("attention", sizes, inputs, *kept, *lines)


def both_ways() -> Algorithm:
    """The largest of a product by rows and by columns."""
    return written(
        "both_ways", {"m": 256, "k": 256, "l": 32}, {"a": (32, 256), "c": (32, 256)},
        "product[k, m] = add[l](a[l, k] * c[l, m])",
        "by_row[k] = maximum[m](product[k, m])",
        "by_column[m] = maximum[k](product[k, m])",
        "out[m] = by_row[m] - by_column[m]",
    )  # fmt: skip


def column_norm() -> Algorithm:
    """Each column of an input over its sum of squares, times a gain."""
    return written(
        "norm", {"m": 256, "n": 32}, {"x": (256, 32), "gain": (32,)},
        "total[n] = add[m](square(x[m, n]))",
        "out[m, n] = x[m, n] * (gain[n] / total[n])",
    )  # fmt: skip


def column_moments() -> Algorithm:
    """The largest, the sum and the sum of squares about the mean of each column."""
    return written(
        "moments", {"m": 256, "n": 128}, {"x": (256, 128)},
        "top[n] = maximum[m](abs(x[m, n]))",
        "total[n] = add[m](x[m, n])",
        "spread[n] = add[m](square(x[m, n] - total[n] * 0.00390625))",
        "out[n] = top[n] + spread[n] / 256.0 - total[n]",
    )  # fmt: skip


def scaled_step() -> Algorithm:
    """A step in the direction of a mean, as long as all of what it changes is, and the mean."""
    direction = "(mean[m, n] * 0.9 + x[m, n] * 0.1 + w[m, n] * 0.01)"
    return written(
        "step", {"m": 256, "n": 64}, dict.fromkeys(("x", "mean", "w"), (256, 64)),
        "long = add[m, n](square(w[m, n]))",
        f"wide = add[m, n](square{direction})",
        f"out[m, n] = w[m, n] - {direction} * sqrt(long[()]) / sqrt(wide[()])",
    )  # fmt: skip


def taps() -> Algorithm:
    """A depthwise filter over time, and three tiles that are added up with numbers by row, both of two blocks of rows."""
    made = written(
        "taps", {"m": 256, "t": 128, "w": 3},
        {"x": (256, 130), "w": (256, 3), **dict.fromkeys("abc", (256, 128))},
        "filtered[m, t] = add[w](x[m, t + w] * w[m, w])",
        "out[m, t] = maximum(a[m, t] * w[m, 1] - b[m, t] + c[m, t] * 0.5 + 1.0, 0.0)",
    )  # fmt: skip
    return replace(made, inputs=tuple(replace(one, dtype="bfloat16") for one in made.inputs))


def given(algorithm: Algorithm) -> dict[str, np.ndarray]:
    """Numbers for its inputs."""
    draw = np.random.default_rng(3)
    return {a.name: draw.normal(size=a.shape).astype(parse(a.dtype)) for a in algorithm.inputs}


def told(algorithm: Algorithm) -> np.ndarray:
    """Its result in fp64."""
    numbers = {name: a.astype(np.float64) for name, a in given(algorithm).items()}
    (found,) = evaluate(algorithm, numbers)
    return found


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_sums_become_columns(shift: float) -> None:
    """One sum makes the next one a column; what a normal form took out of a sum is there again."""
    whole = attention(shift)
    made = appended(appended(whole, "total", "state"), "norm", "wide")
    assert [d.out for d in made.definitions] == ["state", "wide", "out"]
    assert made.definition("state").axes[1].extent == 32 + 1
    np.testing.assert_allclose(told(made), told(whole), rtol=1e-9)
    assert list(appending(made)) == []


def test_what_is_no_column() -> None:
    """Refusals name both definitions and the reason."""
    whole = attention(0.5)
    with pytest.raises(NotTogether, match="norm sums nothing that state multiplies"):
        appended(whole, "norm", "state")
    with pytest.raises(NotTogether, match="wide is a result"):
        appended(attention(0.5, "wide"), "norm", "wide")
    bare = attention(0.5, "state", "out[b, l] = sqrt(total[b, l])")
    with pytest.raises(NotTogether, match="total lacks 128 of what state multiplies"):
        appended(bare, "total", "state")


def test_a_product_again_for_its_columns() -> None:
    """It is computed with other axes first, right before those that read it."""
    whole = both_ways()
    (first, *_) = found = [steps[0] for steps in repeating(whole)]
    assert found == [("product", ("by_row",)), ("product", ("by_column",))]
    made = repeated(whole, *first)
    assert [d.out for d in made.definitions] == [
        "product", "by_column", "product_again", "by_row", "out"]  # fmt: skip
    np.testing.assert_allclose(told(made), told(whole), rtol=1e-9)
    with pytest.raises(NotTogether, match="out are not some of those that read product"):
        repeated(whole, "product", ("out",))


def test_what_waits_for_a_sum_is_computed_once() -> None:
    """The direction of a step, before all that waits for sums."""
    whole = scaled_step()
    assert [*sharing(whole)] == [("wide", "out")]
    made = shared(whole, "wide", "out")
    assert [d.out for d in made.definitions] == ["wide_shared", "long", "wide", "out"]
    np.testing.assert_allclose(told(made), told(whole), rtol=1e-9)
    nest = applied(Share(definition="wide_parts", reader="out"), whole, default_nest(whole))
    assert nest.stages[0].members == ("wide_parts_shared",)
    with pytest.raises(NotNested, match="out computes nothing that long, which it waits for, does"):
        applied(Share(definition="long", reader="out"), whole, default_nest(whole))


def test_sums_by_diagonals() -> None:
    """One block of the diagonal for each block of rows; narrow operands are multiplied as they are."""
    whole = taps()
    assert list(diagonals(whole)) == [("filtered", "m"), ("out", "m")]
    nest = applied(Diagonal(definition="filtered", axis="m"), whole, default_nest(whole))
    nest = applied(Diagonal(definition="out", axis="m"), whole, nest)
    made = ready(whole, nest)
    np.testing.assert_allclose(told(made), told(whole), rtol=1e-9)
    formats = {name: m.product.dtype for name, m in Reading(made).meanings.items() if m.product}
    assert formats == {
        "filtered": "bfloat16",
        "out_0": "bfloat16",
        "out_1": "bfloat16",
        "out_2": "bfloat16",
    }
    with pytest.raises(NotNested, match="filtered adds no 3 operands that are scaled along t"):
        applied(Diagonal(definition="filtered", axis="t"), whole, default_nest(whole))


def test_primitives_say_why_not() -> None:
    """As changes of a nest they are legal or refused."""
    whole = both_ways()
    nest = default_nest(whole)
    made = applied(Repeat(definition="product", readers=("by_row",)), whole, nest)
    assert "product_again" in {d.out for d in ready(whole, made).definitions}
    with pytest.raises(NotNested, match="by_row sums nothing that product multiplies"):
        applied(Append(definition="by_row", product="product"), whole, nest)
    norm = column_norm()
    held = applied(Hold(definition="x", memory="SBUF"), norm, default_nest(norm))
    assert [stage.members for stage in held.stages] == [("x_here",), ("total",), ("out",)]
    assert applied(Hold(definition="x", memory="HBM"), norm, held) == default_nest(norm)
    with pytest.raises(NotNested, match="out is no sum that is taken as a product with ones"):
        applied(Sum(definition="out", over="free"), norm, default_nest(norm))
    free = applied(Sum(definition="total", over="free"), norm, default_nest(norm))
    assert product_in(ready(norm, free).definition("total")) is None
    assert applied(Sum(definition="total", over="partitions"), norm, free) == default_nest(norm)
    norms = attention(0.0)
    for definition, product in (("total", "state"), ("norm", "wide")):
        nest = default_nest(norms) if definition == "total" else made
        made = applied(Append(definition=definition, product=product), norms, nest)
    assert [stage.members for stage in made.stages] == [("state",), ("wide",), ("out",)]


@pytest.mark.parametrize(
    "whole, target",
    [
        (attention(0.5), "trn2"),
        (both_ways(), "trn1"),
        (column_norm(), "trn2"),
        (taps(), "trn1"),
        (column_moments(), "trn2"),
        (scaled_step(), "trn1"),
    ],
)
def test_kernels_of_them_compute_the_same(whole: Algorithm, target: str) -> None:
    """The first and the last of the nests that a search begins with, of each kind."""
    nests = [
        n
        for n in starting_nests(whole, target)
        if n.appended or n.repeated or n.brought or n.shared or n.diagonals or n.along_free
    ]
    chosen = [nests[0], nests[-1], max(nests, key=lambda nest: len(nest.contracted))]
    dialect: Dialect = "nki" if target == "trn2" else "neuronxcc"
    for nest in chosen:
        source = lower_nest(whole, nest, target=target, dialect=dialect).source
        (found,) = computed(source, list(given(whole).values()), target)
        np.testing.assert_allclose(found, told(whole), rtol=2e-4, atol=2e-5)

"""Sums as columns of products, definitions computed again for some of their readers, inputs that stay in SBUF for all.

Evidence: `evaluate` in fp64 of the Algorithm as it was; the simulated core's numbers for the kernels that
nests of both make.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from warm import core

from accelopt.algorithm.evaluation import evaluate
from accelopt.algorithm.index import Axis, index_of
from accelopt.algorithm.ir import Algorithm, Array, Map, Read, Reduce
from accelopt.kernels.nki.devices.protocol import TensorArgument
from accelopt.kernels.nki.nests.computed_together import (
    NotTogether,
    appended,
    appending,
    repeated,
    repeating,
)
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.nest import NotNested, default_nest, ready
from accelopt.kernels.nki.nests.primitives import Append, Hold, Repeat, applied
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.sim.dialects.dialect import Dialect
from tests.kernels.nki.lift.algorithms import apply, read

B, J, M, K, L, N = (
    Axis(name, extent) for name, extent in zip("bjmkln", (2, 256, 256, 256, 32, 32), strict=True)
)


def array(name: str, *axes: Axis) -> Array:
    """An array of fp32 with these axes."""
    shape = tuple(axis.extent for axis in axes)
    return Array(name, shape, "float32", shape)


def attention(shift: float) -> Algorithm:
    """Linear attention: a state, a sum over keys that a normal form took a summand out of, their quotient."""
    fk = apply("add", apply("maximum", read("k", B, J, L), 0.0), shift)
    fq = apply("add", apply("maximum", read("q", B, M, L), 0.0), shift)
    total = fk.arguments[0] if shift else apply("exp", read("k", B, J, L))
    back = apply("add", read("total", B, L), shift * J.extent) if shift else read("total", B, L)
    fk = fk if shift else apply("exp", read("k", B, J, L))
    out = array("out", B, M, N)
    return Algorithm("attention", (array("q", B, M, L), array("k", B, J, L), array("v", B, J, N)), (
        Reduce("total", (B, L), (J,), "add", total),
        Reduce("norm", (B, M), (L,), "add", apply("multiply", fq, back)),
        Reduce("state", (B, N, L), (J,), "add", apply("multiply", read("v", B, J, N), fk)),
        Reduce("wide", (B, M, N), (L,), "add", apply("multiply", read("state", B, N, L), fq)),
        Map("out", (B, M, N), apply("divide", read("wide", B, M, N), read("norm", B, M))),
    ), (out,))  # fmt: skip


def both_ways() -> Algorithm:
    """The largest of a product by rows and by columns."""
    place = (index_of(M),)
    return Algorithm("both_ways", (array("a", L, K), array("c", L, M)), (
        Reduce("product", (K, M), (L,), "add", apply("multiply", read("a", L, K), read("c", L, M))),
        Reduce("by_row", (K,), (M,), "maximum", read("product", K, M)),
        Reduce("by_column", (M,), (K,), "maximum", read("product", K, M)),
        Map("out", (M,), apply("subtract", Read("by_row", place), Read("by_column", place))),
    ), (array("out", M),))  # fmt: skip


def column_norm() -> Algorithm:
    """Each column of an input over its sum of squares, times a gain."""
    scale = apply("divide", read("gain", N), read("total", N))
    return Algorithm("norm", (array("x", M, N), array("gain", N)), (
        Reduce("total", (N,), (M,), "add", apply("square", read("x", M, N))),
        Map("out", (M, N), apply("multiply", read("x", M, N), scale)),
    ), (array("out", M, N),))  # fmt: skip


def given(algorithm: Algorithm) -> dict[str, np.ndarray]:
    """Numbers for its inputs."""
    draw = np.random.default_rng(3)
    return {a.name: draw.normal(size=a.shape).astype(np.float32) for a in algorithm.inputs}


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
    assert made.definition("state").axes[1].extent == N.extent + 1
    np.testing.assert_allclose(told(made), told(whole), rtol=1e-9)
    assert list(appending(made)) == []


def test_what_is_no_column() -> None:
    """Refusals name both definitions and the reason."""
    whole = attention(0.5)
    with pytest.raises(NotTogether, match="norm sums nothing that state multiplies"):
        appended(whole, "norm", "state")
    with pytest.raises(NotTogether, match="wide is a result"):
        appended(Algorithm("a", whole.inputs, whole.definitions[:4], (array("wide", B, M, N),)),
                 "norm", "wide")  # fmt: skip
    reader = Map("out", (B, L), apply("sqrt", read("total", B, L)))
    bare = Algorithm("a", whole.inputs, (*whole.definitions[:3], reader), (array("out", B, L),))
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


def test_primitives_say_why_not() -> None:
    """As changes of a nest they are legal or refused."""
    whole = both_ways()
    nest = default_nest(whole)
    made = applied(Repeat(definition="product", readers=("by_row",)), whole, nest)
    assert "product_again" in {d.out for d in ready(whole, made).definitions}
    with pytest.raises(NotNested, match="by_row sums nothing that product multiplies"):
        applied(Append(definition="by_row", product="product"), whole, nest)
    norm = column_norm()
    with pytest.raises(NotNested, match="gain is not read by several definitions"):
        applied(Hold(definition="gain", memory="SBUF"), norm, default_nest(norm))
    held = applied(Hold(definition="x", memory="SBUF"), norm, default_nest(norm))
    assert [stage.members for stage in held.stages] == [("x_here",), ("total",), ("out",)]
    assert applied(Hold(definition="x", memory="HBM"), norm, held) == default_nest(norm)
    norms = attention(0.0)
    for definition, product in (("total", "state"), ("norm", "wide")):
        nest = default_nest(norms) if definition == "total" else made
        made = applied(Append(definition=definition, product=product), norms, nest)
    assert [stage.members for stage in made.stages] == [("state",), ("wide",), ("out",)]


@pytest.mark.parametrize(
    "whole, target", [(attention(0.5), "trn2"), (both_ways(), "trn1"), (column_norm(), "trn2")]
)
def test_kernels_of_them_compute_the_same(whole: Algorithm, target: str, tmp_path: Path) -> None:
    """The first and the last of the nests that a search begins with, of each kind."""
    nests = [n for n in starting_nests(whole, target) if n.appended or n.repeated or n.brought]
    chosen = [nests[0], nests[-1], max(nests, key=lambda nest: len(nest.contracted))]
    dialect: Dialect = "nki" if target == "trn2" else "neuronxcc"
    inputs = given(whole)
    for number, nest in enumerate(chosen):
        path = tmp_path / f"kernel{number}.py"
        path.write_text(lower_nest(whole, nest, target=target, dialect=dialect).source)
        arguments = [TensorArgument(a.shape, a.dtype) for a in whole.inputs]
        kernel = core(target).compile(str(path), arguments)
        (found,) = kernel.run([inputs[a.name] for a in whole.inputs])
        np.testing.assert_allclose(found, told(whole), rtol=2e-4, atol=2e-5)

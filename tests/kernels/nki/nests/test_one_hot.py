"""Sums that one hit of a comparison picks from are reads of that element.

Evidence: `evaluate` in fp64 of the Algorithm as it was, with numbers inside and outside of the axis; the
simulated core's numbers for the kernels that nests make of it.
"""

import numpy as np
import pytest
from warm import computed

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, index_of
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.one_hot_removal import places_found, without_one_hot
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.sim.dialects.dialect import Dialect
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift.algorithms import apply, read, times

M, N, K = Axis("m", 64), Axis("n", 32), Axis("k", 40)
HIT = ir.Apply("equal", (ir.Position(index_of(K)), read("t", M)))
SHIFTED = ir.Apply("equal", (read("t", M), ir.Position(index_of(K) + 3)))
LOSS = apply("subtract", read("x", M, K), apply("log", apply("exp", read("x", M, K))))
INPUTS = (
    ir.Array("x", (64, 40), "float32", (64, 40)),
    ir.Array("w", (40, 32), "float32", (40, 32)),
    ir.Array("t", (64,), "int32", (64, 1)),
)


def summed(*axes: Axis, of: ir.Expression, over: tuple[Axis, ...] = (K,)) -> ir.Algorithm:
    """The sum of an expression."""
    shape = tuple(axis.extent for axis in axes)
    out = ir.Array("out", shape, "float32", shape)
    return ir.Algorithm("summed", INPUTS, (ir.Reduce("out", axes, over, "add", of),), (out,))


SUMS = {
    "a loss": summed(M, of=times(HIT, LOSS)),
    "rows of a table": summed(M, N, of=times(HIT, read("w", K, N))),
    "a place that is counted from elsewhere": summed(M, of=times(read("x", M, K), SHIFTED)),
    "smoothed labels": summed(
        M, of=times(apply("add", times(HIT, 0.9), 0.1 / 40), apply("square", read("x", M, K)))
    ),
    "the number of hits": summed(M, of=HIT),
    "a sum over more": summed(
        M, of=times(HIT, read("w", K, N), read("x", M, K)), over=(K, N)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_a_hit_is_a_read(name: str) -> None:
    algorithm = SUMS[name]
    found = without_one_hot(algorithm)
    expressions = [e for d in found.definitions for e in ir.expressions_of(d)]
    parts = {p for e in expressions for p in ir.walk(e)}
    assert not parts & {HIT, SHIFTED}
    gathers = sum(isinstance(part, ir.Indirect) for part in parts)
    assert bool(gathers) == (name != "the number of hits")
    chance = np.random.default_rng(2)
    given = {
        "x": chance.standard_normal((64, 40)),
        "w": chance.standard_normal((40, 32)),
        "t": chance.integers(-5, 50, 64),
    }
    (wanted,), (got,) = evaluate(algorithm, given), evaluate(found, given)
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
    nest = [*starting_nests(algorithm)][-1]
    arrays = [given[a.name].reshape(a.given).astype(a.dtype) for a in INPUTS]
    (run,) = computed(lower_nest(algorithm, nest).source, arrays)
    np.testing.assert_allclose(run, wanted, rtol=1e-4, atol=1e-5)


def test_what_is_no_hit_stays() -> None:
    """A maximum, a number that is no integer, and an element of what another definition computes."""
    real = ir.Apply("equal", (ir.Position(index_of(K)), read("x", M, K)))
    stays = summed(M, of=times(real, LOSS))
    assert without_one_hot(stays) == stays
    largest = ir.Reduce("out", (M,), (K,), "maximum", times(HIT, LOSS))
    computed = (
        ir.Map("y", (M, K), apply("exp", read("x", M, K))),
        ir.Reduce("out", (M,), (K,), "add", times(HIT, ir.Read("y", (index_of(M), index_of(K))))),
    )
    for definitions in ((largest,), computed):
        algorithm = ir.Algorithm("kept", INPUTS, definitions, stays.outputs)
        assert without_one_hot(algorithm) == algorithm


@pytest.mark.parametrize("dialect", ["neuronxcc", "nki"])
def test_the_first_place_of_the_largest_is_found_with_it(dialect: Dialect) -> None:
    """The least place of elements that equal the largest, of which there are several in most rows; of the smallest
    it is another number."""
    score = apply("subtract", times(read("x", M, K), 2.0), read("w", K, 0))
    places = tuple(
        ir.Reduce(f"{name}_at", (M,), (K,), "minimum", ir.Apply("select", (
            ir.Apply("equal", (score, read(name, M))), ir.Position(index_of(K)), ir.Constant(40.0))))
        for name in ("most", "least")
    )  # fmt: skip
    most = ir.Reduce("most", (M,), (K,), "maximum", score)
    least = ir.Reduce("least", (M,), (K,), "minimum", score)
    outputs = tuple(ir.Array(p.out, (64,), "uint32", (64, 1)) for p in places)
    algorithm = ir.Algorithm("nearest", INPUTS, (most, least, *places), outputs)
    found = places_found(algorithm)
    combiners = [d.combiner for d in found.definitions if isinstance(d, ir.Reduce)]
    assert combiners == ["maximum", "minimum", "place_1", "minimum"]
    chance = np.random.default_rng(3)
    given = {a.name: chance.integers(-3, 4, a.shape) for a in INPUTS}
    wanted = evaluate(algorithm, given)
    np.testing.assert_array_equal(evaluate(found, given), wanted)
    nest = next(n for n in starting_nests(algorithm) if len(n.stages) == 1)
    arrays = [given[a.name].reshape(a.given).astype(a.dtype) for a in INPUTS]
    target = {"neuronxcc": "trn1", "nki": "trn2"}[dialect]
    source = lower_nest(algorithm, nest, target=target, dialect=dialect).source
    assert source.count("nc_find_index8") == 1
    run = computed(source, arrays, target)
    np.testing.assert_array_equal(run, wanted)

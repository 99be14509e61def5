"""Terms that differ by the constants of their indices are one.

Evidence: five Newton-Schulz steps written by a stranger did not lift in 60 s, and now do in 10 s, to three products
a step: values that share parts have, written out, as many as there are powers of two. A pooling of two halves of a sequence, each divided
by the sum of weights, was two poolings.
"""

from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.rerolling import progression, rolled
from accelopt.algorithm.value_nodes import Element, Fold, Product, Value
from accelopt.algorithm.values import Values


def test_values_that_share_parts_are_not_written_out() -> None:
    """Forty products of a value and a function of it: 2**40 parts, of which 80 are different ones."""
    values, axis = Values(), Axis("m", 8)

    def tower(number: int) -> Value:
        value: Value = values.same(Element("x", 0, "float32", index_of(axis) + number))
        for _ in range(40):
            value = apply(values, "maximum", [apply(values, "tanh", [value]), value])
        return value

    found = progression(values, [tower(0), tower(1), tower(2)])
    assert found is not None and found[0].extent == 3
    assert values.substitute(found[1], {found[0]: Index(2)}) is tower(2)
    assert progression(values, [tower(0), tower(1), tower(3)]) is None


def test_two_sums_with_one_divisor_are_one_sum() -> None:
    values, half, every = Values(), Axis("k", 4), Axis("n", 8)

    def element(array: str, index: object) -> Value:
        return values.same(Element(array, 0, "float32", index))  # type: ignore[arg-type]

    total = fold(values, "add", [every], element("w", index_of(every)))
    halves = [
        values.product(
            [(fold(values, "add", [half], element("x", index_of(half) + at)), 1.0), (total, -1.0)]
        )
        for at in (0, 4)
    ]
    found = rolled(values, values.sum([(one, 1.0) for one in halves]))
    assert isinstance(found, Product)
    (sum_,) = [f for f, power in found.factors if isinstance(f, Fold) and power == 1]
    assert isinstance(sum_, Fold) and {axis.extent for axis in sum_.axes} in ({2, 4}, {8})
    other = values.sum([(halves[0], 1.0), (values.product([(halves[1], 1.0), (total, -1.0)]), 1.0)])
    assert rolled(values, other) == other

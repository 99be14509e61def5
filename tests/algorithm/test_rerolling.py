"""Values that share parts, written out, have as many as there are powers of two.

Evidence: five Newton-Schulz steps of a public optimiser took minutes to lift, and now 15 s.
"""

from accelopt.algorithm.index import Axis, index_of
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.rerolling import MOST_PARTS, progression
from accelopt.algorithm.value_nodes import Element, Value
from accelopt.algorithm.values import Values


def test_values_that_share_parts_are_not_written_out() -> None:
    """Forty products of a value and a function of it: 2**40 parts, of which 80 are different ones."""
    values, axis = Values(), Axis("m", 8)

    def tower(number: int) -> Value:
        value: Value = values.same(Element("x", 0, "float32", index_of(axis) + number))
        for _ in range(40):
            value = apply(values, "maximum", [apply(values, "tanh", [value]), value])
        return value

    assert MOST_PARTS < 2**40 and progression(values, [tower(0), tower(1), tower(2)]) is None

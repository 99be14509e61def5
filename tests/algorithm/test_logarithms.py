"""The logarithm of exponentials times a rest is a sum: neither may be in fp32's range where that is."""

from accelopt.algorithm.index import Axis, index_of
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.value_nodes import Application, Element
from accelopt.algorithm.values import Values


def test_the_logarithm_of_a_softmax_has_no_quotient() -> None:
    values, k = Values(), Axis("k", 8)
    x, total = (values.same(Element(n, 0, "float32", index_of(k))) for n in ("x", "total"))
    softmax = apply(values, "divide", [apply(values, "exp", [x]), total])
    wanted = values.sum([(x, 1.0), (apply(values, "log", [total]), -1.0)])
    assert apply(values, "log", [softmax]) == wanted
    assert apply(values, "exp", [wanted]) == softmax
    assert apply(values, "log", [apply(values, "exp", [x])]) == x
    doubled = apply(values, "log", [values.product([(softmax, 1.0)], 2.0)])
    assert doubled == values.sum(
        [(x, 1.0), (apply(values, "log", [values.product([(total, 1.0)], 0.5)]), -1.0)]
    )


def test_other_logarithms_stay() -> None:
    """The factors of a quotient may both be negative."""
    values, k = Values(), Axis("k", 8)
    x, y = (values.same(Element(n, 0, "float32", index_of(k))) for n in ("x", "y"))
    for inside in (x, apply(values, "divide", [x, y]), apply(values, "add", [x, y])):
        assert apply(values, "log", [inside]) == values.same(Application("log", (inside,)))

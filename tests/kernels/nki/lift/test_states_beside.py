"""Recurrences whose states a loop writes beside each other, one step from where it reads: exact by the
simulated core, whose tests prove it."""

import numpy as np
import pytest
from kernel_heads import nki_of
from lifted_text import check_nests, lifted, traced

from accelopt.algorithm.ir import Scan
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift

KERNEL = nki_of("x, gate")("""
for r in range(x.shape[0] // 64):
    a, g = nl.load(x[r * 64:(r + 1) * 64, :]), nl.load(gate[r * 64:(r + 1) * 64, :])
    h = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
    {first}
    for t in nl.sequential_range({start}, {stop}):
        {body}
    nl.store(out[r * 64:(r + 1) * 64, :], {result})
""")
COPY = "nisa.tensor_copy(dst=h[:, {0}:{0} + 1], src=a[:, {0}:{0} + 1])"
AVERAGE = """s = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=s, data1=h[:, {before}:{before} + 1], data2=g[:, {now}:{now} + 1], op=nl.multiply)
            nisa.scalar_tensor_tensor(dst=h[:, {now}:{now} + 1], data=a[:, {now}:{now} + 1], op0=nl.multiply, operand0=0.1, op1=nl.add, operand1=s)"""
LARGEST = "nisa.tensor_tensor(dst=h[:, {now}:{now} + 1], data1=h[:, {before}:{before} + 1], data2=a[:, {now}:{now} + 1], op=nl.maximum)"
FORWARD = {"first": COPY.format(0), "start": 1, "stop": 24, "result": "h"}
BACKWARD = {"first": COPY.format(23), "start": 1, "stop": 24, "result": "h"}
LATER = FORWARD | {"result": "nl.multiply(h, a)"}
ON = {"now": "t", "before": "t - 1"}
BACK = {"now": "23 - t", "before": "24 - t"}
STYLES = {
    "an average": FORWARD | {"body": AVERAGE.format(**ON)},
    "an average, used later": LATER | {"body": AVERAGE.format(**ON)},
    "an average from the end": BACKWARD | {"body": AVERAGE.format(**BACK)},
    "the largest": FORWARD | {"body": LARGEST.format(**ON)},
}
RNG = np.random.default_rng(5)
GIVEN = [RNG.uniform(size=(128, 24)).astype(np.float32) for _ in range(2)]


@pytest.mark.parametrize("style", STYLES)
def test_states_beside_each_other_are_a_recurrence(style: str) -> None:
    text = KERNEL.format(**STYLES[style])
    one = lifted(text, GIVEN)
    assert np.allclose(one.found, one.expected, rtol=1e-5)
    assert any(isinstance(d, Scan) for d in one.algorithm.definitions)
    check_nests(one, GIVEN, rtol=1e-5)


def test_a_recurrence_of_second_order_is_refused_with_its_line() -> None:
    body = "nisa.tensor_tensor(dst=h[:, t:t + 1], data1=h[:, t - 1:t], data2=h[:, t - 2:t - 1], op=nl.add)"
    first = COPY.format(0) + "\n        " + COPY.format(1)
    text = KERNEL.format(first=first, start=2, stop=24, body=body, result="h")
    program = traced(text, GIVEN)
    with pytest.raises(NotLifted, match=r"kernel\.py:\d+: every iteration of this loop"):
        lift(program)

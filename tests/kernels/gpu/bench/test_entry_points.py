"""How outputs are passed is read off the parameters, and what is said explicitly wins."""

import pytest

from accelopt.kernels.gpu.bench.process.entry_points import parameter_limits, passes_destination

# rmsnorm: two inputs, one output
CASES = [
    ("def run(x, w):\n    pass", None, None, False),
    ("def run(x, w, out):\n    pass", None, None, True),
    ("def run(x, w, out):\n    pass", None, False, True),  # impossible to call with two
    ("def run(x, w):\n    pass", None, True, False),  # impossible to call with three
    ("def run(x, w, eps=1e-6):\n    pass", None, None, False),
    ("def run(x, w, eps=1e-6):\n    pass", None, True, True),
    ("def run(*args, **kwargs):\n    pass", None, None, False),
    ("def run(*args, **kwargs):\n    pass", None, True, True),
    ("def run(*args):\n    pass", True, None, True),  # what the solution states settles star args
    ("def run(x, *rest):\n    pass", None, None, False),
    ("def helper(a):\n    pass\ndef run(x, w, *, flag=1):\n    pass", None, None, False),
]


@pytest.mark.parametrize("source, stated, explicit, expected", CASES)
def test_destination(starter, source, stated, explicit, expected):
    plain = starter.solutions["plain_rmsnorm_h4096"]
    spec = plain.spec.model_copy(update={"destination_passing_style": stated})
    solution = plain.with_source(source, "s").model_copy(update={"spec": spec})
    definition = starter.definitions["rmsnorm_h4096"]
    assert passes_destination(solution, definition, explicit) is expected
    assert not stated or parameter_limits(solution) is None

"""How outputs are passed is read off the parameters, and what is said explicitly wins."""

import pytest

from accelopt.kernels.gpu.bench.process.entry_points import parameter_limits, passes_destination

# rmsnorm: two inputs, one output
CASES = [
    ("def run(x, w):\n    pass", None, False),
    ("def run(x, w, out):\n    pass", None, True),
    ("def run(x, w, out):\n    pass", False, True),  # impossible to call with two
    ("def run(x, w):\n    pass", True, False),  # impossible to call with three
    ("def run(x, w, eps=1e-6):\n    pass", None, False),
    ("def run(x, w, eps=1e-6):\n    pass", True, True),
    ("def run(*args, **kwargs):\n    pass", None, False),
    ("def run(*args, **kwargs):\n    pass", True, True),
    ("def run(x, *rest):\n    pass", None, False),
    ("def helper(a):\n    pass\ndef run(x, w, *, flag=1):\n    pass", None, False),
]


@pytest.mark.parametrize("source, explicit, expected", CASES)
def test_destination(starter, source, explicit, expected):
    plain = starter.solutions["plain_rmsnorm_h4096"]
    spec = plain.spec.model_copy(update={"destination_passing_style": None})
    solution = plain.with_source(source, "s").model_copy(update={"spec": spec})
    definition = starter.definitions["rmsnorm_h4096"]
    assert passes_destination(solution, definition, explicit) is expected


def test_what_the_solution_states_settles_star_args(starter):
    plain = starter.solutions["plain_rmsnorm_h4096"]
    spec = plain.spec.model_copy(update={"destination_passing_style": True})
    stated = plain.with_source("def run(*args): pass", "s").model_copy(update={"spec": spec})
    assert passes_destination(stated, starter.definitions["rmsnorm_h4096"])
    assert parameter_limits(stated) is None

"""What a kernel is given is what its reference makes, worked out once."""

from accelopt.caches import VerdictCache
from accelopt.evaluation import Case
from accelopt.kernels.language import LanguageOptions
from accelopt.kernels.nki.inspector import Inspector
from accelopt.sandbox.workers import WorkerPool

KERNEL = "def kernel(x, rows, eps, low, name):\n    return x\n"
REFERENCE = """import numpy as np

COLUMNS = int(np.random.default_rng().integers(2, 100_000))


def get_inputs():
    x = np.random.randn(*[size for size in (8, COLUMNS)]).astype(np.float32)
    return [x, np.ones((8, 1), np.int32), 1e-6, -np.inf, "Infinity"]


def forward(x, rows, eps, low, name):
    return x
"""


def test_arguments_are_those_that_the_reference_makes_once_for_all_runs(tmp_path):
    """A second call of the reference would make another number of columns."""
    task = tmp_path / "reference.py"
    task.write_text(REFERENCE)
    case = Case(problem="p", values={}, task=str(task), kernel=str(tmp_path / "kernel.py"))
    found = []
    for run in ("first", "second"):
        shelf = VerdictCache(tmp_path / "shelf")
        inspector = Inspector(WorkerPool(1), LanguageOptions(tmp_path / run), shelf)
        found.append(inspector.arguments(case, KERNEL))
    assert found[0] == found[1]
    x, rows, eps, low, name = found[0].values()
    assert (
        [*found[0]] == ["x", "rows", "eps", "low", "name"]
        and x.shape[0] == 8
        and x.dtype == "float32"
    )
    assert (rows.shape, rows.dtype) == ((8, 1), "int32") and (eps.shape, eps.value) == ((), 1e-6)
    assert (low.value, name.value) == (float("-inf"), "Infinity")

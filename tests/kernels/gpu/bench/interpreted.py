"""Runs solutions through the Triton interpreter and prints how far each is from its reference.

    TRITON_INTERPRET=1 python interpreted.py < CASES

A case is one JSON line: definition, workload, solution. The interpreter cannot multiply bfloat16
tiles, so definitions with it are run in float16.
"""

import json
import sys
import tempfile
from pathlib import Path

from accelopt.kernels.gpu.bench.files import index_tensors
from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Solution, Trace
from accelopt.kernels.gpu.bench.process.inputs import Draw, InputFactory
from accelopt.kernels.gpu.bench.process.solution_loading import load_entry


def worst_error(case: dict[str, object]) -> float:
    """Largest relative L2 error over all outputs."""
    definition = Definition.model_validate(case["definition"])
    workload = Trace.model_validate(case["workload"]).workload
    solution = Solution.model_validate(case["solution"])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        index_tensors.materialise(root, definition, workload)
        inputs = InputFactory(root, definition, workload, "cpu").make(Draw(7))
        got = load_entry(solution, root / "source", definition)(*inputs)
    namespace: dict[str, object] = {}
    exec(definition.reference, namespace)
    wanted = namespace["run"](*inputs)  # type: ignore[operator]
    if isinstance(wanted, dict):
        wanted = tuple(wanted.values())
    pairs = zip(got, wanted) if isinstance(wanted, (tuple, list)) else [(got, wanted)]
    return max(float((g.float() - w.float()).norm() / w.float().norm()) for g, w in pairs)


if __name__ == "__main__":
    for line in sys.stdin:
        case = json.loads(line.replace("bfloat16", "float16"))
        print(json.dumps(worst_error(case)), flush=True)

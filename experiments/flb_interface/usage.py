"""FlashInferKernel in twenty lines: register a solution, profile it, read the verdict.

    python experiments/flb_interface/usage.py
"""

import sys
from pathlib import Path

sys.path.insert(0, ".")  # from the root of a checkout, installed or not

from accelopt.flb_wrapper import FlashInferKernel
from accelopt.kernels.gpu.bench.files.tracefiles import (
    Solution,
    TraceFolder,
    read_json,
    write_json,
)

starter = Path("experiments/flb_optimize/starter_trace")
root = Path("experiments/flb_interface/checkpoints")
definition = starter / "definitions/rmsnorm/rmsnorm_h4096.json"
plain = starter / "solutions/accelopt/rmsnorm/rmsnorm_h4096/plain_rmsnorm_h4096.json"

if __name__ == "__main__":
    trace = TraceFolder(starter).workloads["rmsnorm_h4096"][0]
    workload = write_json(trace, root / "usage_workload.json")
    kernel = FlashInferKernel(root, definition)
    source = read_json(Solution, plain).main_source.replace("BLOCK=512", "BLOCK=4096, num_warps=8")
    solution = kernel.create_and_save_solution(source, name="usage_rmsnorm_wide")
    trace, properties = kernel.profile(solution, workload, timeout_seconds=120)
    print(trace.evaluation.status.value, properties.metadata)

"""Shapes of the referee's own: sizes that neither a search nor its winner has seen.

Of what may vary, one, a few and many: rows, or sequences with their keys and queries. Sizes are odd, so that
no tile divides them.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Trace, Workload

ROWS = (1, 7, 257)
SEQUENCES = ((1, 3001, 411), (7, 905, 233), (129, 1291, 645))
"""How many, with all their keys and all their queries."""


def own_workloads(definition: Definition, trace: Trace) -> list[Trace]:
    """Workloads of `definition` like that of `trace`, in sizes of our own; index tensors by seed."""
    given = trace.workload.axes
    if "len_indptr" in given:
        sizes = [_sequences(given, *chosen) for chosen in SEQUENCES]
    else:
        sizes = [dict.fromkeys(given, rows) for rows in ROWS]
    made = []
    for number, axes in enumerate(sizes):
        name = f"own_{number}_{definition.name}"
        inputs = {
            key: source.model_copy(update={"path": f"{name}.safetensors"}) if source.path else source
            for key, source in trace.workload.inputs.items()
        }
        workload = Workload(uuid=name, axes=axes, inputs=inputs)
        made.append(trace.model_copy(update={"workload": workload}))
    return made


def _sequences(given: dict[str, int], sequences: int, keys: int, queries: int) -> dict[str, int]:
    known = {
        "batch_size": sequences,
        "len_indptr": sequences + 1,
        "num_kv_indices": keys,
        "total_kv": keys,
        "num_pages": keys + 5,
        "total_q": queries,
    }
    return {axis: known.get(axis, size) for axis, size in given.items()}

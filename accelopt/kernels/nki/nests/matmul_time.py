"""What the Tensor engine takes, in closed form."""

from __future__ import annotations

from accelopt.hardware import Hardware


def matmul_ns(spec: Hardware, rows: int, columns: int, dtype: str = "float32") -> float:
    """`rows` moving rows past `columns` stationary columns."""
    if dtype == "float32":
        stream = max(spec.fp32_matmul_cycles_per_row * rows, spec.minimum_matmul_cycles)
        load = spec.fp32_exposed_load * columns + spec.matmul_pass_overhead_cycles
        return spec.fp32_matmul_passes * (stream + load) / spec.tensor_ghz
    stream = max(spec.matmul_cycles_per_row * rows, spec.minimum_matmul_cycles)
    load = spec.exposed_load * columns + spec.matmul_pass_overhead_cycles
    return (stream + load) / spec.tensor_ghz

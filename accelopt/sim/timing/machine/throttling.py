"""How fast the Tensor engine may run: from trn2 on it is held back where its use is low.

Rapid swings of its current are what the hardware smooths: "the Tensor Engine starts at roughly 50% of
maximum utilization and ramps to full over about the first 3 microseconds after work begins. If
utilization drops below 50% over any 3 microsecond window, the limit re-engages" (Neuron Explorer,
understanding throttling). Utilization is that of the array: a product over 64 rows uses half of it,
one over a single row next to nothing. So products of few rows run at half rate however many there
are (bmm_v1 and its bf16 probe, mamba's rows spread over partitions, `measured/trn2_kernels.csv`), and
those of exactly half the rows stay fast for as long as what full products before them left.
"""

from __future__ import annotations

from accelopt.hardware import Hardware


class TensorClock:
    """Remembers the use of the array; tells how long the next instruction takes."""

    def __init__(self, spec: Hardware) -> None:
        self.slowdown = 1 / spec.tensor_ramp_fraction
        self.floor = spec.tensor_ramp_use
        self.window = spec.tensor_ramp_ns
        self.wanted = self.window * (1 - self.floor)  # a window of full use lifts the limit
        self.most = self.wanted + spec.tensor_ramp_reserve_ns
        self.credit = 0.0  # ns of full use beyond what the limit asks for
        self.until = 0.0

    def run(self, begin: float, issue_ns: float, use: float) -> float:
        """When an instruction ends that starts at `begin`, takes `issue_ns` at the full rate and
        uses the part `use` of the array's rows."""
        idle = begin - self.until
        self.credit = 0.0 if idle >= self.window else max(0.0, self.credit - self.floor * idle)
        took = issue_ns if self.credit >= self.wanted else issue_ns * self.slowdown
        self.credit = min(self.most, max(0.0, self.credit + (use - self.floor) * took))
        self.until = begin + took
        return self.until

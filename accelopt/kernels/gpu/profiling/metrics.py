"""The metrics that Nsight Compute is asked for, under canonical names, and what they say of a kernel.

Metric names are those of Nsight Compute 2025.3 on a device of compute capability 9.0, where each was
read; a name that a device does not have is missing from its section.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from accelopt.evaluation import Row
from accelopt.tables import packaged_table

_TABLE = packaged_table("kernels/gpu/profiling/metrics.csv")
SECTIONS: dict[str, dict[str, str]] = {row["section"]: {} for row in _TABLE}
for _row in _TABLE:
    SECTIONS[_row["section"]][_row["name"]] = _row["metric"]
WAITS_FOR = {row["name"]: row["waits_for"] for row in _TABLE if row["waits_for"]}
"""What warps wait for at a stall, in words."""
NAMES = tuple(dict.fromkeys(name for part in SECTIONS.values() for name in part.values()))
_FLOPS = {"fadd": 1, "fmul": 1, "ffma": 2, "hadd": 1, "hmul": 1, "hfma": 2}
# A library's kernels for simple operators, beside those that a solution is about.
PLAIN = ("at::", "at_cuda_detail::", "Memset", "Memcpy")


class Unavailable(NamedTuple):
    """Why there are no counters; one clause."""

    reason: str

    def summary(self) -> dict[str, Any]:
        """What a reader finds in the place of figures."""
        return {"missing": self.reason}


class Metrics(Row):
    """The counters of one kernel in one call of a solution, by canonical section and name.

    Percent are 0 to 100 and bytes are bytes, as Nsight Compute has them. `raw` holds all that was read, by
    Nsight Compute's own names. `share` is the kernel's part of the time of all kernels in the call.
    """

    kernel_name: str
    device_name: str = ""
    sections: dict[str, dict[str, float]]
    raw: dict[str, float]
    share: float = 1.0

    def value(self, name: str, section: str = "") -> float | None:
        """A counter by its canonical name, or by Nsight Compute's; None where it was not read."""
        parts = [self.sections.get(section, {})] if section else [*self.sections.values(), self.raw]
        return next((part[name] for part in parts if name in part), None)

    @property
    def flops(self) -> float:
        """Floating-point operations: an FMA is two; of 16-bit operands outside of the tensor cores an
        instruction counts once, packed or not."""
        counted = self.sections.get("compute_metrics", {})
        vector = sum(weight * counted.get(name, 0.0) for name, weight in _FLOPS.items())
        return vector + sum(self.sections.get("roofline_raw", {}).values())

    @property
    def dram_bytes(self) -> float:
        """Bytes that moved from and to device memory."""
        moved = self.sections.get("memory_metrics", {})
        return moved.get("dram_read_bytes", 0.0) + moved.get("dram_write_bytes", 0.0)

    @property
    def intensity(self) -> float | None:
        """Operations for each byte of device memory; None where none was moved."""
        return self.flops / self.dram_bytes if self.dram_bytes else None

    def summary(self) -> dict[str, Any]:
        """The few figures that a reader begins with."""

        def chosen(section: str, *names: str) -> dict[str, float]:
            known = self.sections.get(section, {})
            return {name: known[name] for name in names if name in known}

        return {
            "kernel_name": self.kernel_name,
            "device_name": self.device_name,
            "speed_of_light": self.sections.get("speed_of_light", {}),
            "scheduling": {
                **chosen("occupancy_metrics", "warp_occupancy_pct"),
                **chosen("scheduler_metrics", "issue_active_pct", "waves_per_sm"),
                **chosen("compute_metrics", "ipc"),
            },
            "memory": {
                **chosen("memory_metrics", "dram_bytes_per_second", "l1_hit_pct", "l2_hit_pct"),
                **chosen("speed_of_light", "gpu_dram_throughput_pct", "l2_throughput_pct"),
            },
        }


def read_kernels(text: str, own: int = 0) -> tuple[Metrics, ...]:
    """The kernels in what `ncu --csv --page raw` printed, in the order in which they ran, without the
    first `own`. Lines of the program, and warnings, may stand around the table. Empty where there is
    none."""
    lines = text.splitlines()
    begin = next((n for n, line in enumerate(lines) if line.startswith('"ID",')), None)
    if begin is None:
        return ()
    table = [row for row in csv.reader(lines[begin:]) if row]
    heading, units = table[0], table[1] if len(table) > 1 else []
    rows = [row for row in table[2:] if len(row) == len(heading) and row[0].isdigit()][own:]
    found = [_kernel(dict(zip(heading, row, strict=True)), dict(zip(heading, units, strict=True)))
             for row in rows]  # fmt: skip
    total = sum(kernel.value("duration_ns") or 0.0 for kernel in found)
    return tuple(
        kernel.model_copy(update={"share": (kernel.value("duration_ns") or 0.0) / total})
        if total
        else kernel
        for kernel in found
    )


def main_kernel(kernels: Sequence[Metrics]) -> Metrics | None:
    """Of a call's kernels the one that takes longest, those for simple operators left out where there
    are others."""
    own = [k for k in kernels if not any(part in k.kernel_name for part in PLAIN)]
    return max(own or kernels, key=lambda kernel: kernel.share, default=None)


_SCALES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_TIMES = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9}


def _kernel(cells: Mapping[str, str], units: Mapping[str, str]) -> Metrics:
    raw = {
        name: value
        for name, text in cells.items()
        if (value := _number(text, units.get(name, ""))) is not None
    }
    sections = {
        section: {ours: raw[theirs] for ours, theirs in named.items() if theirs in raw}
        for section, named in SECTIONS.items()
    }
    return Metrics(
        kernel_name=cells.get("Kernel Name", ""),
        sections={name: part for name, part in sections.items() if part},
        raw=raw,
    )


def _number(text: str, unit: str) -> float | None:
    """A cell as a number in bytes, nanoseconds or its plain unit: units may be scaled (Kbyte, us)."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    if unit in _TIMES:
        return value * _TIMES[unit]
    if unit[:1] in _SCALES and unit[1:].split("/")[0] in ("byte", "hz", "inst"):
        return value * _SCALES[unit[0]]
    return value

"""What the hardware is made of: one frozen entry a NeuronCore generation (`gpus` has one a GPU), every
number once, as a row of `neuroncores.csv` and `gpus.csv`.

Every constant carries its unit, its source and how far it can be trusted: `documented` (the vendor
says so), `measured` (follows from a published measurement without choosing anything), `fitted`
(chosen so that predictions meet the measurements named in the source) or `assumed`. What a table does not
say of trn2 is as on trn1, and of trn3 as on trn2; so is the source where a row has a value alone.
Documents are of `aws-neuron/aws-neuron-sdk` at v2.26.1; `perf guide` is nki_perf_guide.rst, `arch
guide` nki/arch/trainium_inferentia2_arch.rst, `isa` nki/api/nki/isa. "NKIBench" are the fourteen
kernels measured on trn1 that `benchmarks/timing_accuracy.py` replays, "tutorials" the fifteen
timings of the SDK's matmul and mamba tutorials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from accelopt.hardware.neuroncore import Hardware, constants_of

__all__ = ["TARGETS", "TRN1", "TRN2", "TRN3", "Hardware", "calibrated"]

_TABLE = constants_of("hardware/neuroncores.csv")

TRN1 = Hardware.stated(
    _TABLE["trn1"],
    name="trn1",
    calibration="calibrated on fourteen measured kernels and fifteen tutorial timings",
)

TRN2 = TRN1.changed(
    _TABLE["trn2"],
    name="trn2",
    calibration="calibrated on measured kernels of several sources (docs/timing.md)",
)

_ASSUMED = {
    name: one._replace(
        source=replace(one.source, status="assumed", note=f"as on trn2: {one.source.note}")
    )
    for name, one in _TABLE["trn2"].items()
    if one.source and name != "tensor_ramp_fraction"
}
TRN3 = TRN2.changed(
    {**_ASSUMED, **_TABLE["trn3"]},
    name="trn3",
    calibration="from documentation only: nothing was measured on trn3, trn2's rates are assumed",
)

TARGETS: Mapping[str, Hardware] = {"trn1": TRN1, "trn2": TRN2, "trn3": TRN3}
"""Every generation that kernels can be timed for."""


def calibrated(target: str, constants: Mapping[str, float] | None = None) -> Hardware:
    """The core of a generation, with the constants of one machine in place of the table's."""
    return TARGETS[target].changed(**(constants or {}))

"""The constants of every NeuronCore generation, and the sources where they are not trn1's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from accelopt.hardware.neuroncore import Hardware, constants_of

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

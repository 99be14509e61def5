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

from accelopt.hardware.generations import TARGETS, TRN1, TRN2, TRN3, calibrated
from accelopt.hardware.neuroncore import Evidence, Hardware, Provenance, Sourced

__all__ = [
    "TARGETS",
    "TRN1",
    "TRN2",
    "TRN3",
    "Evidence",
    "Hardware",
    "Provenance",
    "Sourced",
    "calibrated",
]

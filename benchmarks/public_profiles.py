"""Eight full profiles of attention on trn2 (allenkchau/trainium-kernel-fusion, d709ddf) beside predictions.

    git clone https://github.com/allenkchau/trainium-kernel-fusion CHECKOUT
    python benchmarks/public_profiles.py CHECKOUT [--text NAME] [--out rows.csv]

Reads every `profiling/artifacts/NAME/json_reports/*_profile_full.json`, predicts the kernel of `kernels/`
that it is of, for the shape and format in NAME, and prints a line for each: latencies, and how far the
engines' times are apart. `--text` prints one comparison whole. Nothing of the repository is kept.
"""

from __future__ import annotations

import argparse
import csv
import re
import tempfile
from pathlib import Path

from accelopt.kernels.nki.devices.measured_profile import read_profile
from accelopt.report.kernel_simulation import simulate
from accelopt.report.profile_comparison import Comparison, compare, comparison_text
from accelopt.time_limits import TRACE_SECONDS

NAME = re.compile(r"(?P<kind>baseline|fused)_(?P<format>fp32|bf16)_s(?P<length>\d+)")
REFERENCE = """import ml_dtypes
import numpy as np

def get_inputs():
    return [(np.random.random((128, {length})) * 2 - 1).astype({format}) for _ in range(3)]

def forward(q, k, v):
    return v
"""
FORMATS = {"fp32": "np.float32", "bf16": "ml_dtypes.bfloat16"}


def main() -> None:
    """Compare each, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--text", default="", help="the profile whose comparison is printed whole")
    parser.add_argument("--out", type=Path, help="the lines as CSV")
    options = parser.parse_args()
    files = sorted(options.checkout.glob("profiling/artifacts/*/json_reports/*_profile_full.json"))
    found = {file.parents[1].name: compared(file, options.checkout) for file in files}
    print(f"{'profile':22} predicted  measured    error  engines apart")
    for name, one in found.items():
        error = one.predicted_ms / one.measured_ms - 1
        print(
            f"{name:22} {one.predicted_ms:9.4f} {one.measured_ms:9.4f} {error:+8.1%} {one.apart:9.2f}"
        )
    if options.text:
        print(comparison_text(found[options.text]))
    if options.out:
        with options.out.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["profile", "predicted_ms", "measured_ms", "engines_apart"])
            rows.writerows(
                [name, one.predicted_ms, one.measured_ms, one.apart] for name, one in found.items()
            )


def compared(file: Path, checkout: Path) -> Comparison:
    """One profile beside the prediction of its kernel."""
    said = NAME.fullmatch(file.parents[1].name)
    if said is None:
        raise SystemExit(f"{file.parents[1].name} does not name a kernel, a format and a length")
    kernel = checkout / "kernels" / said["kind"] / "attention.py"
    measured = read_profile(file)
    with tempfile.TemporaryDirectory() as folder:
        reference = Path(folder) / "reference.py"
        reference.write_text(
            REFERENCE.format(length=said["length"], format=FORMATS[said["format"]])
        )
        profile = simulate(kernel, reference, measured.target, TRACE_SECONDS).profile
    return compare(kernel.name, profile, measured)


if __name__ == "__main__":
    main()

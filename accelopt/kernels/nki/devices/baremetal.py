"""The untrusted half of the real device: the SDK compiles and runs a kernel in a confined child."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from accelopt.kernels.nki.devices.arrays import load_array, save_array
from accelopt.kernels.nki.devices.kernel_file import load_kernel

# Descriptors made at run time are off and a logical core is one physical core, as published results
# were measured.
COMPILE_OPTIONS = "--disable-dge --logical-nc-config=1"


def run_job(payload: Mapping[str, Any], channel: BinaryIO) -> None:
    """Run the kernel on the arrays in `folder`; leave outputs and kernel.neff there."""
    folder = Path(payload["folder"])
    try:
        sys.path[:0] = list(payload["sdk_paths"])
        nki = importlib.import_module("neuronxcc.nki")
        arguments = [
            load_array(folder, item) if isinstance(item, dict) else item
            for item in payload["arguments"]
        ]
        kernel = load_kernel(str(payload["kernel"]), payload["imports"])
        compiled = nki.baremetal(
            kernel,
            save_neff_name=str(folder / "kernel.neff"),
            additional_compile_opt=COMPILE_OPTIONS,
        )
        returned = compiled(*arguments)
        outputs = returned if isinstance(returned, (tuple, list)) else (returned,)
        told = [
            save_array(folder, f"output_{index}", np.asarray(output))
            for index, output in enumerate(outputs)
        ]
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
        _write(channel, {"failed": said, "traceback": traceback.format_exc()})
    else:
        _write(channel, {"outputs": told})


def _write(channel: BinaryIO, message: dict[str, object]) -> None:
    channel.write(json.dumps(message).encode() + b"\n")
    channel.flush()

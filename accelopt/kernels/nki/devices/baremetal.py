"""The untrusted half of the real device: the SDK compiles and runs a kernel in a confined child."""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any, BinaryIO

import numpy as np

from accelopt.kernels.nki.devices.arrays import load_array, save_array
from accelopt.kernels.nki.devices.kernel_file import load_kernel
from accelopt.kernels.nki.kernel_function import host_launch
from accelopt.sim.dialects.dialect import dialect_of_source

# Descriptors made at run time are off and a logical core is one physical core, as published results
# were measured.
COMPILE_OPTIONS = "--disable-dge --logical-nc-config=1"


def run_job(payload: Mapping[str, Any], channel: BinaryIO) -> None:
    """Run the kernel on the arrays in `folder`; leave outputs and kernel.neff there."""
    folder = Path(payload["folder"])
    try:
        sys.path[:0] = list(payload["sdk_paths"])
        arguments = [
            load_array(folder, item) if isinstance(item, dict) else item
            for item in payload["arguments"]
        ]
        path = str(payload["kernel"])
        text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
        kernel = load_kernel(path, payload["imports"])
        run = _run_nki if dialect_of_source(text) == "nki" else _run_neuronxcc
        returned = run(kernel, arguments, folder, text)
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


def _run_neuronxcc(kernel: Any, arguments: list[Any], folder: Path, text: str) -> Any:
    """A kernel of the SDKs to 2.29, which have a call for it."""
    nki = importlib.import_module("neuronxcc.nki")
    compiled = nki.baremetal(
        kernel, save_neff_name=str(folder / "kernel.neff"), additional_compile_opt=COMPILE_OPTIONS
    )
    return compiled(*arguments)


def _run_nki(kernel: Any, arguments: list[Any], folder: Path, text: str) -> Any:
    """A kernel of `nki`, which runs by itself on NumPy arrays and leaves its compiled file in the current
    directory with NEURON_FRAMEWORK_DEBUG=1 (SDK 2.32, `nki.jit` and "Profile a NKI Kernel"); the newest
    where there are several."""
    if isinstance(kernel, FunctionType) and not host_launch(text, kernel.__name__):
        kernel = importlib.import_module("nki").jit(kernel)
    os.chdir(folder)
    returned = kernel(*arguments)
    left = sorted(folder.rglob("*.neff"), key=lambda file: file.stat().st_mtime)
    if not left:
        raise RuntimeError(
            "the SDK's compiler left no .neff file, although NEURON_FRAMEWORK_DEBUG is 1"
        )
    left[-1].rename(folder / "kernel.neff")
    return returned


def _write(channel: BinaryIO, message: dict[str, object]) -> None:
    channel.write(json.dumps(message).encode() + b"\n")
    channel.flush()

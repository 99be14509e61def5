"""The environment of a measurement: hardware name and library versions."""

from __future__ import annotations

import sys
from typing import Any

from accelopt.kernels.gpu.bench.process.messages import DeviceEnvironment


def describe(torch: Any, device: Any) -> DeviceEnvironment:
    """Hardware name and library versions, as traces record them."""
    libs = {"torch": str(torch.__version__), "python": sys.version.split()[0]}
    try:
        import triton

        libs["triton"] = str(triton.__version__)
    except ImportError:
        pass
    if device.type != "cuda":
        return DeviceEnvironment(hardware="cpu", libs=libs)
    libs["cuda"] = str(torch.version.cuda)
    return DeviceEnvironment(hardware=torch.cuda.get_device_name(device), libs=libs)

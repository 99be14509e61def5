"""From the text of a kernel file to its module, and from arguments to what a trace needs of them.

Runs the file's Python, so only a process that holds nothing worth having should call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from accelopt.sim import source_text, standin
from accelopt.sim.trace import AbstractTensor


def specs_of(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments without their data: arrays become AbstractTensors, everything else stays."""
    return tuple(
        AbstractTensor(value.shape, value.dtype)
        if isinstance(value, np.ndarray) and value.ndim
        else value
        for value in arguments
    )


def load(source: str, file: str = "kernel.py") -> ModuleType:
    """The kernel file as a module, with `neuronxcc` and `nki` answered by the simulated core when no
    SDK is installed. The tracer reads source lines, so they are registered under the file's name."""
    standin.install()
    source_text.register(file, source)
    module = ModuleType("kernel")
    module.__file__ = file
    setattr(module, source_text.GLOBAL, source)
    exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    return module

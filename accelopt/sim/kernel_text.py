"""From the text of a kernel file to its Program, once per content.

Runs the file's Python, so only a process that holds nothing worth having should call it.
"""

from __future__ import annotations

import hashlib
from collections.abc import MutableMapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from accelopt.sim import dtypes, serial, source_text, standin
from accelopt.sim.dialects import trace_kernel
from accelopt.sim.program import Program
from accelopt.sim.trace import AbstractTensor

_cache: dict[str, bytes] = {}
CACHED_PROGRAMS = 256


def specs_of(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments without their data: arrays become AbstractTensors, everything else stays."""
    return tuple(
        AbstractTensor(value.shape, value.dtype)
        if isinstance(value, np.ndarray) and value.ndim
        else value
        for value in arguments
    )


def content_key(source: str, arguments: Sequence[Any], entry: str, target: str) -> str:
    """The name of a Program: equal for equal source, argument shapes, dtypes and plain values."""
    digest = hashlib.sha256(f"{serial.VERSION}|{entry}|{target}|{source}".encode())
    for value in specs_of(arguments):
        if isinstance(value, AbstractTensor):
            digest.update(f"|{value.shape} {dtypes.name_of(np.dtype(value.dtype))}".encode())
        else:
            digest.update(f"|{type(value).__name__} {value!r}".encode())
    return digest.hexdigest()


def program_for(
    source: str,
    arguments: Sequence[Any],
    *,
    entry: str,
    target: str = "trn1",
    file: str = "kernel.py",
    cache: MutableMapping[str, bytes] | None = None,
) -> Program:
    """The Program of function `entry` in a kernel file's text, for arguments of these shapes.

    `cache` maps content keys to serialised Programs; by default the last few of this process.
    Raises KernelError when the kernel is refused, and whatever the file's own Python raises.
    """
    store = _cache if cache is None else cache
    key = content_key(source, arguments, entry, target)
    if key in store:
        return serial.loads(store[key])
    function = getattr(load(source, file), entry)
    program = trace_kernel(function, specs_of(arguments), target=target)
    if cache is None and len(_cache) >= CACHED_PROGRAMS:
        _cache.pop(next(iter(_cache)))
    store[key] = serial.dumps(program)
    return program


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

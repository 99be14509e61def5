"""Programs as bytes: a ZIP archive with one JSON document and one .npy file a constant.

The process that runs a kernel's Python is not to be trusted with data, and the process that holds
the data is not to run the kernel's Python. What passes from the first to the second is these bytes,
so `loads` believes nothing: every number, name and reference is checked, no pickle is read, and the
caller still runs `rules.check` on the result before it executes it.
"""

from __future__ import annotations

from accelopt.errors import InternalError
from accelopt.sim.program import Program
from accelopt.sim.serial.layout import DOCUMENT, VERSION, MalformedProgram, ProgramTooLarge
from accelopt.sim.serial.reading import loads
from accelopt.sim.serial.writing import dumps

__all__ = [
    "DOCUMENT",
    "VERSION",
    "MalformedProgram",
    "ProgramTooLarge",
    "dumps",
    "loads",
    "transferred",
]


def transferred(program: Program) -> Program:
    """The Program as another process has it: what is executed anywhere goes this way first. Raises
    InternalError for one that its own bytes do not hold, ProgramTooLarge for one that is too large."""
    try:
        return loads(dumps(program))
    except ProgramTooLarge:
        raise
    except MalformedProgram as error:
        raise InternalError(f"the bytes of a Program cannot be read: {error}") from error

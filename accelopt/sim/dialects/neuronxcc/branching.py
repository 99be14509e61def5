"""What a branch that depends on loop indices may do to a kernel's Python. NKI runs all branches, under
predicates, so a name that one of them binds has no one value afterwards."""

from __future__ import annotations

from accelopt.sim.call_sites import running_frame
from accelopt.sim.conditions import escapes
from accelopt.sim.errors import SourceLine
from accelopt.sim.rules import kernels
from accelopt.sim.tracer import current


def enter_branch() -> None:
    """The running line is such a condition: its branches become scopes of tensors, and what leaves
    them is refused. A tensor updated by `+=` stays the tensor that it is."""
    tracer = current()
    tracer.note_condition()
    frame = running_frame()
    if frame is None:
        return
    found = escapes(frame.f_code.co_filename, frame.f_lineno)
    for escape in found.names:
        if escape.updated and isinstance(
            frame.f_locals.get(escape.name), tracer.conventions.view_type
        ):
            continue
        error = kernels.bound_in_branch(escape.name, found.line)
        error.source = SourceLine(frame.f_code.co_filename, escape.line)
        error.args = (str(error),)
        tracer.refuse(error)
    if found.skips:
        tracer.refuse(kernels.left_early("continue in a branch on its index"))

"""Why a kernel, or a part of it, has no algorithm that lifting could find."""

from __future__ import annotations

from accelopt.sim.errors import NOWHERE, SourceLine


class NotLifted(Exception):
    """`reason` says in a sentence what cannot be lifted, `source` on which line it is."""

    def __init__(self, reason: str, source: SourceLine = NOWHERE) -> None:
        self.reason = reason
        self.source = source
        super().__init__(reason if source == NOWHERE else f"{source}: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.reason, self.source))

"""Child processes for code that nobody has vouched for.

`run(entry, payload)` starts one, confined as far as the host allows, watches it, and leaves nothing
of it behind. It knows nothing of kernels.
"""

from accelopt.sandbox.forkserver import ForkServer
from accelopt.sandbox.launch import Ending, Outcome, printable, run
from accelopt.sandbox.policy import Limits, Policy
from accelopt.sandbox.starting import Start, fork, spawn

__all__ = [
    "Ending",
    "ForkServer",
    "Limits",
    "Outcome",
    "Policy",
    "Start",
    "fork",
    "printable",
    "run",
    "spawn",
]

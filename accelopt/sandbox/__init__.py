"""Child processes for code that nobody has vouched for.

`run(entry, payload)` starts one, confined as far as the host allows, watches it, and leaves nothing
of it behind; `conversation.Conversation` is a child that answers requests. It knows nothing of kernels.
"""

from accelopt.sandbox.child import Ending
from accelopt.sandbox.forkserver import ForkServer, clean_server, fork_with_server
from accelopt.sandbox.launch import ChildOutcome, run
from accelopt.sandbox.policy import Limits, Policy
from accelopt.sandbox.scratch import remove, scratch_folder, sweep
from accelopt.sandbox.starting import Start, fork, spawn

__all__ = [
    "ChildOutcome",
    "Ending",
    "ForkServer",
    "Limits",
    "Policy",
    "Start",
    "clean_server",
    "fork",
    "fork_with_server",
    "remove",
    "run",
    "scratch_folder",
    "spawn",
    "sweep",
]

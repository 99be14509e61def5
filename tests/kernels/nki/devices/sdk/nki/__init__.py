"""Just enough for `nki.jit(kernel)(*arrays)`, which leaves its compiled file in the current directory."""

import os
from pathlib import Path


class Kernel:
    def __init__(self, func):
        self.func, self.__name__ = func, func.__name__

    def __call__(self, *arrays):
        assert os.environ["NEURON_LOGICAL_NC_CONFIG"] == "1" and os.environ["NKI_DEBUG_INFO"]
        outputs = self.func(*arrays)
        if os.environ.get("NEURON_FRAMEWORK_DEBUG") == "1" and self.__name__ != "forgetful":
            Path("work").mkdir(exist_ok=True)
            Path("work/graph.neff").write_bytes(b"NEFF " + self.__name__.encode())
        return outputs


jit = Kernel

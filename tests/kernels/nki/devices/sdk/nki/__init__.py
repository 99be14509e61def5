"""Just enough for `nki.jit(kernel)(*arrays)`, which leaves its compiled file in the current directory."""

import os
from pathlib import Path


def jit(kernel):
    def call(*arrays):
        assert os.environ["NEURON_LOGICAL_NC_CONFIG"] == "1" and os.environ["NKI_DEBUG_INFO"]
        outputs = kernel(*arrays)
        if os.environ.get("NEURON_FRAMEWORK_DEBUG") == "1" and kernel.__name__ != "forgetful":
            Path("work").mkdir(exist_ok=True)
            Path("work/graph.neff").write_bytes(b"NEFF " + kernel.__name__.encode())
        return outputs

    return call

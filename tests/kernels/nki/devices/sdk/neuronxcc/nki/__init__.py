"""Just enough for `nki.baremetal(kernel, save_neff_name=..., additional_compile_opt=...)(*arrays)`."""

import os
from pathlib import Path


def baremetal(kernel, *, save_neff_name, additional_compile_opt):
    assert os.environ["NEURON_CC_FLAGS"] == "--auto-cast=none"
    assert os.environ["NEURON_RT_NUM_CORES"] == "1"

    def call(*arrays):
        outputs = kernel(*arrays)
        Path(save_neff_name).write_bytes(b"NEFF " + additional_compile_opt.encode())
        return outputs

    return call

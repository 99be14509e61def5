"""Just enough for `nki.baremetal(kernel, save_neff_name=..., additional_compile_opt=...)(*arrays)`."""

from pathlib import Path


def jit(kernel):
    return kernel


def baremetal(kernel, *, save_neff_name, additional_compile_opt):
    def call(*arrays):
        assert {array.dtype.name for array in arrays} <= {"float32", "bfloat16"}
        Path(save_neff_name).write_text(f"NEFF {Path(kernel.__code__.co_filename).stem}")
        return arrays[0]

    return call

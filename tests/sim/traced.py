"""Programs of kernels given as text."""

from accelopt.sim import serial
from accelopt.sim.dialects.dialect import trace_kernel
from accelopt.sim.kernel_loading import load


def program_of(text, arguments):
    """The Program of the text's `kernel`, as another process has it."""
    return serial.transferred(trace_kernel(load(text).kernel, arguments, target="trn1"))

"""One file for several shapes: what it holds, and that it is right at each."""

import pytest

from accelopt.kernels.nki.arguments import ParameterFacts
from accelopt.kernels.nki.devices.protocol import TensorArgument
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.shape_dispatch import NotJoined, ShapeKernel, dispatcher

KERNEL = '''"""Doubles."""
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

FACTOR = 2.0
WIDTH = {width}


def part(tile):
    return nl.multiply(tile[:, 0:WIDTH], FACTOR)


@nki.jit
def double(x):
    assert tuple(x.shape) == (128, {width}), "x must be 128 x {width}"
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, part(nl.load(x)))
    return out


if __name__ == "__main__":
    print(WIDTH)
'''


def piece(width):
    made = (ParameterFacts((128, width)),)
    return ShapeKernel(f"N{width}", KERNEL.format(width=width), made)


def test_each_shape_has_its_kernel_and_others_are_refused(tmp_path):
    """Evidence: the simulated core, on the file that was written."""
    text = dispatcher([piece(256), piece(512)])
    assert text.count("FACTOR = ") == 1 and "WIDTH_N512 = 512" in text
    assert text.count("@nki.jit") == 1 and "__main__" not in text
    (tmp_path / "kernel.py").write_text(text)
    device = SimulatedDevice("trn1")
    for width in (256, 512):
        argument = TensorArgument((128, width), "float32")
        program = device.compile(str(tmp_path / "kernel.py"), (argument,)).program
        assert program.name == "double"
    with pytest.raises(Exception, match="x must be 128 x 512"):
        device.compile(str(tmp_path / "kernel.py"), (TensorArgument((128, 64), "float32"),))


def test_what_cannot_be_told_apart_or_written_anew_is_said():
    with pytest.raises(NotJoined, match="the same shapes"):
        dispatcher([piece(256), piece(256)])
    gridded = piece(512)._replace(source=KERNEL.format(width=512) + "\nkernel = double[2]\n")
    with pytest.raises(NotJoined):
        dispatcher([piece(256), gridded])

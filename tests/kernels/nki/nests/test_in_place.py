"""Arguments that a kernel changes in place: a kernel by schedule changes them too, and computes nothing that stays as
it was; where it may not, it returns a new array and says so."""

import math

import numpy as np
import pytest
from kernel_heads import neuronxcc_kernel, nki_kernel
from warm import core

from accelopt.kernels.nki.arguments import ParameterFacts
from accelopt.kernels.nki.devices.protocol import TensorArgument
from accelopt.kernels.nki.nests.axis_positions import number_text
from accelopt.kernels.nki.nests.nest import NotNested, default_nest
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.kernels.nki.rescheduling.lifted_kernel import lifted_kernel

TILE = "    {0} = nl.ndarray({1}, dtype=nl.float32, buffer=nl.sbuf)\n    nisa.dma_copy(dst={0}, src={2})\n"
DECAYED = nki_kernel(
    "def kernel(x, g):\n"
    + TILE.format("a", "(128, 96)", "x")
    + TILE.format("b", "(128, 96)", "g")
    + """    nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=0.9)
    nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
    nisa.dma_copy(dst=x, src=a)
    return x
"""
)
CACHED = nki_kernel(
    """def kernel(new, cache):
    out = nl.ndarray((4, 1, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    for b in range(4):
        row = nl.ndarray((1, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=row, src=new[b])
        nisa.dma_copy(dst=cache[b, 100:101, :], src=row)
        rows = nl.ndarray((101, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=cache[b, 0:101, :])
        ones = nl.ndarray((101, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=ones, value=1.0)
        total = nl.ndarray((1, 64), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=total, stationary=ones, moving=rows)
        nisa.tensor_copy(dst=row, src=total)
        nisa.dma_copy(dst=out[b], src=row)
    return out, cache
"""
)
SHIFTED = nki_kernel(
    "def kernel(x, g):\n"
    + TILE.format("a", "(128, 96)", "x")
    + TILE.format("b", "(128, 96)", "g")
    + """    c = nl.ndarray((128, 96), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=c[:, 0:1], src=b[:, 0:1])
    nisa.tensor_tensor(dst=c[:, 1:96], data1=a[:, 0:95], data2=b[:, 1:96], op=nl.add)
    nisa.dma_copy(dst=x, src=c)
    return x
"""
)
SCALED = nki_kernel(
    "def kernel(x, g):\n"
    + TILE.format("a", "(128, 96)", "x")
    + TILE.format("b", "(128, 96)", "g")
    + """    s = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=s, op=nl.add, data=a, axis=1)
    nisa.tensor_scalar(dst=b, data=b, op0=nl.add, operand0=s)
    nisa.dma_copy(dst=x, src=b)
    return x
"""
)


def cached(new, cache):
    cache = cache.copy()
    cache[:, 100] = new[:, 0]
    return cache[:, :101].sum(axis=1, keepdims=True), cache


def shifted(x, g):
    return g + np.pad(x, ((0, 0), (1, 0)))[:, :-1]


def elements_written(program, tensors):
    return sum(
        math.prod(access.shape) * math.prod(loop.variable.trips for loop in loops)
        for loops, instruction in program.walk()
        for access in instruction.outputs.values()
        if access.tensor in tensors
    )


@pytest.mark.parametrize(
    ("source", "reference", "arrays", "over", "size"),
    [
        (DECAYED, lambda x, g: x * np.float32(0.9) + g, {"x": (128, 96), "g": (128, 96)}, {"x"}, 128 * 96),
        (CACHED, cached, {"new": (4, 1, 64), "cache": (4, 256, 64)}, {"cache"}, 4 * 64),
        (SCALED, lambda x, g: g + x.sum(1, keepdims=True), {"x": (128, 96), "g": (128, 96)}, {"x"}, 128 * 96),
        (SHIFTED, shifted, {"x": (128, 96), "g": (128, 96)}, set(), 0),
    ],
)  # fmt: skip
def test_what_changes_in_place_is_written_there(tmp_path, source, reference, arrays, over, size):
    path = tmp_path / "kernel.py"
    path.write_text(source)
    lifted = lifted_kernel(
        source, path, {n: ParameterFacts(s, "float32") for n, s in arrays.items()}, "trn2"
    )
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape, dtype=np.float32) for shape in arrays.values()]
    wanted, specs = reference(*given), [TensorArgument(s, "float32") for s in arrays.values()]
    written = 0
    for nest in starting_nests(lifted.algorithm, "trn2"):
        try:
            text = lifted.lowered(nest, "trn2").source
        except NotNested:
            continue
        path.write_text(text)
        executable = core("trn2").compile(str(path), specs)
        changed = executable.program.changed_arguments()
        assert {tensor.name for tensor in changed} == over and ("New arrays" in text) == (not over)
        assert not over or elements_written(executable.program, changed) == size
        found = executable.run(given)
        for one, want in zip(
            found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True
        ):
            np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-5)
        written += 1
    assert written


def test_what_is_mutable_for_its_author_is_so_in_a_kernel_by_schedule(tmp_path):
    """In `neuronxcc` an argument is read-only where nothing else is said."""
    source = "import neuronxcc.nki.typing as nt\n" + neuronxcc_kernel(
        """def append(cache: nt.mutable_tensor, row):
    held = nl.load(row)
    nl.store(cache[3:4, :], held)
    return cache
"""
    )
    path = tmp_path / "append.py"
    path.write_text(source)
    given = {"cache": ParameterFacts((128, 64)), "row": ParameterFacts((1, 64))}
    lifted = lifted_kernel(source, path, given)
    text = lifted.lowered(default_nest(lifted.algorithm)).source
    for made in (text, lifted.authored(text)):
        path.write_text(made)
        specs = [TensorArgument((128, 64), "float32"), TensorArgument((1, 64), "float32")]
        program = core("trn1").compile(str(path), specs).program
        assert elements_written(program, program.changed_arguments()) == 64
        assert made.count("import neuronxcc.nki.typing as nt\n") == 1
        assert "def append(cache: nt.mutable_tensor, row):" in made


def test_numbers_that_are_none_are_written_as_python_has_them():
    assert [number_text(n, {2.0: "eps"}) for n in (np.nan, -np.inf, 2.0)] == [
        'float("nan")', 'float("-inf")', "eps",
    ]  # fmt: skip

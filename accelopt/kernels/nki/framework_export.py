"""A kernel as a custom operation of PyTorch or JAX: a folder with the kernel, its reference, the operation
and a test of it, which import without the Neuron SDK.

As the SDK's guide shows (2.33, "NKI Kernel as a Framework Custom Operator"), the operation calls the kernel
on tensors of a Neuron device; elsewhere it computes the reference on the host. Arguments and results are
the reference's: what its transforms do to shapes is found by trying, and written in the framework's words.
"""

from __future__ import annotations

import itertools
import pprint
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from accelopt.errors import ConfigError
from accelopt.kernels.nki.arguments import argument_of
from accelopt.kernels.nki.devices import KernelFailure
from accelopt.kernels.nki.devices.kernel_folder import kernel_folder
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.kernel_function import kernel_entry
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.sim.dialects.dialect import dialect_of_source

Framework = Literal["torch", "jax"]
MOST_AXES = 5
NARROW = ("bfloat16", "float16")


class Rearranged(NamedTuple):
    """An array as another one: reshaped to `split`, its axes in the order `axes`, reshaped to `shape`."""

    source: int
    split: tuple[int, ...]
    axes: tuple[int, ...]
    shape: tuple[int, ...]

    def of(self, array: np.ndarray) -> np.ndarray:
        """The array, rearranged."""
        return array.reshape(self.split).transpose(self.axes).reshape(self.shape)

    def text(self, names: Sequence[str], given: tuple[int, ...], permute: str) -> str:
        """The same in a framework's words; steps that change nothing are left out."""
        text, moved = names[self.source], self.axes != tuple(range(len(self.axes)))
        if self.split != given and moved:
            text += f".reshape({self.split})"
        text += f".{permute}({self.axes})" if moved else ""
        there = tuple(self.split[axis] for axis in self.axes) if moved else given
        return text if there == self.shape else f"{text}.reshape({self.shape})"


def rearranged(result: np.ndarray, sources: Sequence[Any]) -> Rearranged | None:
    """How an array is made of one of others by reshaping and permuting; None where it is not. The arrays hold
    random numbers, so that equal elements are the same."""
    for at, source in enumerate(sources):
        if isinstance(source, np.ndarray) and source.size == result.size:
            for form in _forms(at, source.shape, result.shape):
                if np.array_equal(form.of(source), result):
                    return form
    return None


def _forms(at: int, source: tuple[int, ...], result: tuple[int, ...]) -> Iterator[Rearranged]:
    """Reshaped alone; permuted, then reshaped; reshaped, then permuted."""
    yield Rearranged(at, source, tuple(range(len(source))), result)
    if len(source) <= MOST_AXES:
        for axes in itertools.permutations(range(len(source))):
            yield Rearranged(at, source, axes, result)
    if len(result) <= MOST_AXES:
        for axes in itertools.permutations(range(len(result))):
            split = [0] * len(axes)
            for place, axis in enumerate(axes):
                split[axis] = result[place]
            yield Rearranged(at, tuple(split), axes, result)


class Operation(NamedTuple):
    """What the files are written of."""

    name: str
    entry: str
    package: str  # that the kernel imports
    kinds: tuple[str, ...]  # of its arguments: "array", or the type of a plain value
    arguments: tuple[tuple[tuple[int, ...], str] | None, ...]
    results: tuple[tuple[tuple[int, ...], str], ...]
    passed: tuple[Rearranged | Any, ...]
    returned: tuple[Rearranged, ...]
    outputs: tuple[tuple[int, ...], ...]


def operation_of(
    kernel: Path, reference: Path, name: str, target: str, seconds: float
) -> Operation:
    """The operation of a kernel and its reference. Raises ConfigError for a kernel that cannot be traced, and
    for transforms that do more than reshape and permute."""
    problem = Reference(reference)
    inputs = problem.inputs(0)
    entry = kernel_entry(kernel.read_text(encoding="utf-8-sig"))
    if not entry:
        raise ConfigError(f"{kernel} does not say which its kernel is: write `kernel = name`")
    try:
        device = SimulatedDevice(target)
        arguments = [argument_of(value) for value in problem.kernel_inputs(inputs)]
        program = device.compile(str(kernel), arguments, seconds=seconds).program
    except KernelFailure as failure:
        raise ConfigError(f"{kernel}: {failure.message}") from failure
    random = np.random.default_rng(0)
    drawn = [_drawn(value, random) for value in inputs]
    passed = []
    for number, value in enumerate(problem.kernel_inputs(drawn)):
        same = next(
            (n for n, one in enumerate(drawn) if one is value or _equal_number(one, value)), None
        )
        form = rearranged(value, drawn) if isinstance(value, np.ndarray) else same
        if form is None and isinstance(value, np.ndarray):
            raise ConfigError(
                _unclear("transform_to_nki_inputs", f"argument {number} of the kernel", "input")
            )
        passed.append(Constant(value) if form is None else form)
    expected = problem.forward(inputs)
    shapes = [program.shape_of_result(n) or () for n in range(len(program.results))]
    outputs = tuple(np.asarray(random.normal(size=shape), np.float32) for shape in shapes)
    returned = []
    for number, value in enumerate(problem.kernel_outputs(outputs, expected)):
        found = rearranged(np.asarray(value), outputs)
        if found is None:
            raise ConfigError(
                _unclear("transform_nki_outputs", f"result {number}", "output of the kernel")
            )
        returned.append(found)
    formats = [None if r is None else str(np.dtype(r.dtype)) for r in program.results]
    text = kernel.read_text(encoding="utf-8-sig")
    return Operation(
        name, entry, "nki" if dialect_of_source(text) == "nki" else "neuronxcc.nki",
        tuple("array" if isinstance(v, np.ndarray) else type(v).__name__ for v in inputs),
        tuple((v.shape, v.dtype.name) if isinstance(v, np.ndarray) else None for v in inputs),
        tuple((tuple(e.shape), formats[f.source] or "float32") for e, f in zip(expected, returned, strict=True)),
        tuple(passed), tuple(returned), tuple(map(tuple, shapes)),
    )  # fmt: skip


class Constant(NamedTuple):
    """A plain value that the kernel is passed whatever the inputs are."""

    value: Any


def _drawn(value: Any, random: np.random.Generator) -> Any:
    return (
        random.normal(size=value.shape).astype(np.float32)
        if isinstance(value, np.ndarray)
        else value
    )


def _equal_number(one: Any, other: Any) -> bool:
    return not isinstance(one, np.ndarray) and type(one) is type(other) and one == other


def _unclear(function: str, what: str, of: str) -> str:
    return (
        f"{function} of the reference: {what} is no {of} reshaped or permuted, so it cannot be written in a "
        "framework's words; call the kernel with arguments that the model makes itself"
    )


def files_of(
    made: Operation, framework: Framework, kernel: Path, reference: Path
) -> Mapping[str, str]:
    """The texts of the folder's files by name. Raises ConfigError for a kernel in a package."""
    folder = kernel_folder(kernel)
    if folder.package:
        raise ConfigError(
            f"{kernel} is a module of the package {folder.package}: export a file by itself"
        )
    return {
        **folder.files,
        "kernel.py": kernel.read_text(encoding="utf-8-sig"),
        "reference.py": reference.read_text(encoding="utf-8-sig"),
        f"{made.name}_{framework}.py": _module(made, framework),
        f"test_{made.name}_{framework}.py": _test(made, framework),
    }


def _module(made: Operation, framework: Framework) -> str:
    permute = "permute" if framework == "torch" else "transpose"
    names = [f"a{n}" for n in range(len(made.arguments))]
    outs = [f"o{n}" for n in range(len(made.outputs))]
    passed = []
    for one in made.passed:
        if isinstance(one, Rearranged):
            shape = made.arguments[one.source]
            assert shape is not None
            passed.append(one.text(names, shape[0], permute))
        else:
            passed.append(repr(one.value) if isinstance(one, Constant) else names[one])
    returned = [one.text(outs, made.outputs[one.source], permute) for one in made.returned]
    kinds = ["torch.Tensor" if kind == "array" else kind for kind in made.kinds]
    one = len(made.results) == 1
    return TEMPLATES[framework].format(
        name=made.name,
        entry=made.entry,
        arguments=pprint.pformat(made.arguments),
        results=pprint.pformat(made.results),
        names=", ".join(names),
        typed=", ".join(f"{n}: {k}" for n, k in zip(names, kinds, strict=True)),
        passed=", ".join(passed),
        outs=", ".join(outs) + ("," if len(outs) == 1 else ""),
        returned=returned[0] if one else f"({', '.join(returned)})",
        first="[0]" if one else "",
    )


def _test(made: Operation, framework: Framework) -> str:
    narrow = any(dtype in NARROW for _, dtype in made.results)
    traced = framework == "jax" and all(made.arguments)
    return TEST.format(
        name=made.name,
        framework=framework,
        package=made.package,
        helpers=HELPERS[framework].rstrip(),
        tolerance=2e-2 if narrow else 1e-3,
        called=f"jax.jit({made.name})" if traced else made.name,
        first=next(n for n, one in enumerate(made.arguments) if one),
    )


COMMON = '''
import importlib.util
import sys
from pathlib import Path

import numpy as np
{imports}

ARGUMENTS = {arguments}
"""Shapes and formats for which the kernel was verified; None stands for a plain number."""
RESULTS = {results}
FOLDER = Path(__file__).resolve().parent


def _load(name):
    """A file of this folder, as a module of its own name."""
    known = f"{name}_{{name}}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, FOLDER / f"{{name}}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[known] = module
        sys.path.insert(0, str(FOLDER))  # for what the kernel imports of its folder
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[known]
            raise
        finally:
            sys.path.remove(str(FOLDER))
    return sys.modules[known]


def _check(inputs):
    for number, (given, known) in enumerate(zip(inputs, ARGUMENTS)):
        if known is not None and tuple(given.shape) != known[0]:
            raise ValueError(
                f"argument {{number}} of {name} has shape {{tuple(given.shape)}}; the kernel is for {{known[0]}}"
            )


def by_kernel({names}):
    """The kernel, on tensors of a Neuron device (or, where `nki` is simulated, of the host)."""
    outputs = _load("kernel").{entry}({passed})
    {outs} = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return {returned}


def _computed(inputs):
    """The reference's results as arrays of the formats in RESULTS."""
    found = _load("reference").forward(*inputs)
    found = found if isinstance(found, (tuple, list)) else (found,)
    return [np.asarray(array).reshape(shape) for array, (shape, _) in zip(found, RESULTS)]

'''
TORCH = (
    '''"""{name}: an NKI kernel as a custom operation of PyTorch, written by `accelopt export --torch`.

    from {name}_torch import {name}

On tensors of a Neuron device the kernel runs, on others the reference in NumPy. It has no gradient: for
training, call it from a torch.autograd.Function.
"""
'''
    + COMMON.replace("{imports}", "import torch")
    + '''
def _array(tensor):
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


@torch.library.custom_op("accelopt::{name}", mutates_args=())
def by_reference({typed}) -> list[torch.Tensor]:
    """The reference, on the host."""
    inputs = [_array(one) if isinstance(one, torch.Tensor) else one for one in ({names},)]
    made = [torch.from_numpy(np.array(array, order="C")) for array in _computed(inputs)]
    return [one.to(getattr(torch, dtype)) for one, (_, dtype) in zip(made, RESULTS)]


@by_reference.register_fake
def _shapes({names}):
    return [torch.empty(shape, dtype=getattr(torch, dtype)) for shape, dtype in RESULTS]


def {name}({names}):
    """The operation: a tensor, or a tuple of tensors where there are several results."""
    inputs = ({names},)
    _check(inputs)
    if any(isinstance(one, torch.Tensor) and one.device.type not in ("cpu", "meta") for one in inputs):
        return by_kernel(*inputs)
    return tuple(by_reference(*inputs)){first}
'''
)
JAX = (
    '''"""{name}: an NKI kernel as a custom operation of JAX, written by `accelopt export --jax`.

    from {name}_jax import {name}

On a Neuron device the kernel runs, elsewhere the reference in NumPy (under jax.jit, too). It has no
gradient: for training, call it from a function with jax.custom_vjp.
"""
'''
    + COMMON.replace("{imports}", "import jax\nimport jax.numpy as jnp")
    + '''
def by_reference({names}):
    """The reference, on the host."""

    def computed(*inputs):
        arrays = [
            np.asarray(one) if known else np.asarray(one).item() for one, known in zip(inputs, ARGUMENTS)
        ]
        return [a.astype(jnp.dtype(dtype)) for a, (_, dtype) in zip(_computed(arrays), RESULTS)]

    shapes = [jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape, dtype in RESULTS]
    return jax.pure_callback(computed, shapes, {names})


def {name}({names}):
    """The operation: an array, or a tuple of arrays where there are several results."""
    _check(({names},))
    if jax.default_backend() == "neuron":
        return by_kernel({names})
    return tuple(by_reference({names})){first}
'''
)
TEST = '''"""{name} on this machine: beside the reference; the kernel itself where there is `{package}` (the SDK's on a
Neuron device, or the simulated core's: `accelopt python -m pytest`)."""

import importlib.util

import numpy as np
import pytest
from {name}_{framework} import _load, by_kernel, {name}
{helpers}

TOLERANCE = {tolerance}  # of the relative L2 error
HAS_NKI = "{package}" in __import__("sys").modules or importlib.util.find_spec("{package}") is not None


def drawn():
    np.random.seed(0)
    given = _load("reference").get_inputs()
    return given, [tensor(one) if isinstance(one, np.ndarray) else one for one in given]


def check(found, given):
    expected = _load("reference").forward(*given)
    pairs = zip(found, expected) if isinstance(expected, (tuple, list)) else [(found, expected)]
    for one, other in pairs:
        one, other = array(one).astype(np.float64), np.asarray(other, np.float64)
        assert np.linalg.norm(one - other.reshape(one.shape)) <= TOLERANCE * np.linalg.norm(other)


def test_it_is_the_reference():
    given, tensors = drawn()
    check({called}(*tensors), given)


def test_another_shape_is_refused():
    _, tensors = drawn()
    tensors[{first}] = tensors[{first}][None]
    with pytest.raises(ValueError, match="the kernel is for"):
        {name}(*tensors)


@pytest.mark.skipif(not HAS_NKI, reason="there is no {package}")
def test_the_kernel_is_the_reference():
    given, tensors = drawn()
    check(by_kernel(*tensors), given)
'''
HELPERS: Mapping[Framework, str] = {
    "torch": """import torch


def tensor(one):
    if one.dtype.name == "bfloat16":
        return torch.from_numpy(one.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.array(one))


def array(one):
    return (one.float() if one.dtype == torch.bfloat16 else one).cpu().numpy()
""",
    "jax": """import jax
import jax.numpy as jnp

tensor, array = jnp.asarray, np.asarray
""",
}
TEMPLATES: Mapping[Framework, str] = {"torch": TORCH, "jax": JAX}

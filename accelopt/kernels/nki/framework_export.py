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
from importlib.resources import files
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


NO_TORCH = frozenset({"float8_e4m3", "float8_e3m4"})  # those that end in fn are other formats


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
        if program.ranks:
            raise ConfigError(
                f"{kernel}: it passes elements between ranks, which a framework launches"
            )
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
    drawn = isinstance(value, np.ndarray)
    return np.asarray(random.normal(size=value.shape), np.float32) if drawn else value


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
    formats = {dtype for _, dtype in (*filter(None, made.arguments), *made.results)}
    if framework == "torch" and (lost := sorted(formats & NO_TORCH)):
        raise ConfigError(f"{kernel}: PyTorch has no {lost[0]}, as --jax has")
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
    return _template(framework).format(
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
    return _template(f"test_{framework}").format(
        name=made.name,
        package=made.package,
        top=made.package.partition(".")[0],
        tolerance=2e-2 if narrow else 1e-3,
        called=f"jax.jit({made.name})" if traced else made.name,
        first=next(n for n, one in enumerate(made.arguments) if one),
    )


def _template(name: str) -> str:
    return (files("accelopt.kernels.nki") / "export" / f"{name}.txt").read_text(encoding="utf-8")

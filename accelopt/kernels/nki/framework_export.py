"""A kernel as a custom operation of PyTorch or JAX: a folder with the kernel, its reference, the operation
and a test of it, which import without the Neuron SDK.

As the SDK's guide shows (2.33, "NKI Kernel as a Framework Custom Operator"), the operation calls the kernel
on tensors of a Neuron device; elsewhere it computes the reference on the host. Arguments and results are
the reference's: what its transforms do to shapes is found by trying, and written in the framework's words.
"""

from __future__ import annotations

import inspect
import itertools
import pprint
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from accelopt.errors import ConfigError
from accelopt.kernels.nki.arguments import argument_of
from accelopt.kernels.nki.devices import KernelFailure, TensorArgument
from accelopt.kernels.nki.devices.kernel_folder import kernel_folder
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.kernel_function import kernel_entry
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.sim.dialects.dialect import dialect_of_source
from accelopt.tables import packaged_text

Framework = Literal["torch", "jax"]
MOST_AXES = 5
NARROW = ("bfloat16", "float16")


class Rearranged(NamedTuple):
    """An array as another one: reshaped to `split`, its axes in the order `axes`, reshaped to `shape`, with
    zeros before and after it along each axis (none: no padding)."""

    source: int
    split: tuple[int, ...]
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    pads: tuple[tuple[int, int], ...] = ()

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
        text = text if there == self.shape else f"{text}.reshape({self.shape})"
        if not self.pads:
            return text
        if permute == "transpose":
            return f"jnp.pad({text}, {self.pads})"
        ends = tuple(itertools.chain.from_iterable(reversed(self.pads)))
        return f"torch.nn.functional.pad({text}, {ends})"


class Taken(NamedTuple):
    """An array of which each element is one of a source's, or a constant: which, its reference's transform tells."""

    source: int
    dtype: str


def rearranged(result: np.ndarray, sources: Sequence[Any]) -> Rearranged | None:
    """How an array is made of one of others by reshaping, permuting and padding; None where it is not. The arrays
    hold random numbers, so that equal elements are the same."""
    filled = [
        np.flatnonzero(result.any(axis=tuple({*range(result.ndim)} - {n})))
        for n in range(result.ndim)
    ]
    if not all(map(len, filled)):
        return None
    inner = result[tuple(slice(at[0], at[-1] + 1) for at in filled)]
    pads = tuple(
        (int(at[0]), int(n - 1 - at[-1])) for at, n in zip(filled, result.shape, strict=True)
    )
    for at, source in enumerate(sources):
        if isinstance(source, np.ndarray) and source.size == inner.size:
            for form in _forms(at, source.shape, inner.shape):
                if np.array_equal(form.of(source), inner):
                    return form._replace(pads=pads) if any(map(any, pads)) else form
    return None


def places(of: Any, plain: Any, source: int) -> Any:
    """Which element of input `source`, in its order, each element of an argument is (-1: of none), and what it is
    then. `of` makes the argument of inputs, which are like `plain`, all zeros; it is shown the numbers of elements
    digit by digit, which every format holds."""

    def shown(digit: Any) -> Any:
        given = [np.array(one) for one in plain]
        given[source] = digit.reshape(plain[source].shape).astype(plain[source].dtype)
        return np.asarray(of(given), np.float64)

    numbers = np.arange(plain[source].size)
    constant = shown(np.zeros_like(numbers))
    held = shown(np.ones_like(numbers)) != constant
    at = np.where(held, 0, -1)
    for place in range(len(f"{numbers.size:x}")):
        at[held] += shown(numbers // 16**place % 16)[held].astype(np.int64) * 16**place
    return np.minimum(at, numbers.size - 1), constant


def _taken(of: Callable[[Any], np.ndarray], drawn: list[Any], dtype: str) -> Taken | None:
    """How an argument is made of elements of one input and of constants; None where it is not."""
    if not all(isinstance(one, np.ndarray) for one in drawn):
        return None
    plain, made = [np.zeros_like(one) for one in drawn], of(drawn)
    for source, array in enumerate(drawn):
        at, constant = places(of, plain, source)
        found = np.where(at < 0, constant, array.reshape(-1)[np.maximum(at, 0)])
        if np.array_equal(found.astype(made.dtype), made):
            return Taken(source, dtype)
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


BY_ITS_BITS = {"float8_e4m3": "float8_e4m3fn"}
"""What the compiler takes as IEEE's format for trn1 and trn2, where PyTorch has no other (NCC_EVRF051 of SDK 2.32:
--experimental-unsafe-fp8e4m3fn-as-fp8e4m3)."""


class Operation(NamedTuple):
    """What the files are written of."""

    name: str
    entry: str
    package: str  # that the kernel imports
    kinds: tuple[str, ...]  # of its arguments: "array", or the type of a plain value
    arguments: tuple[tuple[tuple[int, ...], str] | None, ...]
    results: tuple[tuple[tuple[int, ...], str], ...]
    passed: tuple[Rearranged | Taken | Any, ...]
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
        form: Any = same
        if isinstance(value, np.ndarray):
            given = arguments[number]
            assert isinstance(given, TensorArgument)
            form = rearranged(value, drawn) or _taken(
                lambda inputs, at=number: problem.kernel_inputs(inputs)[at], drawn, given.dtype  # type: ignore[misc]
            )  # fmt: skip
            if form is None:
                what = f"argument {number} of the kernel"
                raise ConfigError(_unclear("transform_to_nki_inputs", what, "input"))
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
    for number, one in enumerate(made.passed):
        if isinstance(one, Taken):
            at = one.source
            passed.append(f"_taken({number}, {at}, {_named(one.dtype, framework)!r}, {names[at]})")
        elif isinstance(one, Rearranged):
            shape = made.arguments[one.source]
            assert shape is not None
            passed.append(one.text(names, shape[0], permute))
        else:
            passed.append(repr(one.value) if isinstance(one, Constant) else names[one])
    returned = [one.text(outs, made.outputs[one.source], permute) for one in made.returned]
    kinds = ["torch.Tensor" if kind == "array" else kind for kind in made.kinds]
    one, taken = len(made.results) == 1, ""
    if any(isinstance(form, Taken) for form in made.passed):
        taken = f"{inspect.getsource(places)}\n\n{_template(f'taken_{framework}')}\n\n"
    arguments, results = (
        tuple(each and (each[0], _named(each[1], framework)) for each in all_of)
        for all_of in (made.arguments, made.results)
    )
    return _template(framework).format(
        name=made.name,
        entry=made.entry,
        arguments=pprint.pformat(arguments),
        results=pprint.pformat(results),
        taken=taken,
        names=", ".join(names),
        typed=", ".join(f"{n}: {k}" for n, k in zip(names, kinds, strict=True)),
        passed=", ".join(passed),
        outs=", ".join(outs) + ("," if len(outs) == 1 else ""),
        returned=returned[0] if one else f"({', '.join(returned)})",
        first="[0]" if one else "",
    )


def _named(dtype: str, framework: Framework) -> str:
    """A format as the framework calls it."""
    return BY_ITS_BITS.get(dtype, dtype) if framework == "torch" else dtype


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
    return packaged_text(f"kernels/nki/export/{name}.txt")

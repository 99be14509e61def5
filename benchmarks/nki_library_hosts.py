"""What the vendor's library expects of its hosts when `nki_library.py` runs its tests: packages that only
they have, and how an output is compared with its reference."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

import numpy as np
import pytest

MOVED = {"nkilib_src.nkilib.experimental.subkernels": "nkilib_src.nkilib.experimental.collectives"}
"""Packages that tests import by a name which the snapshot does not have, and where they are."""
FOREIGN = (
    "test.utils.scripts test.utils.perf_analysis_private attr aws_embedded_metrics boto3 botocore fabric2 paramiko filelock plotext pytest_html neuron_dtypes nki.compiler.frontend"
).split()


class Anything(types.ModuleType):
    """A module whose every name exists and does nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {"__getattr__": lambda self, _: self})


class Foreign(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers the packages that only the library's hosts have."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Itself, for those packages."""
        for old, new in MOVED.items():
            if name == old or name.startswith(f"{old}."):
                importlib.import_module(name.replace(old, new))
                return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if any(name == f or name.startswith(f"{f}.") for f in FOREIGN):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        """What stands in for the package."""
        for old, new in MOVED.items():
            if spec.name.startswith(old):
                return sys.modules[spec.name.replace(old, new)]
        return number_formats() if spec.name == "neuron_dtypes" else Anything(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


def number_formats() -> types.ModuleType:
    """`neuron_dtypes`: names of formats, and conversion."""
    import ml_dtypes

    from accelopt.sim import dtypes

    module = Anything("neuron_dtypes")
    for dtype in dtypes.PACKED:
        setattr(module, dtypes.name_of(dtype), dtype)
    for name in ("bfloat16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2"):
        setattr(module, name, getattr(ml_dtypes, name))
    for name in ("float16", "float32", "int8", "int16", "int32", "uint8", "uint16", "uint32"):
        setattr(module, name, getattr(np, name))
    module.static_cast = static_cast
    module.finfo = lambda dtype: ml_dtypes.finfo(_format(dtype))
    module.sizeinbytes = lambda dtype: np.dtype(_format(dtype)).itemsize
    module.is_float_type = lambda dtype: np.dtype(_format(dtype)).kind in "fV"
    return module


def static_cast(values: Any, dtype: Any) -> np.ndarray:
    """An array in another format; four numbers of the last axis are one packed element."""
    from accelopt.sim import dtypes, microscaling

    array, wanted = np.asarray(values), _format(dtype)
    if dtypes.is_packed(array.dtype):
        array = microscaling.unpack(array).reshape(*array.shape[:-1], -1)
    return microscaling.pack(array, wanted) if dtypes.is_packed(wanted) else array.astype(wanted)


def _format(dtype: Any) -> np.dtype:
    from accelopt.sim import dtypes

    return dtypes.parse(dtype)


class Blank(np.ndarray):
    """Numbers that nobody reads, in the memory of one; what is made of them element by element is such, too."""

    def astype(self, dtype: Any, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        """The same in another format."""
        return blank(self.shape, dtype)

    def __array_ufunc__(self, function: Any, method: str, *given: Any, **named: Any) -> Any:
        plain = [np.asarray(one) for one in given]
        if method != "__call__" or function.nout > 1 or named or function.signature:
            return getattr(function, method)(*plain, **named)
        made = function(*(one.reshape(-1)[:1] for one in plain))
        return blank(np.broadcast_shapes(*(one.shape for one in plain)), made.dtype)


def blank(shape: Any, dtype: Any) -> Blank:
    """An array of that form."""
    one = np.zeros(1, dtype)
    return np.lib.stride_tricks.as_strided(
        one, tuple(np.atleast_1d(shape)), (0,) * np.size(shape)
    ).view(Blank)


def draw_in_float32(nothing: bool) -> None:
    """What NumPy draws in half the memory; for tests whose kernels are traced and no more, zeros that nothing
    touches."""
    random = np.random.default_rng(0)

    def drawn(kind: str, shape: Any, low: float, width: float) -> Any:
        if shape in (None, ()):
            return 0.0 if nothing else low + width * float(getattr(random, kind)())
        if nothing:
            return blank(shape, np.float32)
        values = getattr(random, kind)(shape, np.float32)
        values *= np.float32(width)
        values += np.float32(low)
        return values

    draws: dict[str, Any] = {
        "randn": lambda *shape: drawn("standard_normal", shape, 0, 1),
        "rand": lambda *shape: drawn("random", shape, 0, 1),
        **dict.fromkeys(("random", "random_sample"), lambda size=None: drawn("random", size, 0, 1)),
        "normal": lambda loc=0.0, scale=1.0, size=None: drawn("standard_normal", size, loc, scale),
        "uniform": lambda low=0.0, high=1.0, size=None: drawn("random", size, low, high - low),
    }
    for name, draw in draws.items():
        setattr(np.random, name, draw)


def given_to(inputs: Any, ranks: int) -> dict[str, Any]:
    """A kernel's arguments; those of several ranks with the ranks as the first axis of every array."""
    each = [inputs.for_rank(n) if hasattr(inputs, "for_rank") else inputs for n in range(ranks)]
    if ranks == 1:
        return dict(each[0])
    return {name: _of_ranks([one[name] for one in each]) for name in each[0]}


def _of_ranks(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, (list, tuple)):
        return type(first)(_of_ranks(list(parts)) for parts in zip(*values, strict=True))
    return np.stack(values) if isinstance(first, np.ndarray) else first


def compare(validation: Any, found: list[np.ndarray], rank: int = 0) -> None:
    """Every output of a rank within the test's tolerance of its reference, as the library compares: every element,
    relative to the largest of the reference (its `maxAllClose`)."""
    said = validation.golden_output
    said = said.for_rank(rank) if hasattr(said, "for_rank") else said
    golden = getattr(said, "golden", said)
    if golden is None:
        pytest.skip("the test has no reference")
    declared = list(getattr(said, "output_ndarray", None) or golden)
    assert len(found) >= len(golden), f"{len(found)} outputs, {len(golden)} expected"
    results = dict(zip(declared, found, strict=False))
    for name, expected in golden.items():
        result = results[name]
        if hasattr(expected, "validator"):
            shaped = np.asarray(result).reshape(expected.output_ndarray.shape)
            assert expected.validator().validate(shaped), f"output {name} is not accepted"
            continue
        one, other = compared(name, np.asarray(result), np.asarray(expected))
        assert one.shape == other.shape, f"{name}: {np.shape(result)} against {np.shape(expected)}"
        _close(name, one, other, validation)


AT_ONCE = 1 << 22
"""Elements that are compared together."""


def _close(name: str, one: np.ndarray, other: np.ndarray, validation: Any) -> None:
    """In float64, a part after the other, since there are tests with billions of elements."""
    parts = [slice(n, n + AT_ONCE) for n in range(0, one.size, AT_ONCE)]
    largest, wrong, worst = 0.0, 0, 0.0
    for part in parts:
        values = np.abs(other[part].astype(np.float64))
        largest = max(largest, float(values[np.isfinite(values)].max(initial=0.0)))
    allowed = validation.absolute_accuracy + validation.relative_accuracy * largest
    for part in parts:
        left, right = (array[part].astype(np.float64) for array in (one, other))
        with np.errstate(invalid="ignore"):
            apart = np.abs(left - right)
            same = (apart <= allowed) | (left == right) | (np.isnan(left) & np.isnan(right))
        wrong += int(same.size - same.sum())
        worst = max(worst, float(apart[np.isfinite(apart)].max(initial=0.0)))
    assert not wrong, (
        f"{name}: {wrong / one.size:.2%} differ, by {worst:.3g}, {allowed:.3g} allowed"
    )


def compared(name: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """Result and reference, flat. References may hold packed elements as other words of the same
    bytes. Of a tile of scales, partitions that hold none are left out: no instruction writes them."""
    from accelopt.sim import dtypes, microscaling

    numbers = []
    for array in arrays:
        if dtypes.is_packed(arrays[0].dtype):
            array = microscaling.unpack(np.ascontiguousarray(array).view(arrays[0].dtype))
        elif "scale" in name and array.dtype == np.uint8 and array.shape[0] == 128:
            array = array[np.arange(128) % microscaling.QUADRANT < microscaling.SCALES]
        numbers.append(array.reshape(-1))
    return numbers

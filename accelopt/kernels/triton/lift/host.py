"""The host's side of a launch while it is traced: `triton.jit` with its grids, and tensors of `torch`."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from accelopt.algorithm.index import Index, digits
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.linear import reshaped_strides, row_major
from accelopt.algorithm.traced_array import (
    NotTraced,
    TracedArray,
    axes_of_shape,
    identity,
    index_value,
    is_float,
)
from accelopt.algorithm.value_nodes import UNDEFINED, Element, Value
from accelopt.kernels.triton.lift.execution import Execution
from accelopt.kernels.triton.lift.host_statements import by_statements
from accelopt.kernels.triton.lift.kernel_trace import KernelTrace, Tile
from accelopt.kernels.triton.lift.language import Absent, Language
from accelopt.kernels.triton.lift.loops import FARTHEST
from accelopt.kernels.triton.lift.memory import Buffer, radix
from accelopt.kernels.triton.lift.statements import call, is_read, launch
from accelopt.kernels.triton.lift.tiles import FORMATS, Pointer
from accelopt.kernels.triton.lift.torch_functions import COMPUTED, OPERATORS
from accelopt.parsing import source_lines

PROCESSORS = 132
"""Streaming multiprocessors of the device that a host function asks for: those of an H100."""
SHARED_BYTES = 232_448
"""Shared memory of a block, as such a device says it."""
OTHER_FORMATS = {
    "bool": "int1", "float": "float32", "half": "float16", "float8_e4m3fn": "float8e4nv",
    "long": "int64", "int": "int32", "double": "float64", "float8_e5m2": "float8e5",
}  # fmt: skip
"""Formats of torch by Triton's names."""
LAUNCH_OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "warmup"}
"""Arguments of a launch that are no parameters of its kernel."""


class Tensor:
    """A view of a buffer. `elements` is an array of bytes with its shape and strides that nobody reads,
    `offset` where it begins."""

    def __init__(self, host: Host, buffer: Buffer, elements: np.ndarray, offset: int = 0) -> None:
        self.host, self.buffer, self.elements, self.offset = host, buffer, elements, offset
        self.shape, self.dtype, self.device = Size(elements.shape), buffer.dtype, DEVICE
        self.is_cuda, self.requires_grad, self.grad = True, False, None

    __array_ufunc__ = None  # a scalar of the tracer on the left leaves operators to the tensor
    ndim = property(lambda self: self.elements.ndim)
    T = property(lambda self: self._viewed(self.elements.T))
    mT = property(lambda self: self._viewed(np.swapaxes(self.elements, -1, -2)))
    data = property(lambda self: self)
    layout = property(lambda self: "strided")
    itemsize = property(lambda self: self.dtype.itemsize)

    def _viewed(self, elements: np.ndarray) -> Tensor:
        assert isinstance(elements, np.ndarray), "a number has no place in memory"
        places = (one.__array_interface__["data"][0] for one in (elements, self.elements))
        first, before = places
        return Tensor(self.host, self.buffer, elements, self.offset + first - before)

    def stride(self, dim: int | None = None) -> Any:
        return self.elements.strides if dim is None else self.elements.strides[dim]

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def is_contiguous(self, **_: Any) -> bool:
        return bool(self.elements.flags.c_contiguous)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Tensor:
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(one, slice) and any(map(is_read, ends_of(one))) for one in keys):
            self.host.refuse("the length of a part of a tensor is only known at run time")
        if any(isinstance(part, (Tensor, Tile)) for part in keys):
            return self.host.calculated(operator.getitem, self, key)  # type: ignore[no-any-return]
        return self._viewed(self.elements[keys if Ellipsis in keys else (*keys, ...)])

    def __setitem__(self, key: Any, value: Any) -> None:
        keys = key if isinstance(key, tuple) else (key,)
        read = any(is_read(n) for one in keys for n in (one, *ends_of(one)))
        if read or self.host.execution.loops or self.host.execution.guards:
            self._stored(keys, value)
            return

        def changed(own: Any, key: Any, value: Any) -> Any:
            own[key] = value
            return own

        self.assigned(self.host.calculated(changed, self, key, value))

    def _stored(self, keys: tuple[Any, ...], value: Any) -> None:
        """Assigns to elements whose places are numbers that are read, or that iterations have."""
        execution, trace = self.host.execution, self.host.trace
        keys = (*keys, *(slice(None),) * (self.ndim - len(keys)))
        if any(not isinstance(one, slice) and not isinstance(one, (int, Tile)) for one in keys):
            self.host.refuse("a part of a tensor that is assigned on the host")
        plain = [one if isinstance(one, (int, slice)) and not any(map(is_read, ends_of(one)))
                 else slice(None) for one in keys]  # fmt: skip
        view = self[tuple(plain)]
        kept = [one for one in keys if not isinstance(one, int)]
        extents = [
            1 if isinstance(one, Tile) else e for one, e in zip(kept, view.shape, strict=True)
        ]
        address, mask = Index(view.offset), trace.traced(True)
        for n, (one, index) in enumerate(zip(kept, identity(extents), strict=True)):
            if isinstance(one, Tile):
                index = index_value(one.value) or self.host.refuse(
                    "a part of a tensor that is assigned on the host"
                )
            for end, low in zip(ends_of(one), (True, False), strict=False):
                if end is not None and any(map(is_read, ends_of(one))):
                    at = trace.array(extents, np.int64, trace.values.position(index))
                    mask = mask & (at >= end if low else at < end)
            address = address + index * view.elements.strides[n]
        given = value.tile() if isinstance(value, Tensor) else trace.traced(value)
        given = given.astype(self.dtype).broadcast(tuple(extents))
        at = trace.array(extents, np.int64, trace.values.position(address))
        pointer = Pointer(
            self.buffer, at, radix(self.buffer.size, self.elements.strides, self.shape)
        )
        held = mask.broadcast(tuple(extents)).value
        execution.write(pointer, address, given.value, held, "", {})

    def view(self, *shape: Any) -> Tensor:
        if isinstance(shape[0], np.dtype):
            if shape[0] == self.dtype:
                return self
            self.host.refuse("a tensor's bits as another format have no definition as an Algorithm")
        wanted = _extents(shape)
        made = _reshaped(self.elements, wanted)
        return self.contiguous().view(wanted) if made is None else self._viewed(made)

    reshape = view

    def tile(self) -> Tile:
        """All elements, as they are now."""
        if self.shape != self.elements.shape:
            self.host.refuse("a tensor whose length is only known at run time is computed with")
        return self.host.trace.array(self.shape, self.dtype, self.value(identity(self.shape)))

    def value(self, indices: Sequence[Index]) -> Value:
        """An element, as it is now."""
        address = Index(self.offset)
        for index, stride in zip(indices, self.elements.strides, strict=True):
            address = address + index * stride
        return self.host.execution.read(self.buffer, address)

    def pointer(self) -> Pointer:
        """What a kernel is given."""
        scalar = self.host.execution.scalar(self.offset, np.int64)
        return Pointer(
            self.buffer, scalar, radix(self.buffer.size, self.elements.strides, self.shape)
        )

    def contiguous(self, **_: Any) -> Tensor:
        return self if self.is_contiguous() else self.host.computed(self.tile())

    def to(self, *given: Any, dtype: Any = None, **_: Any) -> Tensor:
        wanted = next((g for g in given if isinstance(g, np.dtype)), dtype)
        same = wanted is None or wanted == self.dtype
        return self if same else self.host.computed(self.tile().to(wanted))

    type = type_as = to

    def assigned(self, value: Any) -> Tensor:
        """Other contents."""
        whole = self.is_contiguous() and self.elements.size == self.buffer.size
        if not whole or self.host.execution.loops or self.host.execution.guards:
            self._stored((), value)
            return self
        given = value.tile() if isinstance(value, Tensor) else self.host.trace.traced(value)
        source = self.host.computed(given.astype(self.dtype).broadcast(self.shape)).buffer
        self.buffer.initial, self.buffer.writes, self.buffer.changed = source.initial, [], True
        return self

    def __getattr__(self, name: str) -> Any:
        if name in VIEWS:
            return lambda *given, **more: self._viewed(VIEWS[name](self.elements, *given, **more))
        if name in METHODS:
            return functools.partial(METHODS[name], self)
        if name in COMPUTED:
            return functools.partial(self.host.calculated, COMPUTED[name], self)
        if name.startswith("__"):
            raise AttributeError(name)
        return self.host.refuse(f"Tensor.{name} is not known to the tracer")

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    __index__ = __int__

    def __float__(self) -> float:
        return float(self.item())

    def __neg__(self) -> Tensor:
        return self.neg()  # type: ignore[no-any-return]

    def __invert__(self) -> Tensor:
        return self.logical_not()  # type: ignore[no-any-return]


def _repeated(tensor: Tensor, repeats: Any, dim: int | None = None, **_: Any) -> Tensor:
    """`torch.repeat_interleave`; by counts that are read, how long the result is is such a number."""
    host, trace = tensor.host, tensor.host.trace
    counts = repeats.tile() if isinstance(repeats, Tensor) else repeats
    if not isinstance(repeats, Tensor) or isinstance(counts.value, Constant):
        return host.calculated(np.repeat, tensor, repeats, dim)  # type: ignore[no-any-return]
    if tensor.ndim != 1:
        host.refuse("a tensor of several dimensions is repeated by numbers that are read")
    ends = np.cumsum(counts.broadcast(tensor.shape))
    length = host.number_in(ends[-1])
    place = trace.array((FARTHEST, 1), np.int64, trace.values.position(identity((FARTHEST, 1))[0]))
    made = host.computed(tensor.tile()[np.sum(ends <= place, axis=1)])
    made.shape = Size((length,))
    return made


VIEWS: dict[str, Callable[..., np.ndarray]] = {
    "transpose": np.swapaxes, "moveaxis": np.moveaxis, "movedim": np.moveaxis, "unsqueeze": lambda a, dim: np.expand_dims(a, dim),
    "broadcast_to": lambda a, *shape: np.broadcast_to(a, _extents(shape)),
    "t": np.transpose, "permute": lambda a, *order: a.transpose(_extents(order)),
    "squeeze": lambda a, dim=None: np.squeeze(
        a, tuple(n for n, e in enumerate(a.shape) if e == 1 and dim in (None, n, n - a.ndim))),
    "expand": lambda a, *shape: np.broadcast_to(a, [
        have if want == -1 else want for have, want in zip(
            [1] * (len(_extents(shape)) - a.ndim) + list(a.shape), _extents(shape), strict=True)]),
    "expand_as": lambda a, other: np.broadcast_to(a, other.shape),
}  # fmt: skip
"""Methods that are other views of the same elements."""
METHODS: dict[str, Callable[..., Any]] = {
    "dim": lambda a: a.ndim, "numel": lambda a: a.elements.size, "nelement": lambda a: a.elements.size,
    "element_size": lambda a: a.dtype.itemsize, "data_ptr": lambda a: 1 << 20,
    "is_floating_point": lambda a: a.dtype.kind not in "biu", "is_complex": lambda a: False,
    **{name: lambda a, kind=FORMATS[kind]: a.to(kind) for name, kind in (
        *OTHER_FORMATS.items(), ("bfloat16", "bfloat16"))},
    "tolist": lambda a: Numbers(a) if a.ndim else a.item(), "view_as": lambda a, b: a.view(b.shape),
    "reshape_as": lambda a, b: a.view(b.shape), "clone": lambda a, **_: a.host.computed(a.tile()),
    **dict.fromkeys(("detach", "cuda", "cpu", "requires_grad_"), lambda a, *_: a),
    "flatten": lambda a, start=0, end=-1: a.view(
        *a.shape[:start], -1, *a.shape[end % a.ndim + 1 :]),
    "split": lambda a, size, dim=0: [
        a._viewed(one) for one in np.split(a.elements, range(size, a.shape[dim], size), dim)],
    "chunk": lambda a, count, dim=0: a.split(-(-a.shape[dim] // count), dim),
    "unbind": lambda a, dim=0: [a.moveaxis(dim, 0)[n] for n in range(a.shape[dim])],
    "new_empty": lambda a, *s, dtype=None, **_: a.host.made(_extents(s), dtype or a.dtype, None),
    "new_zeros": lambda a, *s, dtype=None, **_: a.host.made(_extents(s), dtype or a.dtype, 0),
    "repeat_interleave": _repeated, "item": lambda a: a.host.number_in(a.tile()),
    "zero_": lambda a: a.assigned(0), "fill_": lambda a, b: a.assigned(b),
    "copy_": lambda a, b, *_: a.assigned(b), "mul_": lambda a, b: a.assigned(a * b),
    "add_": lambda a, b: a.assigned(a + b),
}  # fmt: skip
for _name, _function in OPERATORS.items():
    setattr(Tensor, f"__{_name}__", lambda a, b, f=_function: a.host.calculated(f, a, b))
    if _name not in ("eq", "ne", "lt", "gt", "le", "ge"):
        setattr(Tensor, f"__r{_name}__", lambda a, b, f=_function: a.host.calculated(f, b, a))
        setattr(
            Tensor,
            f"__i{_name}__",
            lambda a, b, f=_function: a.assigned(a.host.calculated(f, a, b)),
        )
Tensor.__hash__ = object.__hash__  # type: ignore[method-assign]


class NumberIsRead(NotTraced):
    """A host function reads a number that only an input says: it is executed by its statements."""


class _Kind(type):
    """`isinstance` with a stand-in for a kind of numbers."""

    def __instancecheck__(cls, instance: Any) -> bool:
        whole, kind = cls.__mro__[1] is int, "iub" if cls.__mro__[1] is int else "f"
        return isinstance(instance, int if whole else float) or (
            isinstance(instance, Tile) and not instance.ndim and instance.dtype.kind in kind
        )


class WholeNumber(int, metaclass=_Kind):
    """`int` in a traced file: of a number that is read it is that number."""

    def __new__(cls, value: Any = 0, *base: Any) -> Any:
        value = value.item() if isinstance(value, Tensor) else value
        if not is_read(value):
            return int(value, *base)
        return value if value.dtype.kind in "iub" else np.trunc(value).astype(np.int64)


class RealNumber(float, metaclass=_Kind):
    """`float` in a traced file, likewise."""

    def __new__(cls, value: Any = 0.0) -> Any:
        value = value.item() if isinstance(value, Tensor) else value
        return value.astype(np.float64) if is_read(value) else float(value)


class Numbers(list[Any]):
    """`Tensor.tolist()`, which a number that is read may be an index of."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        super().__init__(one.item() if one.ndim == 0 else Numbers(one) for one in tensor.unbind(0))

    def __getitem__(self, key: Any) -> Any:
        if not is_read(key):
            return super().__getitem__(key)
        found = self.tensor[key]
        return Numbers(found) if found.ndim else found.item()


class Size(tuple[int, ...]):
    """`Tensor.shape`."""

    def numel(self) -> int:
        return math.prod(self)


class Device(str):
    """`Tensor.device`."""

    type = "cuda"
    index = 0  # type: ignore[assignment]

    def __new__(cls, *_: Any) -> Device:
        return super().__new__(cls, "cuda:0")


DEVICE = Device()


def ends_of(key: Any) -> tuple[Any, ...]:
    """Where a slice begins and ends; nothing of another key."""
    return (key.start, key.stop) if isinstance(key, slice) else ()


def _called(name: str, tensor: Tensor, *given: Any, **more: Any) -> Any:
    """A function of torch that tensors have as a method."""
    return getattr(tensor, name)(*given, **more)


def _laid_out(shape: Sequence[int]) -> np.ndarray:
    """An array of a shape whose strides are those of a new tensor."""
    return np.lib.stride_tricks.as_strided(np.empty(1, np.int8), shape, row_major(shape))


def _reshaped(elements: np.ndarray, wanted: Sequence[int]) -> np.ndarray | None:
    """The same elements in another shape, None where that takes a copy; NumPy would read them to make it.
    Raises ValueError for another number of elements."""
    size = elements.size
    left = max(math.prod(n for n in wanted if n != -1), 1)
    shape = [size // left if n == -1 else n for n in wanted]
    if math.prod(shape) != size:
        raise ValueError(f"a tensor of {size} elements has no shape {list(wanted)}")
    strides = reshaped_strides(elements.shape, elements.strides, tuple(shape))
    if strides is None:
        return None
    strides = tuple(s if n > 1 else 1 for n, s in zip(shape, strides, strict=True))
    return np.lib.stride_tricks.as_strided(elements, shape, strides)


def _extents(given: Sequence[Any]) -> tuple[int, ...]:
    shape = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    return tuple(int(n) for n in shape)


class Host:
    """Makes tensors, and the modules that a file with kernels imports."""

    def __init__(self, trace: KernelTrace, statements: bool = False) -> None:
        self.trace, self.statements = trace, statements
        self.number_is_read: NumberIsRead | None = None
        self.execution = Execution(trace)
        self.language = Language(self.execution, self.absent)
        self.importing = True
        self.missing: set[str] = set()

    def refuse(self, reason: str) -> Any:
        """Raises NotTraced at the line that is being executed."""
        self.trace.refuse(reason)

    def absent(self, name: str) -> Absent:
        """Something of a package that is not there."""
        return Absent(name, self.refuse, lambda: self.importing)

    def number_in(self, tile: Tile) -> Any:
        """The number that an array of one element is."""
        if tile.size != 1 or isinstance(tile.value, Constant):
            return tile.item()
        if self.statements:
            return tile.reshape(())
        self.number_is_read = NumberIsRead(
            "the host reads a number of an input", *self.trace.line()
        )
        raise self.number_is_read

    def by_statements(self, module: ModuleType, called: Callable[..., Any]) -> Callable[..., Any]:
        """A function of a module, which is executed by its statements, as are those that it calls."""
        made: dict[Any, Any] = {}
        for name, held in vars(module).items():
            plain = isinstance(held, FunctionType) and not inspect.isgeneratorfunction(held)
            if plain and held.__code__.co_filename in self.trace.files:
                made[held] = vars(module)[name] = by_statements(self.execution, held)
        return made.get(called, called)  # type: ignore[no-any-return]

    # Tensors.

    def argument(self, name: str, number: int, shape: Sequence[int], dtype: np.dtype) -> Tensor:
        """An input."""
        values, kind = self.trace.values, dtype.name

        def initial(address: Index) -> Value:
            return values.same(Element(name, number, kind, address))

        buffer = Buffer(name, math.prod(shape), dtype, initial, number, tuple(shape))
        self.execution.buffers.append(buffer)
        return Tensor(self, buffer, _laid_out(shape))

    def made(self, shape: Sequence[int], dtype: Any, number: float | None) -> Tensor:
        """`torch.empty`, `torch.zeros` and the like."""
        value = UNDEFINED if number is None else self.trace.values.number(number)
        kind = np.dtype(np.float32 if dtype is None else dtype)
        buffer = Buffer("", max(math.prod(shape), 1), kind, lambda _: value)
        self.execution.buffers.append(buffer)
        return Tensor(self, buffer, _laid_out(shape))

    def strided(self, shape: Sequence[int], strides: Sequence[int], dtype: Any) -> Tensor:
        """`torch.empty_strided`."""
        size = 1 + sum((e - 1) * s for e, s in zip(shape, strides, strict=True))
        made = self.made((size,), dtype, None)
        elements = np.lib.stride_tricks.as_strided(made.elements, shape, strides)
        return made._viewed(elements)

    def computed(self, tile: Any) -> Tensor:
        """A new tensor of a tile's elements."""
        made = self.made(tile.shape, tile.dtype, None)
        value, axes = tile.value, axes_of_shape(tile.shape)
        self.trace.note(tile, self.trace.line())

        def initial(address: Index) -> Value:
            place = dict(zip(axes, digits(address, tile.shape), strict=True))
            return self.trace.values.substitute(value, place)

        made.buffer.initial = initial
        return made

    def calculated(self, function: Callable[..., Any], *given: Any, **more: Any) -> Any:
        """What a function of tiles makes of tensors, as new tensors."""

        def tiles(one: Any) -> Any:
            if isinstance(one, (tuple, list)):
                return type(one)(map(tiles, one))
            return one.tile() if isinstance(one, Tensor) else one

        def tensors(one: Any) -> Any:
            if isinstance(one, (tuple, list)):
                return type(one)(map(tensors, one))
            return self.computed(one) if isinstance(one, TracedArray) else one

        return tensors(function(*tiles(given), **{k: tiles(v) for k, v in more.items()}))

    # Modules.

    def modules(self) -> dict[str, ModuleType]:
        """Those of `triton` and of `torch`, by name."""

        def stub(name: str, **names: Any) -> Stub:
            return Stub(name, self.absent, names)

        properties = SimpleNamespace(multi_processor_count=PROCESSORS, warp_size=32, name="H100",
                                     major=9, minor=0, max_shared_mem=SHARED_BYTES)  # fmt: skip
        driver = SimpleNamespace(
            get_current_target=lambda: SimpleNamespace(backend="cuda", arch=90, warp_size=32),
            get_current_device=lambda: 0, get_active_torch_device=lambda: DEVICE,
            utils=SimpleNamespace(get_device_properties=lambda *_: {
                "multiprocessor_count": PROCESSORS, "max_shared_mem": SHARED_BYTES}),
        )  # fmt: skip
        language = self.language
        runtime = stub("triton.runtime", driver=SimpleNamespace(active=driver))
        triton = stub(
            "triton", jit=self.jit, language=language, runtime=runtime, Config=Config, JITFunction=Jit,
            autotune=self.autotune, heuristics=self.heuristics, __version__="3.5.0",
            cdiv=lambda x, y: (x + (y - 1)) // y if is_read(x) else -(-int(x) // int(y)), set_allocator=lambda *_: None,
            next_power_of_2=lambda n: 1 << max(int(n) - 1, 0).bit_length(),
        )  # fmt: skip
        cuda = stub(
            "torch.cuda", is_available=lambda: True, get_device_capability=lambda *_: (9, 0),
            get_device_properties=lambda *_: properties, current_device=lambda: 0,
            device_count=lambda: 1, device=_Context, _DeviceGuard=_Context, synchronize=lambda *_: None,
        )  # fmt: skip
        kinds = stub(
            "torch._prims_common", is_integer_dtype=lambda d: d.kind in "iu", is_float_dtype=is_float,
            is_boolean_dtype=lambda d: d.kind == "b",
        )  # fmt: skip
        autograd = stub("torch.autograd", Function=Function)
        torch = stub(
            "torch", **FORMATS, **{own: FORMATS[name] for own, name in OTHER_FORMATS.items()},
            Tensor=Tensor, Size=Size, dtype=np.dtype, device=Device, cuda=cuda, autograd=autograd,
            empty=self._creator(None), zeros=self._creator(0), ones=self._creator(1),
            full=lambda shape, value, dtype=None, **_: self.made(_extents([shape]), dtype, value),
            empty_like=self._like(None), zeros_like=self._like(0), ones_like=self._like(1),
            tensor=lambda v, dtype=None, **_: self.computed(self.trace.traced(np.asarray(v, dtype))),
            _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda *_: 0),
            compiler=SimpleNamespace(is_compiling=lambda: False, disable=lambda f=None, **_: f),
            no_grad=_Context, inference_mode=_Context, is_tensor=lambda x: isinstance(x, Tensor),
            version=SimpleNamespace(cuda="12.8", hip=None),
            __version__="2.8.0", strided="strided", inf=math.inf, finfo=ml_dtypes.finfo, iinfo=np.iinfo, broadcast_shapes=np.broadcast_shapes,
            contiguous_format="contiguous", preserve_format="preserve",
            promote_types=np.promote_types, result_type=lambda *given: np.result_type(*(
                one.dtype if isinstance(one, Tensor) else one for one in given)),
            empty_strided=lambda shape, strides, dtype=None, **_: self.strided(shape, strides, dtype),
            arange=lambda *ends, dtype=np.int64, **_: self.computed(self.trace.traced(
                np.arange(*ends)).astype(dtype)),
        )  # fmt: skip
        functional = stub("torch.nn.functional")
        for name in {*VIEWS, *METHODS, "reshape"} - vars(torch).keys():
            setattr(torch, name, functools.partial(_called, name))
        for name, function in COMPUTED.items():
            setattr(functional, name, functools.partial(self.calculated, function))
            setattr(torch, name, getattr(functional, name))
        modules = stub("torch.nn", functional=functional, Module=Module)
        vars(torch)["nn"] = modules
        tuner = stub("triton.runtime.autotuner", Autotuner=Autotuner)
        tools = stub("triton.tools.tensor_descriptor", TensorDescriptor=TensorDescriptor)
        made: list[ModuleType] = [triton, runtime, tuner, tools, torch, cuda, autograd, language,
                                  modules, functional, kinds]  # fmt: skip
        return {module.__name__: module for module in made}

    def _creator(self, number: float | None) -> Callable[..., Tensor]:
        return lambda *shape, size=None, dtype=None, **_: self.made(
            _extents([size] if size is not None else shape), dtype, number
        )

    def _like(self, number: float | None) -> Callable[..., Tensor]:
        return lambda like, dtype=None, **_: self.made(like.shape, dtype or like.dtype, number)

    # triton.jit.

    def jit(self, function: Any = None, **_: Any) -> Any:
        """A decorator with or without arguments."""
        return (lambda f: Jit(self, f)) if function is None else Jit(self, function)

    def autotune(self, configs: Any, key: Any = None, **_: Any) -> Any:
        """The first configuration is taken."""
        return lambda kernel: Autotuner(kernel, kernel.arg_names, configs, key)

    def heuristics(self, values: Mapping[str, Callable[..., Any]]) -> Any:
        """`triton.heuristics`."""
        return lambda kernel: kernel.computing(dict(values))

    @contextmanager
    def installed(self) -> Iterator[None]:
        """The stand-ins in the place of `triton` and `torch`; what is imported meanwhile is forgotten."""
        before, path = dict(sys.modules), list(sys.path)
        for name in [n for n in sys.modules if n.partition(".")[0] in ("triton", "torch")]:
            del sys.modules[name]
        sys.modules.update(self.modules())
        finder = _Finder(self)
        sys.meta_path.insert(0, _Inside(self))
        sys.meta_path.append(finder)
        try:
            yield
        finally:
            sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, _Finder)]
            sys.path[:] = path
            for name in [n for n in sys.modules if n not in before]:
                del sys.modules[name]
            sys.modules.update(before)


class TensorDescriptor(NamedTuple):
    """Triton's class of that name, on the host."""

    base: Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: Sequence[int]

    @staticmethod
    def from_tensor(tensor: Tensor, block_shape: Sequence[int], **_: Any) -> TensorDescriptor:
        """Of all of a tensor."""
        return TensorDescriptor(tensor, tensor.shape, tensor.stride(), block_shape)


class Config:
    """`triton.Config`."""

    def __init__(self, kwargs: Mapping[str, Any], **more: Any) -> None:
        self.kwargs, self.num_warps, self.num_stages = dict(kwargs), 4, 3
        vars(self).update(more)


class Jit:
    """A function of `triton.jit`: launched by the host, called by kernels."""

    def __init__(self, host: Host, function: Callable[..., Any]) -> None:
        self.host, self.fn, self.__name__ = host, function, function.__name__
        self.settings: dict[str, Any] = {}
        self.computed: dict[str, Callable[..., Any]] = {}
        self.arg_names = list(inspect.signature(function).parameters)
        functools.update_wrapper(self, function, updated=())

    def configured(self, settings: dict[str, Any]) -> Jit:
        """With values that a launch need not give."""
        self.settings = settings | self.settings
        return self

    def computing(self, values: dict[str, Callable[..., Any]]) -> Jit:
        """With values that follow from the others."""
        self.computed |= values
        return self

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return functools.partial(self.run, grid=grid)

    def run(self, *args: Any, grid: Any, **more: Any) -> None:
        """A launch."""
        signature = inspect.signature(self.fn)
        known = {k: v for k, v in more.items() if k in signature.parameters}
        extra = more.keys() - known.keys() - LAUNCH_OPTIONS
        if extra:
            self.host.refuse(f"{self.__name__} has no parameter {min(extra)}")
        taken = signature.bind_partial(*args, **known)
        missing = {k: v for k, v in self.settings.items() if k not in taken.arguments}
        missing = {k: v for k, v in missing.items() if k in signature.parameters}
        bound = signature.bind_partial(*args, **known, **missing)
        bound.apply_defaults()
        meta = dict(bound.arguments)
        for name, function in self.computed.items():
            meta[name] = function(meta)
        absent = [p for p in signature.parameters if p not in meta]
        if absent:
            self.host.refuse(f"the launch of {self.__name__} gives no {absent[0]}")
        sizes = grid(meta) if callable(grid) else grid
        extents = (sizes,) if isinstance(sizes, int) else tuple(sizes)
        constant = _constants(self.fn)
        given = {k: self._given(v, k in constant) for k, v in meta.items()}
        launch(self.host.execution, self.fn, extents, given)

    def _given(self, value: Any, constant: bool) -> Any:
        if isinstance(value, Tensor):
            return value.pointer()
        if isinstance(value, TensorDescriptor):
            return self.host.language.make_tensor_descriptor(
                value.base.pointer(), value.shape, value.strides, value.block_shape
            )
        if constant or value is None or not isinstance(value, (bool, int, float)):
            return value
        kind = (
            bool
            if isinstance(value, bool)
            else np.float32
            if isinstance(value, float)
            else np.int32
        )
        return self.host.trace.array((), kind, self.host.trace.number(value))

    def __call__(self, *args: Any, **more: Any) -> Any:
        bound = inspect.signature(self.fn).bind(*args, **more)
        bound.apply_defaults()
        return call(self.host.execution, self.fn, bound.arguments)


class Autotuner(Jit):
    """`triton.runtime.autotuner.Autotuner`: the first configuration is taken."""

    def __init__(
        self, fn: Jit, arg_names: Any, configs: Any, key: Any = None, *_: Any, **__: Any
    ) -> None:
        super().__init__(fn.host, fn.fn)
        self.base_fn, self.configs, self.keys = fn, configs, key
        self.computed, self.settings = fn.computed, dict(fn.settings)
        self.configured(dict(configs[0].kwargs) if configs else {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None  # hooks and caches of its search


@functools.lru_cache(maxsize=512)
def _constants(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters that are `tl.constexpr`."""
    tree = ast.parse(inspect.cleandoc("\n" + "".join(source_lines(function)[0])))
    head = tree.body[0]
    assert isinstance(head, ast.FunctionDef)
    arguments = [*head.args.posonlyargs, *head.args.args, *head.args.kwonlyargs]
    return frozenset(
        a.arg
        for a in arguments
        if a.annotation is not None and "constexpr" in ast.unparse(a.annotation)
    )


class Function:
    """`torch.autograd.Function`: `apply` is its forward."""

    @classmethod
    def apply(cls, *given: Any) -> Any:
        """`forward`, without a graph."""
        return cls.forward(SavedContext(), *given)  # type: ignore[attr-defined]


class SavedContext:
    """`ctx` of an autograd function."""

    needs_input_grad = (True,) * 32

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *_: Any) -> None:
        return None

    mark_dirty = set_materialize_grads = mark_non_differentiable


class Module:
    """`torch.nn.Module` without parameters."""

    def __call__(self, *given: Any, **more: Any) -> Any:
        return self.forward(*given, **more)  # type: ignore[attr-defined]


class _Context:
    """A context manager, or a decorator, that does nothing."""

    idx = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        return None

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: Any) -> None:
        return None

    def __call__(self, function: Any) -> Any:
        return function


class Stub(ModuleType):
    """A module whose other names are absent."""

    def __init__(self, name: str, absent: Callable[[str], Any], names: Mapping[str, Any]) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._absent, self.__version__ = absent, "0"
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._absent(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of packages that are missing, asked last: their names can be imported."""

    inside = False

    def __init__(self, host: Host) -> None:
        self.host = host

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        top = name.partition(".")[0]
        standing = top in ("triton", "torch")
        if standing != self.inside or not (standing or top in self.host.missing):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        language = spec.name.startswith("triton.language")
        if language:
            return sys.modules["triton.language"]
        return Stub(spec.name, self.host.absent, {})

    def exec_module(self, module: ModuleType) -> None:
        return None


class _Inside(_Finder):
    """Modules of `triton` and `torch`, asked first."""

    inside = True


def load(path: str, host: Host, folders: Sequence[str]) -> ModuleType:
    """The module in a file, whose imports `host` answers. Packages that are missing, and that it does not
    do without, are imported as names."""
    place, names = Path(path), [Path(path).stem]
    while (place.parent / "__init__.py").is_file():
        place = place.parent
        names.insert(0, place.name)
    sys.path[:0] = [*folders, str(place.parent)]
    name, before = ".".join(names), set(sys.modules)
    while True:
        sys.modules.pop(name, None)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            package = str(error.name).partition(".")[0]
            if package in host.missing or package in (names[0], ""):
                raise
            host.missing.add(package)
            for imported in set(sys.modules) - before:
                del sys.modules[imported]

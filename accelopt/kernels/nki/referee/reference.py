"""A problem's reference module: loaded once, by path, in our own process. Never a kernel's file."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from accelopt.errors import ConfigError, printable
from accelopt.kernels.nki.referee.agreement import Agreement, agreement_of
from accelopt.kernels.nki.referee.precision import declared, in_single
from accelopt.kernels.nki.referee.rounding import (
    Formats,
    Interval,
    Namespace,
    apart,
    known,
    values,
    vectorized,
)
from accelopt.kernels.nki.referee.stress import Shapes, elementwise
from accelopt.kernels.nki.referee.uses import AskedNumpy, Uses, Watched, WideIntegers
from accelopt.sandbox.progress import announced
from accelopt.sandbox.protected_state import kept
from accelopt.store import content_key


class _AsItStands(SourceFileLoader):
    """Reads the text each time: bytecode is kept by second and size, and an edit may change neither."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def load_module(path: str | Path) -> ModuleType:
    """The module in the file `path`; its folder can be imported from while it loads, not after."""
    path = Path(path).resolve()
    name = "accelopt_module_" + hashlib.sha256(str(path).encode()).hexdigest()[:16]
    loader = _AsItStands(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise ImportError(f"Could not load module from {path}")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


class Reference:
    """What a kernel must compute: `get_inputs`, `forward`, and two shape transforms where a kernel's shapes
    are not the reference's."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            text = self.path.read_bytes()
            self.key = content_key(text, np.__version__)
            with announced(f"the reference {self.path}"), kept():
                module = load_module(self.path)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            said = printable(f"{type(error).__name__}: {error}")
            raise ConfigError(f"the reference {path} cannot be loaded: {said}") from error
        for name in ("get_inputs", "forward"):
            if not callable(getattr(module, name, None)):
                raise ConfigError(f"the reference {path} has no function {name}")
        self._module = module
        self.precision = declared(text.decode(errors="replace"))
        """Formats below float32 that the problem allows."""
        self.agreement = self._agreement()
        """How its outputs agree with a kernel's."""
        self._elementwise: bool | None = None
        self._uses: Uses | None = None

    @property
    def summary(self) -> str:
        """The first sentence that the module, or `forward`, says of itself; else empty."""
        for found in (self._module, self._module.forward):
            if said := (inspect.getdoc(found) or "").strip():
                return said.partition("\n")[0]
        return ""

    def _agreement(self) -> Agreement:
        try:
            return agreement_of(getattr(self._module, "compare", {}))
        except ConfigError as error:
            raise ConfigError(f"the reference {self.path}: {error}") from error

    @contextlib.contextmanager
    def _blamed(self, function: str) -> Iterator[None]:
        """An error inside is the reference's: ConfigError that says so."""
        try:
            with announced(f"{function} of the reference {self.path}"), kept():
                yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            said = printable(f"{type(error).__name__}: {error}")
            raise ConfigError(f"{function} of the reference {self.path} failed: {said}") from error

    @staticmethod
    def _listed(returned: Any) -> list[Any]:
        """A list of inputs; an array would be taken apart into its rows."""
        if not isinstance(returned, (list, tuple)):
            raise TypeError(f"it returns {type(returned).__name__}, not a list of inputs")
        return list(returned)

    def inputs(self, seed: int) -> list[Any]:
        """The problem's inputs for one seed of NumPy's global generator, which is left as it was."""
        state = np.random.get_state()
        np.random.seed(seed)
        try:
            with self._blamed("get_inputs"):
                return self._listed(self._module.get_inputs())
        finally:
            np.random.set_state(state)

    def rounded(
        self, given: Sequence[Any], formats: Formats
    ) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """The exact outputs of inputs `given_as` intervals, in the form that is compared, and what honest
        rounding in `formats` may move each element by. Raises ConfigError for a reference that does
        not take intervals, or loses them."""
        with self._with_numpy(Namespace(formats)), self._blamed("forward"):
            outputs = _several(self._module.forward(*given))
            if formats.plain is None and not all(
                isinstance(one, Interval) or np.asarray(one).dtype.kind in "iub" for one in outputs
            ):
                raise TypeError("its outputs lost their intervals")
            if not self.agreement.rules:
                true, radii = zip(*map(known, outputs), strict=True)
                return true, radii
        with self._blamed("compare"), np.errstate(all="ignore"):
            true, *ends = (
                self.agreement.compared(
                    values([*given]), [np.asarray(values(one, end)) for one in outputs]
                )
                for end in (None, lambda one: one.ends()[0], lambda one: one.ends()[1])
            )
        radii = (np.maximum(apart(a, t), apart(b, t)) for t, a, b in zip(true, *ends, strict=True))
        return true, tuple(radii)

    @contextlib.contextmanager
    def _with_numpy(self, other: ModuleType) -> Iterator[None]:
        """The reference sees `other` in place of NumPy."""
        names = vars(self._module)
        plain = {n: v for n, v in names.items() if v is np or isinstance(v, np.vectorize)}
        names.update(
            {n: vectorized(v) if isinstance(v, np.vectorize) else other for n, v in plain.items()}
        )
        try:
            with np.errstate(all="ignore"):
                yield
        finally:
            names.update(plain)

    def uses(self, inputs: Sequence[Any]) -> Uses:
        """What it does with its integers, and which of NumPy's names it asks for; tried once, on the first
        inputs that are given. Where that cannot be told, all of them may be indices."""
        if self._uses is None:
            self.watched(inputs)
        return self._uses or Uses()

    def watched(self, inputs: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """Its outputs on these inputs, in the formats that `forward` works in, while it is seen what it `uses`;
        none where that fails."""
        self._uses = found = Uses()
        arrays = {n for n, value in enumerate(inputs) if isinstance(value, np.ndarray)}
        found.finite = all(
            np.isfinite(inputs[n]).all() for n in arrays if inputs[n].dtype.kind == "f"
        )
        given = [
            Watched(np.array(value), frozenset({number}), found) if number in arrays else value
            for number, value in enumerate(inputs)
        ]
        try:
            with self._with_numpy(AskedNumpy(found)), self._blamed("forward"):
                returned = (
                    one.value if isinstance(one, Watched) else one
                    for one in _several(self._module.forward(*given))
                )
                plain = [*map(np.asarray, returned)]
            if not any(one.dtype.kind in "OSU" for one in plain):
                return self._compared(inputs, plain)
        except ConfigError:
            found.indices |= arrays
        return ()

    def in_wide_integers(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        """The outputs with every integer of 64 bits. Raises ConfigError."""
        wide = [
            value.astype(np.int64)
            if isinstance(value, np.ndarray) and value.dtype.kind in "iu"
            else value
            for value in inputs
        ]
        with self._with_numpy(WideIntegers("numpy")), self._blamed("forward"):
            return list(map(np.asarray, _several(self._module.forward(*map(_own, wide)))))

    @property
    def has_domain(self) -> bool:
        """Whether it says which inputs are legal."""
        return getattr(self._module, "domain", None) is not None

    def legal(self, inputs: Sequence[Any]) -> list[Any]:
        """What its `domain` makes of inputs that it would never draw; without one, all are legal. Raises
        ConfigError where that is no list of inputs of the same shapes."""
        domain = getattr(self._module, "domain", None)
        if domain is None:
            return list(inputs)
        with self._blamed("domain"):
            found = self._listed(domain(*map(_own, inputs)))
            if list(map(np.shape, found)) != list(map(np.shape, inputs)):
                raise TypeError("it must return inputs of the shapes that it is given")
            return [
                one.astype(like.dtype) if isinstance(like, np.ndarray) else one
                for one, like in zip(found, inputs, strict=True)
            ]

    def forward(self, inputs: Sequence[Any], *, to_lose: bool = False) -> tuple[np.ndarray, ...]:
        """The reference outputs in the form that is compared, always as a tuple, worked
        out in float32 where the inputs are narrower. Divisions by zero and the like are no warnings.

        It works on copies: a reference may compute in place (`x -= x.max()`), and what it leaves in
        its inputs must not become what the kernel is given. Inputs that nobody needs afterwards
        (`to_lose`) it may have as they are.
        """
        with self._blamed("forward"), np.errstate(all="ignore"):
            single = map(in_single, inputs)
            returned = self._module.forward(*(single if to_lose else map(_own, single)))
            arrays = tuple(map(np.asarray, _several(returned)))
            for array in arrays:
                if array.dtype.kind in "OSU":
                    raise TypeError(f"it returns {array.dtype}, not numbers")
        return self._compared(inputs, arrays)

    def _compared(
        self, inputs: Sequence[Any], outputs: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, ...]:
        with self._blamed("compare"), np.errstate(all="ignore"):
            return self.agreement.compared(inputs, tuple(outputs))

    def elementwise(self, inputs: Sequence[Any], outputs: Shapes) -> bool:
        """True where some input is the argument of an element-wise function; tried once, on the first inputs
        and shapes of outputs that are given."""
        if self._elementwise is None:
            generator = np.random.default_rng(len(inputs))
            self._elementwise = elementwise(self.forward, inputs, outputs, generator)
        return self._elementwise

    def kernel_inputs(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs in the shapes the kernel takes. `inputs` stay as they are: most transforms only
        reshape, so they are given frozen, and copied for one that writes into them."""
        transform = getattr(self._module, "transform_to_nki_inputs", list)
        with self._blamed("transform_to_nki_inputs"):
            try:
                return self._listed(transform([frozen(value) for value in inputs]))
            except ValueError as error:
                if "read-only" not in str(error):
                    raise
                return self._listed(transform([_own(value) for value in inputs]))

    def kernel_outputs(
        self, outputs: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]
    ) -> list[Any]:
        """The kernel's outputs in the reference's shapes, as the module's own transform makes them; without one,
        arrays of one element are numbers where the reference returns such."""
        transform: Callable[..., Any] | None = getattr(self._module, "transform_nki_outputs", None)
        if transform is None:
            numbers = [n < len(expected) and not np.ndim(expected[n]) for n in range(len(outputs))]
            return [o.reshape(()) if number and o.size == 1 else o
                    for o, number in zip(outputs, numbers, strict=True)]  # fmt: skip
        kernel: Any = outputs if len(outputs) != 1 else outputs[0]
        reference: Any = expected if len(expected) != 1 else expected[0]
        with announced(f"transform_nki_outputs of the reference {self.path}"), kept():
            return list(_several(transform(kernel, reference)))


def _several(returned: Any) -> Sequence[Any]:
    """What a function returned as a sequence, of one where it is one."""
    return returned if isinstance(returned, (tuple, list)) else (returned,)


def _own(value: Any) -> Any:
    """`value`, an array as a writable copy."""
    return np.array(value, subok=True) if isinstance(value, np.ndarray) else value


def frozen(value: Any) -> Any:
    """`value`, an array as a view that cannot be written through."""
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view

"""How exact outputs are: a PyTorch reference in float64, and beside it what no kernel need be more exact than.

The reference's operators run on wider tensors, whatever formats its text names.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from accelopt.evaluation import Exactness

if TYPE_CHECKING:
    import torch

# Operators that move elements and compute nothing: what is narrow stays so, and exact.
MOVES = frozenset(
    "alias as_strided detach embedding expand gather index index_select lift_fresh permute select slice "
    "split split_with_sizes squeeze t transpose unbind unfold unsqueeze view _unsafe_view".split()
)
PRODUCTS = frozenset("mm bmm addmm baddbmm addbmm addmv mv dot vdot convolution".split())
NUDGED = 12  # one of so many elements, by a unit of its format: the mean square of one rounding
MOST_AT_ONCE = 1 << 24  # elements


class ExactReference:
    """A reference in float64; `has_products` once a run has multiplied matrices."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.has_products = False

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """Its outputs on `inputs`, in float64 where they have a floating-point format of more than eight bits.
        Inputs are widened at once where an operator wants one format of all, else as they are used."""
        import torch

        try:
            return self._run(inputs)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            narrow = [isinstance(one, torch.Tensor) and one.dtype in _formats() for one in inputs]
            return self._run([x.double() if n else x for x, n in zip(inputs, narrow, strict=True)])

    def _run(self, inputs: Sequence[Any]) -> Any:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), _default(torch.float64), self._mode():
            return self.function(*inputs)

    def _mode(self) -> Any:
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_map

        double, formats = torch.float64, _formats()

        class Wider(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
            def __torch_dispatch__(
                mode, function: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                name, schema = function.overloadpacket.__name__, function._schema
                self.has_products |= name in PRODUCTS
                if name in MOVES:
                    return function(*args, **(kwargs or {}))
                form = args[0].dtype if schema.is_mutable else double  # into what is there

                def wide(value: Any) -> Any:
                    if isinstance(value, torch.dtype):
                        return double if value in formats else value
                    floats = isinstance(value, torch.Tensor) and value.dtype in formats
                    return value.to(form) if floats and form in formats else value

                given = [
                    # A softmax in a wider format than its input's: that has it.
                    False if argument.name == "half_to_float" else tree_map(wide, value)
                    for argument, value in zip(schema.arguments, args, strict=False)
                ]
                return function(*given, **tree_map(wide, kwargs or {}))

        return Wider()


def _formats() -> set[torch.dtype]:
    """What is widened."""
    import torch

    return {torch.float16, torch.bfloat16, torch.float32, torch.float64}


@contextlib.contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def nudged(inputs: Sequence[Any], seed: int) -> list[Any]:
    """The inputs with as much error as one more rounding of each to its own format makes, for which they are
    changed in place."""
    import torch

    for tensor in inputs:
        if not (isinstance(tensor, torch.Tensor) and tensor.is_floating_point()):
            continue
        whole = {2: torch.int16, 4: torch.int32}.get(tensor.element_size())
        if whole is not None:
            generator = torch.Generator(device=tensor.device).manual_seed(seed)
            by = torch.empty(tensor.shape, dtype=torch.int8, device=tensor.device)
            by.random_(0, 2 * NUDGED, generator=generator)
            tensor.view(whole).add_((by == 0).to(whole)).sub_((by == 1).to(whole))
    return list(inputs)


def distance(values: torch.Tensor, exact: torch.Tensor) -> float:
    """Their relative difference in the 2-norm, over what is finite in both."""
    import torch

    parts = []
    for at in range(0, exact.numel(), MOST_AT_ONCE):
        one, true = (each.reshape(-1)[at : at + MOST_AT_ONCE].double() for each in (values, exact))
        finite = torch.isfinite(one) & torch.isfinite(true)
        gap = torch.where(finite, one - true, 0.0)
        parts.append([torch.linalg.vector_norm(each) for each in (gap, true[finite])])
    error, size = (math.hypot(*map(float, each)) for each in zip(*parts, strict=True))
    return error / size if size else math.inf * error if error else 0.0


def exactness_of(
    got: torch.Tensor, wanted: torch.Tensor, exact: torch.Tensor, rounded: float
) -> Exactness:
    """Of an output where the reference gives `wanted` and in float64 `exact`. Of a float32 output counts as
    exact, too, what changes where inputs are `rounded` once more, and a unit: functions are approximations
    on a GPU."""
    import torch

    unit = float(torch.finfo(wanted.dtype).eps)
    single = (rounded, unit) if wanted.dtype == torch.float32 else ()
    honest = max((distance(wanted, exact), *single))
    return Exactness(error=distance(got, exact), unit=unit, summed=honest)

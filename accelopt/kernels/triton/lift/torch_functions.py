"""Functions of torch that compute new tensors: what they are of tiles, by NumPy's functions. Methods of
tensors have the same names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from accelopt.algorithm.elementwise_functions import elementwise


def _by_name(name: str) -> Callable[..., Any]:
    return lambda a, **_: elementwise(a.trace, name, [a])


def _dims(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, (list, tuple)) else dim


def _extreme(name: str) -> Callable[..., Any]:
    """`torch.max` and `torch.min`: of two tensors, of all elements, or along a dimension with places."""

    def made(a: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if hasattr(dim, "trace"):
            return elementwise(a.trace, f"{name}imum", [a, dim])
        found = getattr(np, name)(a, axis=dim, keepdims=keepdim)
        place = getattr(np, f"arg{name}")
        return found if dim is None else (found, place(a, dim, keepdims=keepdim))

    return made


def _clamp(a: Any, min: Any = None, max: Any = None) -> Any:
    a = a if min is None else np.maximum(a, min)
    return a if max is None else np.minimum(a, max)


def _softmax(a: Any, dim: int = -1, dtype: Any = None, **_: Any) -> Any:
    a = a if dtype is None else a.astype(dtype)
    raised = np.exp(a - np.max(a, axis=dim, keepdims=True))
    return raised / np.sum(raised, axis=dim, keepdims=True)


def _logsumexp(a: Any, dim: Any, keepdim: bool = False) -> Any:
    most = np.max(a, axis=_dims(dim), keepdims=True)
    found = np.log(np.sum(np.exp(a - most), axis=_dims(dim), keepdims=True)) + most
    return found if keepdim else np.squeeze(found, _dims(dim))


def _gelu(a: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (a + 0.044715 * a * a * a)
        return 0.5 * a * (1 + np.tanh(inner))
    return 0.5 * a * (1 + elementwise(a.trace, "erf", [a * math.sqrt(0.5)]))


def _var(a: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
         correction: int | None = None) -> Any:  # fmt: skip
    ddof = int(unbiased) if correction is None else correction
    return np.var(a, axis=_dims(dim), ddof=ddof, keepdims=keepdim)


def _normed(a: Any, dims: Any, weight: Any, bias: Any, eps: float | None, centred: bool) -> Any:
    axes = tuple(range(-len(dims), 0)) if isinstance(dims, (tuple, list)) else (-1,)
    a = a - np.mean(a, axis=axes, keepdims=True) if centred else a
    eps = float(np.finfo(np.float32).eps) if eps is None else eps
    a = a / np.sqrt(np.mean(a * a, axis=axes, keepdims=True) + eps)
    a = a if weight is None else a * weight
    return a if bias is None else a + bias


def _attention(q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0,
               is_causal: bool = False, scale: float | None = None, **_: Any) -> Any:  # fmt: skip
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if dropout_p:
        q.trace.refuse("random numbers have no definition as an Algorithm")
    if is_causal:
        seen = np.tril(np.ones(scores.shape[-2:], bool))
        scores = np.where(seen, scores, -np.inf)
    if attn_mask is not None:
        boolean = attn_mask.dtype.kind == "b"
        scores = np.where(attn_mask, scores, -np.inf) if boolean else scores + attn_mask
    return _softmax(scores) @ v


def _sum_or_mean(name: str) -> Callable[..., Any]:
    def made(a: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None, **_: Any) -> Any:
        return getattr(np, name)(a, axis=_dims(dim), dtype=dtype, keepdims=keepdim)

    return made


COMPUTED: dict[str, Callable[..., Any]] = {
    **{name: _by_name(name) for name in (
        "exp exp2 log log2 log1p expm1 sqrt sin cos tan tanh erf floor ceil trunc square sinh cosh "
        "reciprocal logical_not").split()},
    "abs": _by_name("absolute"), "neg": _by_name("negative"), "sigmoid": _by_name("expit"),
    "add": lambda a, b, alpha=1: a + (b if alpha == 1 else b * alpha),
    "sub": lambda a, b, alpha=1: a - (b if alpha == 1 else b * alpha),
    "mul": np.multiply, "div": np.true_divide, "pow": np.power, "maximum": np.maximum,
    "minimum": np.minimum, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "gt": np.greater,
    "le": np.less_equal, "ge": np.greater_equal, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "floor_divide": np.floor_divide, "remainder": np.remainder,
    "matmul": np.matmul, "mm": np.matmul, "bmm": np.matmul, "mv": np.matmul, "dot": np.matmul,
    "addmm": lambda c, a, b, beta=1, alpha=1: c * beta + (a @ b) * alpha,
    "baddbmm": lambda c, a, b, beta=1, alpha=1: c * beta + (a @ b) * alpha,
    "linear": lambda a, w, b=None: a @ w.T if b is None else a @ w.T + b,
    "outer": lambda a, b: a[:, None] * b[None, :],
    "einsum": lambda text, *given: np.einsum(
        text, *(given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given)),
    "sum": _sum_or_mean("sum"), "mean": _sum_or_mean("mean"),
    "prod": lambda a, dim=None, keepdim=False: np.prod(a, axis=_dims(dim), keepdims=keepdim),
    "amax": lambda a, dim=None, keepdim=False: np.max(a, axis=_dims(dim), keepdims=keepdim),
    "amin": lambda a, dim=None, keepdim=False: np.min(a, axis=_dims(dim), keepdims=keepdim),
    "max": _extreme("max"), "min": _extreme("min"),
    "all": lambda a, dim=None, keepdim=False: np.all(a, axis=dim, keepdims=keepdim),
    "any": lambda a, dim=None, keepdim=False: np.any(a, axis=dim, keepdims=keepdim),
    "argmax": lambda a, dim=None, keepdim=False: np.argmax(a, dim, keepdims=keepdim),
    "argmin": lambda a, dim=None, keepdim=False: np.argmin(a, dim, keepdims=keepdim),
    "var": _var, "std": lambda *given, **more: np.sqrt(_var(*given, **more)),
    "cumsum": lambda a, dim, dtype=None: np.cumsum(a, dim, dtype),
    "cumprod": lambda a, dim, dtype=None: np.cumprod(a, dim, dtype),
    "softmax": _softmax, "logsumexp": _logsumexp,
    "log_softmax": lambda a, dim=-1, dtype=None, **_: np.log(_softmax(a, dim, dtype)),
    "rsqrt": lambda a: 1.0 / np.sqrt(a), "clamp": _clamp, "clip": _clamp,
    "relu": lambda a, **_: np.maximum(a, 0), "silu": lambda a, **_: a * elementwise(a.trace, "expit", [a]),
    "gelu": _gelu, "softplus": lambda a: np.log(1 + np.exp(a)),
    "leaky_relu": lambda a, negative_slope=0.01, **_: np.where(a > 0, a, a * negative_slope),
    "elu": lambda a, alpha=1.0, **_: np.where(a > 0, a, alpha * (np.exp(a) - 1)),
    "layer_norm": lambda a, dims, weight=None, bias=None, eps=1e-5: _normed(
        a, dims, weight, bias, eps, True),
    "rms_norm": lambda a, dims, weight=None, eps=None: _normed(a, dims, weight, None, eps, False),
    "scaled_dot_product_attention": _attention,
    "where": lambda mask, a, b: np.where(mask, a, b),
    "masked_fill": lambda a, mask, value: np.where(mask, value, a),
    "tril": lambda a, diagonal=0: np.tril(a, diagonal),
    "triu": lambda a, diagonal=0: np.triu(a, diagonal),
    "cat": lambda given, dim=0: np.concatenate(given, dim),
    "stack": lambda given, dim=0: np.stack(given, dim),
    "atleast_2d": lambda given: [a if a.ndim > 1 else a.reshape(1, -1) for a in given],
    "flip": lambda a, dims: np.flip(a, _dims(dims)), "roll": lambda a, shifts, dims=None: np.roll(
        a, shifts, dims),
    "gather": lambda a, dim, index: np.take_along_axis(a, index, dim),
    "index_select": lambda a, dim, index: np.take(a, index, dim),
    "embedding": lambda index, weight, **_: np.take(weight, index, 0),
}  # fmt: skip
OPERATORS: dict[str, Callable[..., Any]] = {
    "add": np.add, "mul": np.multiply, "sub": np.subtract, "truediv": np.true_divide,
    "matmul": np.matmul, "pow": np.power, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "gt": np.greater, "le": np.less_equal, "ge": np.greater_equal, "floordiv": np.floor_divide,
    "mod": np.remainder, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip
"""Of two operands, by the names that Python has for them; `and` and `or` are of truth values."""

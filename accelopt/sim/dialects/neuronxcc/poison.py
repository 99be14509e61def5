"""What a refused call gives while violations are collected: a value that absorbs every use, so that
one error does not make others out of nothing."""

from __future__ import annotations

from typing import Any


class Poison:
    """Stands for a tensor that could not be made."""

    __array_ufunc__ = None
    shape: tuple[int, ...] = ()
    written_mask = None

    def _absorb(self, *_: Any, **__: Any) -> Poison:
        return self

    __call__ = __getitem__ = __neg__ = __invert__ = _absorb
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _absorb
    __rtruediv__ = __iadd__ = __isub__ = __imul__ = __and__ = __or__ = __lt__ = __gt__ = _absorb
    __le__ = __ge__ = _absorb

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


POISON = Poison()


def is_poisoned(values: Any) -> bool:
    """True when one of the values stands for something that was refused."""
    return any(isinstance(value, Poison) for value in values)

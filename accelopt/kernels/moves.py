"""What can be done to a kernel, by canonical name: one table for all kernel languages, `methods.csv`.

A method of a language is one line there: the resources that it relieves when it succeeds, and the class
or function that makes it. Strategies read names and resources. Methods of NKI are primitives of nests.

Resources of a NeuronCore: dma, tensor, vector, scalar, gpsimd; of a GPU: gmem (HBM and caches),
compute, sfu (special functions), control; of both: overlap (nothing waits for anything).
"""

from __future__ import annotations

from importlib import import_module
from inspect import getdoc
from typing import NamedTuple

from accelopt.tables import packaged_table


class Method(NamedTuple):
    """A method: its language, the resources it touches, and where it is made ("module:attribute").

    `by_model` says in a sentence what a model may do of the kind to a kernel, where no rule does: to one
    in CUDA, or to one in NKI in the way of a primitive.
    """

    language: str
    touches: tuple[str, ...]
    place: str
    by_model: str = ""

    @property
    def of_schedules(self) -> bool:
        """Whether it writes the whole kernel anew; a model can do all others to a kernel's text."""
        return self.language == "nki" and not self.by_model


METHODS = {
    row["method"]: Method(
        row["language"], tuple(row["touches"].split()), row["place"], row["by_model"]
    )
    for row in packaged_table("kernels/methods.csv")
}


def methods_of(language: str) -> dict[str, Method]:
    """The methods of one language, in the order in which they are looked for."""
    return {
        name: method
        for name, method in METHODS.items()
        if method.language == language
        or ((method.language, language) == ("triton", "cuda") and method.by_model)
    }


def methods_that_touch(language: str, resource: str) -> tuple[str, ...]:
    """The names of the methods of one language that relieve `resource`."""
    return tuple(name for name, m in methods_of(language).items() if resource in m.touches)


def what_it_does(name: str, language: str = "") -> str:
    """The sentence with which the code of a method begins, or what a model may do by that name."""
    method = METHODS[name]
    if not method.place or (language == "cuda" and method.by_model):
        return method.by_model
    module, _, attribute = method.place.partition(":")
    first = (getdoc(getattr(import_module(module), attribute)) or "").partition("\n\n")[0]
    return " ".join(first.split())

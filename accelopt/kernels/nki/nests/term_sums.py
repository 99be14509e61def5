"""Sums of few computed terms, each of which is added to those before it as it is computed, and sums or
extrema of few elements where an instruction for each further one is faster than one for all.

A term that is a tile times one number a partition (a tap of a filter, a weight of a row) is added by the
instruction that computes it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import contraction, masked_factors
from accelopt.algorithm.index import Index, index_of
from accelopt.hardware import Hardware

MOST_TERMS = 8
"""Of a sum that is taken term by term."""
MOST_WEIGHTED = 16
"""Terms of one whose terms are each a tile times a number a partition."""
LEAST_WIDE = 64
"""Elements a partition of such a tile, from which on an instruction for each term is less work than one for
all products and one for their sums."""

LEAST_SHARED = 6
"""Terms from which on two engines add them."""


def is_short(definition: ir.Definition) -> bool:
    """Whether a definition is a short sum of computed terms: not where the Tensor engine multiplies, nor
    where nothing is computed of what is summed."""
    return (
        isinstance(definition, ir.Reduce)
        and definition.combiner == "add"
        and math.prod(axis.extent for axis in definition.reduced) <= MOST_TERMS
        and contraction(definition) is None
        and not isinstance(definition.expression, ir.Read)
    )


def decided(definition: ir.Definition) -> ir.Definition:
    """A short sum as its terms where places or conditions in it depend on the term: each has its own then."""
    if not isinstance(definition, ir.Reduce) or not is_short(definition):
        return definition
    parts = list(ir.walk(definition.expression))
    plain = all(index.is_affine for part in parts for index in ir.indices_of(part))
    if plain and not any(isinstance(part, (ir.Where, ir.Indirect)) for part in parts):
        return definition
    return ir.Map(definition.out, definition.axes, sum_of(terms_of(definition)))


def terms_of(definition: ir.Reduce) -> list[ir.Expression]:
    """What a sum is the sum of, in order."""
    sizes = [range(axis.extent) for axis in definition.reduced]
    return [
        ir.substituted(
            definition.expression,
            {a: Index(n) for a, n in zip(definition.reduced, numbers, strict=True)},
            {},
        )
        for numbers in itertools.product(*sizes)
    ]


def sum_of(terms: Iterable[ir.Expression], combiner: str = "add") -> ir.Expression:
    """The sum of some terms, or what else combines them, from the first to the last."""
    return functools.reduce(lambda total, term: ir.Apply(combiner, (total, term)), terms)


def is_weighted(definition: ir.Definition, lying: Iterable[str], widths: Mapping[str, int]) -> bool:
    """Whether a definition is a sum of few terms that are each one instruction: a tile times a number a
    partition. `lying` are the axes on partitions; of others in loops, `widths` has how many elements are taken
    at once."""
    if not isinstance(definition, ir.Reduce) or definition.combiner != "add":
        return False
    own = {axis for axis in definition.axes if axis.name not in lying}
    free = {axis: widths.get(axis.name, axis.extent) for axis in own}
    wide = {axis for axis, width in free.items() if width > 1}
    summed = definition.reduced
    factors = [f for f in masked_factors(definition.expression) if ir.axes_of(f) & {*summed}]
    numbers = [factor for factor in factors if not ir.axes_of(factor) & wide]
    return (
        len(factors) > 1
        and len(numbers) > 0
        and math.prod(axis.extent for axis in summed) <= MOST_WEIGHTED
        and math.prod(free.values()) >= LEAST_WIDE
    )


def is_faster_in_terms(
    definition: ir.Reduce, lying: Iterable[str], widths: Mapping[str, int], columns: int, spec: Hardware
) -> bool:  # fmt: skip
    """Whether Vector combines few elements faster two by two than by an instruction that takes all of them, of up to so
    many `columns` of results; `lying` and `widths` are those of `is_weighted`."""
    count = math.prod(axis.extent for axis in definition.reduced)
    free = (widths.get(a.name, a.extent) for a in definition.axes if a.name not in lying)
    width, opened = min(math.prod(free), columns), spec.access_cycles
    pair = width * spec.two_input_cycles_per_element + opened
    plain = definition.combiner in ("add", "maximum", "minimum")
    return plain and count <= MOST_TERMS and (count - 1) * pair < count * width + opened


def in_own_terms(definition: ir.Reduce, spec: Hardware, shared: bool) -> list[ir.Map]:
    """A sum as its terms; where Vector and GpSimd have `shared` them, those that GpSimd adds are definitions
    before it: as many as it adds while Vector adds the others and their sum."""
    terms = terms_of(definition)
    vector = spec.two_input_cycles_per_element / spec.vector_ghz
    gpsimd = spec.gpsimd_cycles_per_element / spec.gpsimd_ghz
    count = int(len(terms) * vector / (vector + gpsimd))
    own = list[ir.Map]()
    if shared and len(terms) >= LEAST_SHARED and not spec.vector_gpsimd_exclusive:
        names = (f"{definition.out}_at_{n}" for n in range(len(terms) - count, len(terms)))
        own = [ir.Map(n, definition.axes, t) for n, t in zip(names, terms[-count:], strict=True)]
        del terms[-count:]
    places = tuple(map(index_of, definition.axes))
    apart = [sum_of(ir.Read(term.out, places) for term in own)] if own else []
    total = sum_of((*terms, *apart), definition.combiner)
    return [*own, ir.Map(definition.out, definition.axes, total)]

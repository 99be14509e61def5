"""Products with computed operands in the format of what they are multiplied with.

A kernel that takes 16-bit numbers to 32 bits before a product has them multiplied at half the rate or less,
and tiles of them in twice the memory. What is computed beside them, such as weights of a softmax, is rounded
to bfloat16 instead, which has their range, as far as a result has that format, too.
"""

from __future__ import annotations

from dataclasses import replace

from accelopt.algorithm.contraction import factors_of, product_of
from accelopt.algorithm.ir import Algorithm, Apply, Expression, Indirect, Read, Reduce, walk
from accelopt.kernels.triton.emission.simplifying import product_in, unguarded
from accelopt.kernels.triton.emission.tiles import NARROW


def rounded(algorithm: Algorithm) -> Algorithm:
    """With the computed one of two factors of a product rounded where the other one is an input's. The same
    Algorithm where there is no such product."""
    formats = {array.name: array.dtype for array in algorithm.inputs}
    results = {array.dtype for array in algorithm.outputs}
    found = list(algorithm.definitions)
    for number, own in enumerate(found):
        if not isinstance(own, Reduce) or product_in(own) is None:
            continue
        factors = factors_of(own.expression)
        kinds = [_format(factor, formats) for factor in factors]
        computed = [n for n, kind in enumerate(kinds) if not kind]
        if len(factors) != 2 or len(computed) != 1 or "bfloat16" not in results & {*kinds}:
            continue
        factors[computed[0]] = Apply("bfloat16", (factors[computed[0]],))
        found[number] = replace(own, expression=product_of(factors))
    return replace(algorithm, definitions=tuple(found))


def _format(factor: Expression, formats: dict[str, str]) -> str:
    """The 16-bit format that a factor has or is in memory, "" for what is computed."""
    bare = unguarded(factor)
    while isinstance(bare, Indirect):
        bare = unguarded(bare.element)
    if isinstance(bare, Apply) and bare.function in NARROW:
        return bare.function
    found = formats.get(bare.array, "") if isinstance(bare, Read) else ""
    computed = any(isinstance(part, Read) and part.array not in formats for part in walk(factor))
    return found if found in NARROW else "" if computed else "other"

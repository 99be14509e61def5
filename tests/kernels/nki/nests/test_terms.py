"""Sums of few terms, pairs of sums, and tiles that come in parts.

Evidence: as in `test_nests`; nki.isa's pages of scalar_tensor_tensor (tiles of one free axis in neuronxcc, of one
shape in nki), of bn_stats (at most 512 elements a partition) and of bn_aggr.
"""

import math
import re
from dataclasses import replace

import pytest

from accelopt.algorithm.ir import Algorithm
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.nest import Nest, Part, Stage, default_nest
from accelopt.kernels.nki.nests.preparing import prepared
from accelopt.kernels.nki.nests.primitives import (
    Bring,
    Columns,
    Engine,
    Partition,
    Skip,
    Tile,
    applied,
)
from accelopt.kernels.nki.nests.starts import (
    starting_nests,
    with_elements_kept,
    with_loads_in_rounds,
    with_operands_summed,
)
from accelopt.sim.dialects.dialect import Dialect
from tests.kernels.nki.lift.algorithms import written
from tests.kernels.nki.nests.test_nests import TARGETS, check

TAPS = written(
    "taps", {"c": 128, "h": 12, "w": 20, "k": 3, "l": 3}, {"x": (128, 14, 22), "f": (128, 3, 3)},
    "s[c, h, w] = add[k, l](x[c, h + k, w + l] * f[c, k, l])",
    "out[c, h, w] = minimum(maximum(s[c, h, w], 0.0), 6.0)",
)  # fmt: skip
STATES = written(
    "states", {"c": 64, "t": 80, "s": 6}, {"a": (64, 6), "x": (64, 80), "w": (6, 80)},
    "h[c, s, t] = scan[t](sigmoid(x[c, t] * a[c, s]), x[c, t])",
    "out[c, t] = add[s](w[s, t] * h[c, s, t])",
)  # fmt: skip
GROUPS = written(
    "groups", {"m": 32, "g": 4, "k": 64, "n": 160},
    {"x": (32, 4, 64), "w": (4, 64, 160), "s": (4, 160)},
    "p[m, g, n] = add[k](x[m, g, k] * w[g, k, n])",
    "out[m, n] = add[g](s[g, n] * p[m, g, n])",
)  # fmt: skip


PADDED = written(
    "padded", {"b": 4, "c": 64, "h": 9, "w": 11, "k": 3, "l": 3, "o": 48},
    {"x": (4, 64, 9, 11), "f": (64, 3, 3), "p": (64, 48)},
    "s[b, c, h, w] = add[k, l](x[b, c, h + k - 1, w + l - 1] * f[c, k, l] if h + k - 1 >= 0"
    " and h * -1 + k * -1 + 9 >= 0 and w + l - 1 >= 0 and w * -1 + l * -1 + 11 >= 0 else 0.0)",
    "out[b, o, h, w] = add[c](p[c, o] * maximum(s[b, c, h, w], 0.0))",
)  # fmt: skip
COUNTED = written(
    "counted", {"m": 16, "n": 40, "k": 256}, {"x": (256, 40), "t": (256,)},
    "total[m] = add[k](equal(position(m), t[k]))",
    "sums[m, n] = add[k](x[k, n] * equal(position(m), t[k]))",
    "out[m, n] = sums[m, n] / maximum(total[m], 1.0)",
)  # fmt: skip


def packed(g: int, n: int) -> Algorithm:
    """Products of g groups by weights of which each byte holds two: one for each half of n columns."""
    made = written(
        "packed", {"m": 32, "g": g, "k": 64, "n": n},
        {"w": (g, 64, n), "x": (32, g, 64), "s": (g, n)},
        "low[m, g, n] = add[k](x[m, g, k] * (mod(floor(w[g, k, n]), 16.0) - 8.0))",
        "high[m, g, n] = add[k](x[m, g, k] * (mod(floor(w[g, k, n] * 0.0625), 16.0) - 8.0))",
        "one[m, n] = add[g](s[g, n] * low[m, g, n])",
        "other[m, n] = add[g](s[g, n] * high[m, g, n])",
        f"out[m, n] = other[m, n] if n - {n // 2} >= 0 else one[m, n]",
    )  # fmt: skip
    weights, *rest = made.inputs
    return replace(made, inputs=(replace(weights, dtype="uint8"), *rest))


NORM = written(
    "norm", {"m": 160, "b": 3, "n": 200}, {"x": (3, 160, 200)},
    "total[m] = add[b, n](x[b, m, n])",
    f"squares[m] = add[b, n](square(x[b, m, n] - total[m] * {1 / 600}))",
    f"out[b, m, n] = (x[b, m, n] - total[m] * {1 / 600}) * rsqrt(squares[m] * {1 / 600} + 0.001)",
)  # fmt: skip


def text_of(algorithm: object, nest: Nest, dialect: Dialect) -> str:
    return lower_nest(algorithm, nest, target=TARGETS[dialect], dialect=dialect).source  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", TARGETS)
def test_elements_are_kept_and_stored_where_they_lie(dialect: Dialect) -> None:
    """What a sum takes of an element stays for who has the sum, however short instructions are; a result that
    another takes goes to HBM from its tile."""
    e = "exp(x[m, n] + y[m, n] - largest[m])"
    rows = written(
        "rows", {"m": 128, "n": 96}, {"x": (128, 96), "y": (128, 96)},
        "sums[m, n] = x[m, n] + y[m, n]", "largest[m] = maximum[n](x[m, n] + y[m, n])",
        f"total[m] = add[n]({e} * greater_equal({e}, 0.1))",
        f"out[m, n] = {e} * greater_equal({e}, 0.1) / total[m]", results=("sums", "out"),
    )  # fmt: skip
    whole = next(n for n in starting_nests(rows, TARGETS[dialect]) if len(n.stages) == 1)
    plain = applied(Columns(definition="out", size=32), rows, whole)
    (kept,) = with_elements_kept(rows, plain)
    sources = [text_of(rows, nest, dialect) for nest in (plain, kept, whole)]
    assert [source.count("op=nl.exp") for source in sources] == [2, 1, 1], sources
    assert "src=x_plus_y" in sources[2], sources[2]
    check(rows, kept, dialect)


@pytest.mark.parametrize("dialect", TARGETS)
def test_a_tap_is_added_by_the_instruction_that_computes_it(dialect: Dialect) -> None:
    """A tile times a number a partition, and a tile: one instruction; of those of the core with two engines that
    add at once, GpSimd has some, which Scalar multiplies."""
    first, last = prepared(TAPS).definitions
    channels = Part(axis=first.axes[0].name, size=128)
    nest = Nest(stages=(Stage(members=(first.out, last.out), partition=(channels,)),))
    source = text_of(TAPS, nest, dialect)
    check(TAPS, nest, dialect)
    assert "tensor_reduce" not in source
    if dialect == "nki":
        assert source.count("scalar_tensor_tensor(") == 3, source
        assert len(re.findall(r"op=nl.add,\s+engine=nisa.gpsimd_engine", source)) >= 3
    one = applied(Engine(definition="s", engine="vector"), TAPS, nest, TARGETS[dialect])
    check(TAPS, one, dialect)
    assert text_of(TAPS, one, dialect).count("scalar_tensor_tensor(") == (
        8 if dialect == "nki" else 0
    )


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("algorithm", [STATES, GROUPS, TAPS], ids=lambda a: a.name)
def test_terms_are_added_in_rounds_of_a_loop(algorithm: object, dialect: Dialect) -> None:
    """What is made for a term is no array of all terms; what is made of a product is read from PSUM."""
    found = [
        nest
        for nest in starting_nests(algorithm, TARGETS[dialect])  # type: ignore[arg-type]
        if {part.axis for part in nest.stages[-1].loops} & {"s", "g", "k"}
    ]
    for nest in found[:3]:
        check(algorithm, nest, dialect)  # type: ignore[arg-type]
        assert "private_hbm" not in text_of(algorithm, nest, dialect)
    assert found or algorithm is TAPS


@pytest.mark.parametrize("dialect", TARGETS)
def test_halves_that_are_put_together_are_computed_in_the_rounds_of_one_loop(
    dialect: Dialect,
) -> None:
    """Of packed weights the low bits make one half of the columns and the high bits the other: neither product is
    computed for both halves, both sums over groups run in one loop, and what is a whole number, or less than
    what it is divided by, is so already."""
    few = packed(4, 256)
    widths = {d.out: math.prod(a.extent for a in d.axes) for d in prepared(few).definitions}
    assert widths["low"] == widths["high"] == 32 * 4 * 128
    (group,) = (a.name for d in prepared(few).definitions if d.out == "one" for a in d.reduced)
    nest = next(n for n in starting_nests(few, TARGETS[dialect]) if len(n.stages) == 1)
    rounds = applied(Tile(definition="out", axis=group, size=1), few, nest, TARGETS[dialect])
    check(few, rounds, dialect)
    source = text_of(few, rounds, dialect)
    assert source.count("nl.mod") == 2 and "private_hbm" not in source
    # SBUF does not hold the terms of all groups.
    many = [n for n in starting_nests(packed(64, 2048), TARGETS[dialect]) if len(n.stages) == 1]
    assert any(part.axis == group and part.size == 1 for n in many for part in n.stages[0].loops)


@pytest.mark.parametrize("dialect", TARGETS)
def test_a_sum_and_the_squares_about_its_mean_come_of_one_pass(dialect: Dialect) -> None:
    """bn_stats reads equal parts of at most 512 elements, one bn_aggr joins them; without a word on the engine
    the squares are summed as they are written."""
    plain = next(n for n in starting_nests(NORM, TARGETS[dialect]) if len(n.stages) == 1)
    nest = applied(Engine(definition="squares", engine="vector"), NORM, plain, TARGETS[dialect])
    source = text_of(NORM, nest, dialect)
    assert "bn_stats(" in source and source.count("bn_aggr(") == source.count("moments = "), source
    assert "nl.square" not in source and "nl.square" in text_of(NORM, plain, dialect)
    check(NORM, nest, dialect)


@pytest.mark.parametrize("dialect", TARGETS)
def test_a_tile_less_a_number_is_no_step_of_its_own(dialect: Dialect) -> None:
    """Whoever takes it takes the tile with the number: Vector before it multiplies, Scalar as a bias."""
    backward = written(
        "backward", {"m": 128, "n": 256}, {"x": (128, 256), "dy": (128, 256)},
        "total[m] = add[n](x[m, n])",
        "both[m] = add[n](dy[m, n] * (x[m, n] - total[m]))",
        "squares[m] = add[n](square(x[m, n] - total[m]))",
        "out[m] = both[m] / squares[m]",
    )  # fmt: skip
    nest = next(n for n in starting_nests(backward, TARGETS[dialect]) if len(n.stages) == 1)
    source = text_of(backward, nest, dialect)
    assert source.count("op0=nl.subtract") == source.count("scalar_tensor_tensor(") == 1, source
    assert "bias=" in source
    check(backward, nest, dialect)


@pytest.mark.parametrize("dialect", TARGETS)
def test_a_large_tile_comes_in_parts(dialect: Dialect) -> None:
    """Of at least 256 KiB each: work on the first begins while the last are brought."""
    whole = written("whole", {"m": 128, "n": 8192}, {"x": (128, 8192)}, "out[m, n] = x[m, n] * 2.0")
    plain = applied(
        Columns(definition="out", size=8192), whole, default_nest(whole, TARGETS[dialect])
    )
    wide = applied(Bring(definition="out", tiles="parts"), whole, plain, TARGETS[dialect])
    assert "i_part in nl.affine_range(16)" in text_of(whole, wide, dialect)
    assert "i_part" not in text_of(whole, plain, dialect)
    check(whole, wide, dialect)


@pytest.mark.parametrize("dialect", TARGETS)
def test_loads_are_cut_as_those_that_read_them(dialect: Dialect) -> None:
    """Two sums read the same elements of x in a round: it comes in rounds, too, for both at once."""
    pairs = written(
        "pairs", {"m": 128, "n": 64, "k": 128}, dict.fromkeys("xyz", (128, 64, 128)),
        "one[m, n] = add[k](square(x[m, n, k] - y[m, n, k]))",
        "other[m, n] = add[k](square(x[m, n, k] - z[m, n, k]))",
        "out[m, n] = maximum(one[m, n] - other[m, n], 0.0)",
    )  # fmt: skip
    target = TARGETS[dialect]
    whole = next(n for n in starting_nests(pairs, target) if len(n.stages) == 1)
    rounds = [n.stages[0].loops for n in with_loads_in_rounds(pairs, whole, target, 1 << 20)]
    assert rounds == [(Part(axis="n", size=size),) for size in (16, 8, 4)]
    assert not [*with_loads_in_rounds(pairs, whole, target, 1 << 22)]
    nest = applied(Tile(definition="out", axis="n", size=8), pairs, whole)
    source = text_of(pairs, nest, dialect)
    assert source.count("dma_copy(") == 4 and source.rindex("for i_n") < source.index("dma_copy(")
    check(pairs, nest, dialect)


@pytest.mark.parametrize("dialect", TARGETS)
def test_an_operand_is_summed_where_it_lies(dialect: Dialect) -> None:
    """A count by a one-hot that a product has: ones times it, in the format of the product."""
    plain = next(n for n in starting_nests(COUNTED, TARGETS[dialect]) if len(n.stages) == 1)
    nest = with_operands_summed(COUNTED, plain)
    source, before = (text_of(COUNTED, n, dialect) for n in (nest, plain))
    assert nest.ways == (("total", "left", "direct"),) == with_operands_summed(COUNTED, nest).ways
    assert (source.count("nl.equal"), before.count("nl.equal")) == (1, 2), source
    assert "reduce" not in source and "bfloat16" not in source
    check(COUNTED, nest, dialect)


@pytest.mark.parametrize("dialect", TARGETS)
def test_a_tap_is_added_where_it_reaches(dialect: Dialect) -> None:
    """A filter with zeros around it: each tap is multiplied once, in its part. Two images have partitions of their
    own, from which a product takes each."""
    found = starting_nests(PADDED, TARGETS[dialect])
    nests = (n for n in found if n.contracted and len(n.stages) == 1)
    source, nest = min(
        ((text_of(PADDED, n, dialect), n) for n in nests), key=lambda pair: len(pair[0])
    )
    assert [part.size for _, parts in nest.contracted for part in parts] == [2, 64]
    assert source.count("=f_tile[0:128, ") == 9 and "memset" not in source, source
    check(PADDED, nest, dialect)


@pytest.mark.parametrize("dialect", TARGETS)
def test_a_product_may_be_the_same_along_an_axis(dialect: Dialect) -> None:
    """An axis of the result that no factor has is one of a batch."""
    product = written("same", {"b": 3, "m": 8, "k": 5, "n": 7}, {"x": (8, 5), "w": (5, 7)},
                      "out[m, b, n] = add[k](x[m, k] * w[k, n])")  # fmt: skip
    check(product, default_nest(product, TARGETS[dialect]), dialect)


def test_a_primitive_is_said_as_the_documentation_writes_it() -> None:
    said = Partition.model_validate({"definition": "o", "axes": [{"axis": "m", "size": 128}]})
    assert f"{said} {Skip(definition='p', axes=())}" == "partition(o, 128 of m) skip(p, none)"

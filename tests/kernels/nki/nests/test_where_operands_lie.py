"""Operands that all partitions have alike, that lie in PSUM beside another in SBUF, and that are brought early.

Evidence: `evaluate` in fp64 of the Algorithm; a Vector instruction on two tiles takes one cycle an element where one lies
in PSUM and two where both lie in SBUF (trn1; adamw's counters, sim/timing/compiler/psum_placement.py).
"""

import pytest

from accelopt.algorithm.ir import Algorithm, Reduce, reads_in
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.nest import NotNested, default_nest, ready
from accelopt.kernels.nki.nests.primitives import (
    Beside,
    Hold,
    Partition,
    applied,
    neighbours,
    read_late,
)
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.sim.dialects.dialect import Dialect
from tests.kernels.nki.lift.algorithms import written
from tests.kernels.nki.nests.test_nests import TARGETS, check


def scaled_by_columns(rows: int, columns: int) -> Algorithm:
    """Rows by a number of each column, which is a result too, and of all: Adafactor's second moments."""
    return written(
        "scaled", {"m": rows, "n": columns, "k": rows, "l": columns, "o": 1},
        {"x": (rows, columns), "gain": (columns,)},
        "total[n] = add[k](x[k, n] * x[k, n])",
        "scale[n] = total[n] * 0.5 + gain[n] * gain[n]",
        "whole[o] = add[k, l](x[k, l] * x[k, l] / scale[l])",
        "out[m, n] = x[m, n] * scale[n] / (whole[0] + 1.0)",
        results=("scale", "out"),
    )  # fmt: skip


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize(("rows", "columns"), [(256, 40), (300, 600), (256, 3200)])
def test_sums_over_partitions_stay_on_all_of_them(
    rows: int, columns: int, dialect: Dialect
) -> None:
    """Neither the columns' sums nor that of all goes through HBM; the result is stored once."""
    algorithm, target = scaled_by_columns(rows, columns), TARGETS[dialect]
    found = [n for n in starting_nests(algorithm, target) if {"total", "scale"} <= {*n.held}]
    assert found
    best = min(found, key=lambda nest: lower_nest(algorithm, nest, target=target).price.moved)
    text = check(algorithm, best, dialect)
    assert "private_hbm" not in text


def moments(dtype: str, columns: int) -> Algorithm:
    """Two inputs together, and what is computed on the way together with one of them."""
    return written(
        "moments", {"m": 200, "n": columns}, {"x": (200, columns), "y": (200, columns)},
        "both[m, n] = x[m, n] * y[m, n]",
        "out[m, n] = exp(both[m, n] * 0.1) * x[m, n] + y[m, n] * 0.3",
        results=("both", "out"), dtype=dtype,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("columns", [1, 400, 700, 1536])
@pytest.mark.parametrize("engine", ["scalar", "tensor"])
def test_one_of_two_tiles_comes_into_psum(engine: str, columns: int, dtype: str) -> None:
    """Vector takes half as long then; the identity is multiplied with what has 16 bits, within banks."""
    algorithm = moments(dtype, columns)
    nest = made = default_nest(algorithm)
    for name in ("both", "out"):
        made = applied(Beside(definition=name, engine=engine), algorithm, made)  # type: ignore[arg-type]
    text = check(algorithm, made, "neuronxcc")
    assert ("buffer=nl.psum" in text) == (columns > 1)
    by_tensor = engine == "tensor" and dtype == "bfloat16" and columns in (400, 1536)
    assert ("identity" in text) == by_tensor
    vector = [lower_nest(algorithm, n).price.engines["vector"] for n in (nest, made)]
    assert columns == 1 or vector[1] < 0.8 * vector[0]
    for name in ("both", "out"):
        made = applied(Beside(definition=name, engine="none"), algorithm, made)
    assert made == nest


def test_tiles_come_into_psum_where_that_is_faster() -> None:
    """Where both are read at once from SBUF, none does, and none is proposed."""
    algorithm = moments("float32", 64)
    nest = default_nest(algorithm, "trn2")
    with pytest.raises(NotNested, match="out takes two tiles in SBUF at once on trn2"):
        applied(Beside(definition="out", engine="scalar"), algorithm, nest, "trn2", "nki")
    proposed = {t: {type(p) for p in neighbours(algorithm, nest, t)} for t in ("trn1", "trn2")}
    assert Beside in proposed["trn1"] and Beside not in proposed["trn2"]


@pytest.mark.parametrize("dialect", TARGETS)
def test_an_input_that_is_read_late_is_brought_early(dialect: Dialect) -> None:
    algorithm, target = scaled_by_columns(256, 40), TARGETS[dialect]
    nest = default_nest(algorithm, target)
    assert read_late(algorithm, nest) == {"gain"}
    early = Hold(definition="gain", memory="SBUF")
    assert early in list(neighbours(algorithm, nest, target))
    alike = applied(Partition(definition="scale", axes=()), algorithm, nest, target, dialect)
    made = applied(early, algorithm, alike, target, dialect)
    assert made.brought == ("gain",) and made.held == ("gain_here",)
    check(algorithm, made, dialect)
    assert applied(Hold(definition="gain", memory="HBM"), algorithm, made, target, dialect) == alike


def test_factors_that_a_part_has_alike_are_those_of_its_sum() -> None:
    """Of `sum over k, l of x x / scale[k] / other[l]` the parts are divided by what is alike in them."""
    algorithm = written(
        "all", {"k": 200, "l": 64, "o": 1}, {"x": (200, 64), "by": (200,), "other": (64,)},
        "out[o] = add[k, l](x[k, l] * x[k, l] / (by[k] * by[k] + 1.0) / (other[l] * other[l] + 1.0))",
    )  # fmt: skip
    nest = default_nest(algorithm)
    parts, whole = ready(algorithm, nest).definitions
    assert isinstance(parts, Reduce) and isinstance(whole, Reduce)
    read = [{r.array for r in reads_in(d)} for d in (parts, whole)]
    assert read == [{"x", "other"}, {"by", parts.out}]
    check(algorithm, nest, "neuronxcc")

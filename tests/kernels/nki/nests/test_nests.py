"""Nests compute what their Algorithm says, whatever the primitives, in both dialects, on the simulated core.

Evidence: `tests.algorithm.evaluation.evaluate`, in fp64, is what an Algorithm means; the simulated core
computes in fp32 as its own tests prove.
"""

import math
import random
import re

import numpy as np
import pytest
from warm import computed

from accelopt.algorithm.index import index_of
from accelopt.algorithm.ir import Algorithm, Map, Read, Reduce, Scan, from_json
from accelopt.algorithm.ir import Where as Condition
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.nest import Nest, NotNested, Part, Stage, Way, default_nest
from accelopt.kernels.nki.nests.preparing import prepared
from accelopt.kernels.nki.nests.pricing import Prices
from accelopt.kernels.nki.nests.primitives import (
    PRIMITIVES,
    Accumulate,
    At,
    Contract,
    Descriptors,
    Hold,
    Inline,
    Keep,
    Lay,
    Orient,
    Partition,
    Skip,
    Split,
    Spread,
    Tile,
    Turn,
    applied,
    changed,
    neighbours,
)
from accelopt.kernels.nki.nests.search import comes_to_all
from accelopt.kernels.nki.nests.skipping import masks_that_empty
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.sim import dtypes
from accelopt.sim.dialects.dialect import Dialect
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift import algorithms
from tests.kernels.nki.nests.random_algorithms import random_algorithm

TARGETS: dict[Dialect, str] = {"neuronxcc": "trn1", "nki": "trn2"}
MOSTLY_TODAY = [pytest.param("neuronxcc", marks=pytest.mark.slow), "nki"]
"""Of long tests the older dialect's are the nightly ones: text and instructions have tests of their own."""
WITHIN = 2e-5
"""Of the norm of a result: fp32 against fp64, of what is no difference of large numbers."""


def check(algorithm: Algorithm, nest: Nest, dialect: Dialect) -> str:
    """The kernel of a nest, which computes what the Algorithm does."""
    target = TARGETS[dialect]
    source = lower_nest(algorithm, nest, target=target, dialect=dialect).source
    rng = np.random.default_rng(3)
    size = 0.05 if algorithm.name == "state_space" else 1.0
    given = [
        (size * rng.standard_normal(array.given)).astype(dtypes.parse(array.dtype))
        for array in algorithm.inputs
    ]
    if algorithm.name == "adamw":  # its fourth input is a mean of squares
        given[3] = abs(given[3])
    got = computed(source, given, target)
    wide = [array.astype(np.float64) for array in given]
    names = [array.name for array in algorithm.inputs]
    exact = evaluate(algorithm, dict(zip(names, wide, strict=True)))
    narrow = any(a.dtype != "float32" for a in (*algorithm.inputs, *algorithm.outputs))
    for mine, wanted in zip(got, exact, strict=True):
        error = np.linalg.norm(mine.astype(np.float64) - wanted)
        assert error <= (8e-3 if narrow else WITHIN) * max(float(np.linalg.norm(wanted)), 1e-6)
    return source


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 40))]
)
def test_random_algorithms_by_random_primitives(seed: int, dialect: Dialect) -> None:
    algorithm = random_algorithm(seed)
    target = TARGETS[dialect]
    nest = default_nest(algorithm, target)
    check(algorithm, nest, dialect)
    draw = random.Random(seed)
    prices = Prices(algorithm, target)
    fused = draw.choice(list(starting_nests(algorithm, target, prices)))
    check(algorithm, fused, dialect)
    for _ in range(3):
        whole, price = lower_nest(algorithm, fused, target=target).price, prices.of(fused).price
        assert (price.moved, price.ms) == (whole.moved, pytest.approx(whole.ms))
        near = list(neighbours(algorithm, fused, target))
        draw.shuffle(near)
        for primitive in near:
            again = PRIMITIVES.validate_json(primitive.model_dump_json())
            try:
                fused = applied(again, algorithm, fused, target)
            except NotNested as refusal:
                assert any(d.out in str(refusal) for d in prepared(algorithm).definitions)
                continue
            break
    check(algorithm, fused, dialect)


def test_small_products_of_a_batch_are_taken_by_one_instruction() -> None:
    """p2[a, b, n] = sum of x0[b, c, a] * x1[a, c, n] over 130 of c, for each of 3 a."""
    algorithm = random_algorithm(8)
    source = lower_nest(algorithm, default_nest(algorithm, "trn2"), target="trn2").source
    assert source.count("p2_sums = ") == 1 and len(re.findall(r"data=p2_sums\b", source)) == 1


@pytest.mark.parametrize("dialect", TARGETS)
def test_two_products_in_psum_are_multiplied(dialect: Dialect) -> None:
    """One of them is copied: no instruction takes two tiles there."""
    squares = algorithms.written(
        "squares", {"m": 128, "n": 256, "k": 64, "j": 64}, {"x": (128, 64), "y": (64, 256)},
        "p[m, n] = add[k](x[m, k] * y[k, n])",
        "q[m, n] = add[j](exp(x[m, j]) * y[j, n])",
        "out[m, n] = p[m, n] * q[m, n] + exp(p[m, n]) * q[m, n]",
    )  # fmt: skip
    names = tuple(d.out for d in prepared(squares).definitions)
    stage = Stage(members=names, partition=(Part(axis="m", size=128),))
    assert check(squares, Nest(stages=(stage,)), dialect).count("psum") >= 2


@pytest.mark.parametrize(
    ("algorithm", "dialect"),
    [
        pytest.param(known, dialect, marks=() if number % 2 else pytest.mark.slow, id=f"{known.name}-{dialect}")
        for place, known in enumerate(algorithms.SMALL)
        for number, dialect in enumerate(TARGETS, place)
    ],
)  # fmt: skip
def test_every_starting_nest_of_known_classes(algorithm: Algorithm, dialect: Dialect) -> None:
    """Two of them; by day in one dialect, which is each class's by turns."""
    found = list(starting_nests(algorithm, TARGETS[dialect]))
    for nest in random.Random(1).sample(found, min(2, len(found))):
        assert Nest.model_validate_json(nest.model_dump_json()) == nest
        check(algorithm, nest, dialect)


def test_a_prepared_algorithm_has_axes_where_indices_had_digits() -> None:
    """`total[32*b + h]`, as a group norm over (image, group) lifts, is `total[b, h]`."""
    group = algorithms.written(
        "group", {"b": 4, "h": 32, "n": 8, "k": 128}, {"x": (128, 8)}, "total[k] = add[n](x[k, n])",
        "out[b, h, n] = x[b * 32 + h, n] - total[b * 32 + h]",
    )  # fmt: skip
    total, out = prepared(from_json(group.to_json())).definitions
    assert [axis.extent for axis in total.axes] == [4, 32]
    assert total.axes == out.axes[:2]
    joined = [nest for nest in starting_nests(group) if len(nest.stages) == 1]
    assert any([p.size for p in nest.stages[0].partition] == [4, 32] for nest in joined)


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize(
    "argument",
    [
        "c[m] - x[m, n]",
        "(c[m] - x[m, n]) * -0.5",
        "c[m] - x[m, n] * d[m]",
        "(x[m, n] * d[m] - c[m]) * -1.0",
        "(c[m] - x[m, n] * d[m]) * 2.0",
    ],
)
def test_a_number_less_a_tile_is_scale_and_bias(argument: str, dialect: Dialect) -> None:
    """The Scalar engine takes f(data * scale + bias), with a number of each partition for both (SDK 2.26.1,
    `nki.isa.activation`), so a difference is no pass of its own, whichever is taken from the other."""
    shapes: dict[str, tuple[int, ...]] = {"x": (128, 640), "c": (128,), "d": (128,)}
    line = f"out[m, n] = square({argument})"
    made = algorithms.written("shifted", {"m": 128, "n": 640}, shapes, line)
    stage = Stage(members=("out",), partition=(Part(axis="m", size=128),), columns=1024)
    text = check(made, Nest(stages=(stage,)), dialect)
    passes = [name for name in re.findall(r"data=(\w+)", text) if name.startswith("x")]
    assert passes == ["x_tile"]


def test_a_spelling_of_a_function_is_the_function() -> None:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3))) is the Scalar engine's gelu_apprx_tanh
    (SDK 2.26.1 `nki.api.shared.rst`), however it is rounded in between."""
    x = "bfloat16(x[m])"
    inner = f"square({x}) * {x} * 0.0356774081 + {x} * 0.7978845608"
    line = f"out[m] = {x} * (tanh({inner}) + 1.0) * 0.5"
    made = algorithms.written("gelu", {"m": 64}, {"x": (64,)}, line)
    (out,) = prepared(made).definitions
    assert isinstance(out, Map)
    assert out.expression == algorithms.apply("gelu_apprx_tanh", algorithms.read("x", *out.axes))


def test_conditions_are_decided_part_by_part() -> None:
    """Halves that are combined differently, as a rotation of positions has them: each is written on its
    own, without a mask, and all partitions work although half of the rows would fill half of them."""
    made = algorithms.written(
        "halves", {"m": 128, "n": 512}, {"x": (128, 512)},
        "out[m, n] = x[m, n] - x[m + 64, n] if m * -1 + 63 >= 0 else "
        "(x[m, n] + x[m - 64, n] if m - 64 >= 0 else 0.0)",
    )  # fmt: skip
    found = list(starting_nests(made))
    full = [nest for nest in found if sum(p.size > 1 for p in nest.stages[0].partition) > 1]
    assert any(math.prod(p.size for p in nest.stages[0].partition) == 128 for nest in full)
    for nest in found:
        text = lower_nest(made, nest).source
        assert "affine_select" not in text and "predicated" not in text
        assert "padded" not in text  # what the conditions exclude is not read
        check(made, nest, "neuronxcc")


def test_what_alone_takes_a_product_is_computed_from_psum() -> None:
    """A bias and a function are applied on the way out of PSUM; rows that share what moves are summed
    side by side in it, so that what moves is brought once for all of them."""
    made = algorithms.written(
        "linear", {"m": 512, "n": 1024, "k": 128}, {"x": (512, 128), "w": (128, 1024), "b": (512,)},
        "s[m, n] = add[k](x[m, k] * w[k, n])",
        "out[m, n] = relu(s[m, n] + b[m])",
    )  # fmt: skip
    whole = Nest(stages=(Stage(members=("s", "out"), partition=(Part(axis="m", size=128),)),))
    blocks = applied(Split(definition="s", axis="m", size=128), made, whole)
    blocks = applied(Tile(definition="s", axis="m_1", size=2), made, blocks)
    streamed = applied(Keep(definition="s", side="right", memory="HBM"), made, blocks)
    for nest in (whole, blocks, streamed):
        text = lower_nest(made, nest).source
        taken = re.findall(
            r"(?:op|op0)=nl.(\w+),\s*data=s_sums|data=s_sums\S*\s+op0=nl.(\w+)", text
        )
        assert [one or other for one, other in taken] == ["relu"], text
        check(made, nest, "neuronxcc")
    sums = [re.findall(r" s_sums = (nisa.nc_matmul|nl.zeros\(\(nl.par_dim\(128\), \d+\))", lower_nest(made, n).source)
            for n in (whole, blocks)]  # fmt: skip
    assert sums == [["nisa.nc_matmul"], ["nl.zeros((nl.par_dim(128), 1024)"]]


def test_rounds_of_a_loop_are_combined() -> None:
    """A sum over states runs round by round of the loop that computes each state, without an array of
    all of them."""
    space = algorithms.state_space(128, 96, 4)
    state, out = (d.out for d in prepared(space).definitions)
    joined = [n for n in starting_nests(space) if n.stages[-1].members == (state, out)]
    assert joined
    for nest in joined:
        assert "private_hbm" not in lower_nest(space, nest).source
        check(space, nest, "neuronxcc")


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("c, size", [(128, 32), (256, 40)])
def test_a_recurrence_goes_on_from_part_to_part_of_its_axis(
    c: int, size: int, dialect: Dialect
) -> None:
    """A loop along a recurrence keeps where it stands, for each state and each tile of channels; rows
    that all partitions read alike are brought to one of them, and spread by the Tensor engine."""
    space = algorithms.state_space(c, 96, 4)
    state, out = (d.out for d in prepared(space).definitions)
    along = next(a for a in prepared(space).definition(state).axes if a.extent == 96)
    nest = next(n for n in starting_nests(space) if n.stages[-1].members == (state, out))
    loops = (Part(axis=along.name, size=size), *nest.stages[-1].loops)
    stage = nest.stages[-1].model_copy(update={"loops": loops})
    parts = nest.model_copy(update={"stages": (*nest.stages[:-1], stage)})
    check(space, parts, dialect)
    rows = applied(Spread(definition=state, array="b", engine="tensor"), space, parts)
    rows = applied(Spread(definition=out, array="c", engine="tensor"), space, rows)
    check(space, rows, dialect)
    text = lower_nest(space, rows, target=TARGETS[dialect], dialect=dialect).source
    assert "nc_matmul" in text if dialect == "nki" else "broadcast_to" in text
    assert applied(Spread(definition=out, array="c", engine="dma"), space, rows).spread == (
        (state, "b"),
    )
    with pytest.raises(NotNested, match=f"{out} does not read delta"):
        applied(Spread(definition=out, array="delta", engine="tensor"), space, parts)


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("rows, size", [(640, 0), (512, 256), (250, 0)])
def test_what_lies_along_the_partitions_is_transposed(
    rows: int, size: int, dialect: Dialect
) -> None:
    """A recurrence over rows, its channels beside each other in memory and on partitions: inputs come as they
    lie, in a bank of PSUM or several, and the result goes so. `size` rows a round, or all."""
    decay = algorithms.written(
        "decay", {"m": rows, "n": 160}, {"x": (rows, 160), "g": (rows, 160)},
        "out[m, n] = scan[m](sigmoid(g[m, n]), x[m, n])",
    )  # fmt: skip
    part = Part(axis="n", size=80)
    nest = Nest(stages=(Stage(members=("out",), partition=(part,)),))
    if size:
        nest = applied(Tile(definition="out", axis="m", size=size), decay, nest)
    for array in ("g", "x", "out"):
        nest = applied(Turn(definition="out", array=array, engine="tensor"), decay, nest)
    check(decay, nest, dialect)
    price = lower_nest(decay, nest, target=TARGETS[dialect], dialect=dialect).price
    back = applied(Turn(definition="out", array="g", engine="dma"), decay, nest)
    slow = lower_nest(decay, back, target=TARGETS[dialect], dialect=dialect).price
    assert 2 * price.engines["dma"] < slow.engines["dma"]
    with pytest.raises(
        NotNested, match="y does not lie in memory along what out has on partitions"
    ):
        applied(Turn(definition="out", array="y", engine="tensor"), decay, nest)
    with pytest.raises(NotNested, match="g is not transposed in equal parts of m"):
        applied(Tile(definition="out", axis="m", size=150), decay, nest)


@pytest.mark.parametrize("dialect", MOSTLY_TODAY)
@pytest.mark.parametrize("length, width", [(256, 64), (512, 32)])
def test_what_a_later_product_sums_over_is_laid_on_partitions(
    length: int, width: int, dialect: Dialect
) -> None:
    """Scores of attention with their keys on partitions: the largest and the sum come to all partitions,
    and what is multiplied next is never transposed but where queries and keys are read."""
    attention = algorithms.attention(length, 1, width)
    found = [nest for nest in starting_nests(attention, TARGETS[dialect]) if nest.stages[0].laid]
    assert found
    for nest in found:
        assert Nest.model_validate_json(nest.model_dump_json()) == nest
        check(attention, nest, dialect)
    last = prepared(attention).definitions[-1].out
    first = found[0].stages[0].members[0]
    with pytest.raises(NotNested, match=f"{first} has no axis nowhere"):
        applied(Lay(definition=first, axes=("nowhere",)), attention, found[0])
    with pytest.raises(NotNested, match=f"{last}.* cannot lie along|{last}.* has no axis"):
        part = found[0].stages[0].loops[-1].axis
        applied(Lay(definition=last, axes=(part,)), attention, found[0])


@pytest.mark.parametrize("dialect", TARGETS)
def test_a_product_sums_over_what_lies_on_partitions_where_all_of_it_does(dialect: Dialect) -> None:
    """Squeeze and excitation in one stage, image by image: of 256 channels 128 lie on partitions, and the two
    halves beside each other, so that the sums of each channel are an operand as they lie."""
    excite = algorithms.written(
        "excite", {"b": 2, "m": 256, "n": 24, "k": 16},
        {"x": (2, 256, 24), "v": (256, 16), "w": (16, 256)},
        "total[b, m] = add[n](x[b, m, n])",
        "hidden[k, b] = add[m](v[m, k] * total[b, m])",
        "product[b, m] = add[k](maximum(hidden[k, b], 0.0) * w[k, m])",
        "out[b, m, n] = x[b, m, n] * sigmoid(product[b, m])",
    )  # fmt: skip
    found = [n for n in starting_nests(excite, TARGETS[dialect]) if n.splits and n.stages[0].laid]
    lying = [[part.axis for stage in nest.stages for part in stage.partition] for nest in found]
    assert lying == [["b"], ["m_0"], ["m_0"]], found
    for nest in found:
        check(excite, nest, dialect)


@pytest.mark.parametrize("dialect", TARGETS)
def test_products_of_a_sum_and_sums_over_partitions_come_to_where_they_are_read(
    dialect: Dialect,
) -> None:
    """Two products whose difference alone is taken are one sum in PSUM, unless the nest declines; a row that is
    summed over partitions comes to all of them, and what is made of it is made on each."""
    layer = algorithms.written(
        "layer", {"m": 128, "n": 64, "k": 256, "l": 32},
        {"x": (128, 256), "w": (256, 64), "y": (128, 32), "v": (32, 64)},
        "first[m, n] = add[k](x[m, k] * w[k, n])", "second[m, n] = add[l](y[m, l] * v[l, n])",
        "out[m, n] = maximum(first[m, n] - second[m, n] * 2.0, 0.0)",
    )  # fmt: skip
    nest = next(n for n in starting_nests(layer, TARGETS[dialect]) if n.accumulated)
    check(layer, nest, dialect)
    apart = applied(Accumulate(definition="first"), layer, nest, TARGETS[dialect], dialect)
    assert nest.accumulated == (("first", "second"),) and not apart.accumulated
    doubly = algorithms.written(
        "doubly", {"m": 96, "n": 64}, {"x": (96, 64)}, "total[m] = add[n](exp(x[m, n]))",
        "column[n] = add[m](exp(x[m, n]) / total[m])", "scale[n] = 1.0 / (column[n] + 1e-8)",
        "out[m, n] = exp(x[m, n]) / total[m] * scale[n]",
    )  # fmt: skip
    to_all = [n for n in starting_nests(doubly, TARGETS[dialect]) if comes_to_all(n)]
    assert to_all
    check(doubly, to_all[0], dialect)


@pytest.mark.parametrize("dialect", TARGETS)
def test_the_largest_of_a_row_are_found_together(dialect: Dialect) -> None:
    """A router's weights: Vector finds the eight largest of a row at once (nki.isa.max8), then the next eight, whoever
    reads one of them, and what is compared with one is what it was found among: computed anew it could round to less."""
    router = algorithms.written(
        "router", {"m": 256, "n": 16, "k": 128}, {"x": (256, 128), "w": (128, 16)},
        "logits[m, n] = add[k](x[m, k] * w[k, n])",
        "total[m] = add[n](exp(logits[m, n] * 0.1))",
        "second[m] = largest_2[n](exp(logits[m, n] * 0.1) / total[m])",
        "twelfth[m] = largest_12[n](exp(logits[m, n] * 0.1) / total[m])",
        "out[m, n] = exp(logits[m, n] * 0.1) / total[m]"
        " * greater_equal(exp(logits[m, n] * 0.1) / total[m], second[m]) - twelfth[m]",
    )  # fmt: skip
    target = TARGETS[dialect]
    check(router, default_nest(router, target), dialect)
    fused = [nest for nest in starting_nests(router, target) if len(nest.stages) == 1]
    assert check(router, fused[0], dialect).count("nisa.max8(") == 2
    ranked = prepared(router).definition("second").expression
    assert isinstance(ranked, Read)
    with pytest.raises(NotNested, match=f"{ranked.array} is compared with its largest"):
        applied(Inline(definition=ranked.array), router, fused[0], target)
    places = algorithms.written(
        "places", {"m": 256, "n": 50}, {"x": (256, 50)},
        "twelfth[m] = place_12[n](x[m, n])", "least[m] = place_1[n](x[m, n] * -1)",
        "out[m] = twelfth[m] + least[m]",
    )  # fmt: skip
    if dialect == "nki":
        for nest in (default_nest(places, target), [*starting_nests(places, target)][-1]):
            check(places, nest, dialect)
    few = algorithms.written(
        "few", {"m": 8, "n": 4}, {"x": (8, 4)}, "out[m] = largest_2[n](x[m, n])"
    )
    with pytest.raises(
        NotNested, match="out: Vector finds the largest of 8 to 16384 elements, not 4"
    ):
        lower_nest(few, default_nest(few))


@pytest.mark.parametrize("dialect", MOSTLY_TODAY)
@pytest.mark.parametrize("length, width", [(1024, 64), (1024, 32)])
def test_blocks_that_a_mask_empties_are_not_computed(
    length: int, width: int, dialect: Dialect
) -> None:
    """Blocks of keys behind the last of the queries at hand are neither multiplied nor summed. Evidence:
    exp of a large negative number is 0 in fp32, and 0 adds nothing."""
    attention = algorithms.causal_attention(length, width)
    starts = starting_nests(attention, TARGETS[dialect])
    found = [n for n in starts if n.stages[0].laid and not n.stages[0].skipped]
    assert found
    for whole in found:
        last = whole.stages[0].members[-1]
        skip = Skip(definition=last, axes=("l_1",))
        assert skip in list(neighbours(attention, whole, TARGETS[dialect]))
        nest = applied(skip, attention, whole, TARGETS[dialect])
        made, all_of_it = (
            lower_nest(attention, n, target=TARGETS[dialect], dialect=dialect).price
            for n in (nest, whole)
        )
        assert made.engines["tensor"] < 0.9 * all_of_it.engines["tensor"]
        check(attention, nest, dialect)
        assert applied(Skip(definition=last, axes=()), attention, nest, TARGETS[dialect]) == whole
        with pytest.raises(NotNested, match="leaves nothing of some rows along m_1"):
            applied(Skip(definition=last, axes=("m_1",)), attention, whole)


@pytest.mark.parametrize("empty, refusal", [(-3.0, "depends on what"), (0.0, "")])
def test_a_mask_empties_what_counts_for_nothing(empty: float, refusal: str) -> None:
    """Of a sum of what is masked: nothing where the mask writes 0, refused where it writes a number."""
    sums = algorithms.written(
        "sums", {"m": 256, "n": 256}, {"x": (256, 256)},
        f"out[m] = add[n](x[m, n] if m - n >= 0 else {empty})",
    )  # fmt: skip
    (out,) = prepared(sums).definitions
    assert isinstance(out, Reduce)
    if refusal:
        with pytest.raises(NotNested, match=refusal):
            masks_that_empty([out], out.reduced[0], ["out"])
    else:
        (mask,) = masks_that_empty([out], out.reduced[0], ["out"])
        assert [condition.bounds for (condition,) in mask] == [(-255, 255)]
    masked = algorithms.banded(256, 256).definitions[-1]
    with pytest.raises(NotNested, match=r"has no mask|mask excludes|leaves nothing"):
        masks_that_empty([masked], masked.axes[1], ["out"])


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("combiner", ["add", "maximum"])
def test_what_is_combined_over_partitions_comes_to_those_of_its_reader(
    combiner: str, dialect: Dialect
) -> None:
    """Weights with their keys on partitions, and a reader of what they are combined to with queries there:
    one number a partition, by products with a column of ones or of transposes; the product before it is
    transposed into PSUM for it."""
    queries, keys, width = 512, 256, 64
    weighted = algorithms.written(
        "weighted", {"q": queries, "key": keys, "d": width, "e": width},
        {"query": (queries, width), "k": (keys, width), "v": (keys, width)},
        "s[q, key] = add[d](query[q, d] * k[key, d])",
        "w[q, key] = exp(s[q, key] * 0.125)",
        f"most[q] = {combiner}[key](w[q, key])",
        "sums[q, e] = add[key](w[q, key] * v[key, e])",
        "out[q, e] = sums[q, e] / most[q]",
    )  # fmt: skip
    found = [nest for nest in starting_nests(weighted, TARGETS[dialect]) if nest.stages[0].laid]
    by_turns = ["sums" in dict(nest.stages[0].laid) for nest in found]
    assert by_turns[:3] == [True, True, False] and not any(by_turns[3:])
    for nest, turned in zip(found, by_turns, strict=True):
        check(weighted, nest, dialect)
        text = lower_nest(weighted, nest, target=TARGETS[dialect], dialect=dialect).source
        assert ("sums_turned" in text) == turned  # or its sums lie as the reader does
        ones = re.search(r"ones = nl.ndarray\(\(\S+, 1\)|ones = nisa.memset\(\(\d+, 1\)", text)
        assert ones or not turned or combiner == "maximum"


def test_what_is_made_of_members_stays_in_its_round() -> None:
    """A loop along columns that only the later products have: the first product, which is an operand of
    the third, is computed outside of it and kept for one block of rows, not for all."""
    lora = algorithms.lora(512, 128, 1024, 32)
    names = [d.out for d in prepared(lora).definitions]
    row = next(a.name for a in prepared(lora).definitions[-1].axes if a.extent == 512)
    column = next(a.name for a in prepared(lora).definitions[-1].axes if a.extent == 1024)
    inner = sorted(names, key=lambda name: column in {
        a.name for a in prepared(lora).definition(name).axes})  # fmt: skip
    stage = Stage(members=tuple(inner), partition=(Part(axis=row, size=128),),
                  loops=(Part(axis=column, size=512),))  # fmt: skip
    check(lora, Nest(stages=(stage,)), "neuronxcc")


@pytest.mark.parametrize("dialect", TARGETS)
def test_what_a_product_sums_over_is_made_round_by_round(dialect: Dialect) -> None:
    """A loop along an axis that the last product sums over: in each round the two before it are computed
    for a part of that axis, which is transposed into its place in the operand."""
    swiglu = algorithms.swiglu(256, 128, 1024)
    ready = prepared(swiglu)
    last = ready.definitions[-1]
    assert isinstance(last, Reduce)
    rows, (summed,) = last.axes[0].name, (axis.name for axis in last.reduced)
    names = tuple(d.out for d in ready.definitions)
    whole = Nest(stages=(Stage(members=names, partition=(Part(axis=rows, size=128),)),))
    rounds = applied(Tile(definition=last.out, axis=summed, size=512), swiglu, whole)
    check(swiglu, rounds, dialect)
    text = lower_nest(swiglu, rounds, target=TARGETS[dialect], dialect=dialect).source
    assert f"for i_{summed} in nl.sequential_range(2)" in text
    alone = Nest(stages=(Stage(members=("out",), partition=(Part(axis="m", size=128),)),))
    with pytest.raises(NotNested, match="out runs over k, which its stage takes in parts"):
        applied(Tile(definition="out", axis="k", size=128), algorithms.matmul(256, 256, 512), alone)


@pytest.mark.parametrize("dialect", TARGETS)
def test_the_scale_of_masked_scores_goes_into_the_exponential(dialect: Dialect) -> None:
    """What is masked is read where the product leaves it, and the largest is taken of that: the positive
    factor of both is applied with the exponential. Where the GpSimd engine does not read PSUM, a copy
    comes before. Evidence: max(c x) = c max(x) for c > 0, and the rules of the dialects on operands."""
    attention = algorithms.causal_attention(256, 64)
    ready = prepared(attention)
    masked, largest = ready.definition("s_masked"), ready.definition("largest_unscaled")
    assert isinstance(masked, Map) and isinstance(masked.expression, Condition)
    assert isinstance(largest, Reduce) and largest.expression == Read(
        "s_masked", tuple(map(index_of, (*largest.axes, *largest.reduced)))
    )
    for nest in starting_nests(attention, TARGETS[dialect]):
        if nest.stages[0].laid:
            check(attention, nest, dialect)
            text = lower_nest(attention, nest, target=TARGETS[dialect], dialect=dialect).source
            assert (dialect == "nki") != ("on_true_tile=s_sums_float32" not in text)


def test_refusals_name_the_definition_and_the_reason() -> None:
    softmax = algorithms.softmax(256, 96)
    nest = default_nest(softmax)
    first, last = nest.stages[0].members[0], nest.stages[-1].members[0]
    reduced = next(d for d in prepared(softmax).definitions if isinstance(d, Reduce))
    with pytest.raises(NotNested, match=f"{reduced.out} combines elements"):
        applied(Inline(definition=reduced.out), softmax, nest)
    with pytest.raises(NotNested, match=f"{first} is no matrix product"):
        applied(Orient(definition=first, side="left", way="turned"), softmax, nest)
    with pytest.raises(NotNested, match=f"{first} is no matrix product"):
        applied(Keep(definition=first, side="left", memory="HBM"), softmax, nest)
    with pytest.raises(NotNested, match=f"{first} has no axis nowhere"):
        applied(Partition(definition=first, axes=(Part(axis="nowhere", size=1),)), softmax, nest)
    with pytest.raises(NotNested, match=f"{last} is not computed in a stage before"):
        applied(At(definition=last, consumer=first), softmax, nest)


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("stride", [1, 2])
def test_what_a_product_reads_in_windows_is_loaded_once(stride: int, dialect: Dialect) -> None:
    """A box around all taps of an image, brought by one DMA, serves each of them."""
    conv = algorithms.written(
        "conv", {"i": 2, "h": 32, "m": 6, "n": 7, "k": 3, "l": 3, "j": 16},
        {"x": (2, 16, 5 * stride + 3, 6 * stride + 3), "w": (3, 3, 16, 32)},
        f"out[i, h, m, n] = add[k, l, j](x[i, j, m * {stride} + k, n * {stride} + l] * w[k, l, j, h])",
    )  # fmt: skip
    (axis,) = (a for a in prepared(conv).definitions[0].axes if a.extent == 32)
    stage = Stage(members=("out",), partition=(Part(axis=axis.name, size=32),))
    nest = Nest(stages=(stage,))
    check(conv, nest, dialect)
    text = lower_nest(conv, nest, target=TARGETS[dialect], dialect=dialect).source
    assert len(re.findall(r"dma_copy\(\s*dst=x_", text)) == 1
    assert not re.search(r"for i_[kl] in [^\n]*\n[^\n]*\n?[^\n]*dst=x_", text)


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("size", [39, 13])
def test_what_is_read_backwards_comes_forwards(size: int, dialect: Dialect) -> None:
    """One transfer of elements that lie beside each other, whose reads step backwards on the chip: of all that
    is read, or of what parts of the axis read."""
    flipped = algorithms.written(
        "flipped", {"m": 6, "n": 39}, {"x": (6, 41), "w": (6, 80)},
        "out[m, n] = x[m, n * -1 + 40] * x[m, n * -1 + 39] + w[m, n * -2 + 78] * x[m, n]",
    )  # fmt: skip
    stage = Stage(
        members=("out",),
        partition=(Part(axis="m", size=6),),
        loops=(Part(axis="n", size=size),) if size < 39 else (),
    )
    nest = Nest(stages=(stage,))
    check(flipped, nest, dialect)
    text = lower_nest(flipped, nest, target=TARGETS[dialect], dialect=dialect).source
    loads = re.findall(r"dma_copy\(\s*dst=x\w*(?:\[.*?\])?,\s*src=(.*)", text)
    assert loads and not any(re.search(r"i_x \* -|- ?i_x|\[-", load) for load in loads)
    assert size < 39 or len(loads) == 1


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("way", ["direct", "turned"])
@pytest.mark.parametrize(
    ("parts", "step"),
    [({16: 16, 3: 2}, 1), ({16: 16, 5: 3}, 2), ({3: 3, 5: 5}, 2), ({5: 5, 16: 8, 3: 2}, 1)],
)
def test_parts_of_several_summed_axes_lie_on_partitions(
    parts: dict[int, int], step: int, way: Way, dialect: Dialect
) -> None:
    """A convolution of few channels fills the 128 rows of the Tensor engine with taps; what is left of
    an axis is a round of fewer rows. Of a row that is read at every second element all are loaded."""
    conv = algorithms.written(
        "conv", {"i": 2, "h": 32, "m": 6, "n": 7, "k": 3, "l": 5, "j": 16, "p": 8, "q": 17},
        {"x": (2, 16, 8, 17), "w": (3, 5, 16, 32)},
        "y[i, j, p, q] = exp(x[i, j, p, q])",
        f"out[i, h, m, n] = add[k, l, j](y[i, j, m + k, n * {step} + l] * w[k, l, j, h])",
    )  # fmt: skip
    target = TARGETS[dialect]
    nest = applied(Inline(definition="y"), conv, default_nest(conv, target), target)
    out = prepared(conv).definition("out")
    assert isinstance(out, Reduce)
    names = {axis.extent: axis.name for axis in out.reduced}
    axes = tuple(Part(axis=names[extent], size=size) for extent, size in parts.items())
    nest = applied(Contract(definition="out", axes=axes), conv, nest, target)
    nest = applied(Orient(definition="out", side="right", way=way), conv, nest, target)
    check(conv, nest, dialect)
    text = lower_nest(conv, nest, target=target, dialect=dialect).source
    assert re.search(rf"_kept = nl.ndarray\(\((nl.par_dim\()?{math.prod(parts.values())}\b", text)
    with pytest.raises(NotNested, match=f"out sums over .* of {names[5]}, not 6"):
        applied(Contract(definition="out", axes=(Part(axis=names[5], size=6),)), conv, nest)


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("seed", range(2))
def test_products_of_a_batch_lie_side_by_side(seed: int, dialect: Dialect) -> None:
    """Rows of each element of a batch begin where engines reach them, with room between where they are few, and so
    does what it sums over; also where one operand is the same for all."""
    draw = random.Random(seed)
    sizes = {
        "b": 3,
        "m": draw.choice((2, 3, 8)),
        "h": draw.choice((20, 49)),
        "k": 40,
        "n": 32,
        "j": 8,
    }
    own = ["b, h, m, n", "h, m, n"][seed % 2]
    shapes = {"q": own, "x": "b, k, m, n", "v": "b, k, m, j"}
    weighted = algorithms.written(
        "weighted", sizes, {a: tuple(sizes[n] for n in s.split(", ")) for a, s in shapes.items()},
        f"p[b, h, m, k] = add[n](q[{own}] * x[b, k, m, n])",
        "total[b, h, m] = add[k](sigmoid(p[b, h, m, k]))",
        "weights[b, h, m, j] = add[k](sigmoid(p[b, h, m, k]) * v[b, k, m, j])",
        "out[b, h, m, j] = weights[b, h, m, j] / total[b, h, m]",
    )  # fmt: skip
    found = list(starting_nests(weighted, TARGETS[dialect]))
    lying = {n: [p.size for s in n.stages for p in s.partition] for n in found}
    summed = [nest for nest in found if nest.contracted]
    rows = [nest for nest in found if {32, 64} & {*lying[nest]}]
    for nest in (
        draw.choice(summed),
        draw.choice(rows),
        draw.choice([n for n in rows if n in summed]),
    ):
        check(weighted, nest, dialect)


@pytest.mark.parametrize("dialect", TARGETS)
def test_rows_of_an_operand_come_with_what_lies_between_them(dialect: Dialect) -> None:
    """All taps of a convolution of three channels on partitions: each brings rows of 14 of 16 elements as one
    run, for each image. Rounds of a small operand come by one DMA."""
    conv = algorithms.written(
        "conv", {"i": 2, "h": 32, "m": 14, "n": 14, "k": 3, "l": 3, "j": 3},
        {"x": (2, 3, 16, 16), "w": (3, 3, 3, 32)},
        "out[i, h, m, n] = add[k, l, j](x[i, j, m + k, n + l] * w[k, l, j, h])",
    )  # fmt: skip
    target, out = TARGETS[dialect], prepared(conv).definition("out")
    assert isinstance(out, Reduce)
    taps = tuple(Part(axis=axis.name, size=3) for axis in out.reduced)
    nest = Nest(
        stages=(Stage(members=("out",), partition=(Part(axis=out.axes[1].name, size=32),)),)
    )
    nest = applied(Contract(definition="out", axes=taps), conv, nest, target)
    check(conv, nest, dialect)
    price = lower_nest(conv, nest, target=target, dialect=dialect).price
    run = 13 * 16 + 14
    assert price.moved == 4 * (27 * 2 * run + 27 * 32 + 2 * 32 * 14 * 14)

    product = algorithms.written(
        "product", {"m": 64, "n": 32, "k": 384}, {"x": (384, 64), "w": (384, 32)},
        "out[m, n] = add[k](x[k, m] * w[k, n])",
    )  # fmt: skip
    nest = Nest(stages=(Stage(members=("out",), partition=(Part(axis="m", size=64),)),))
    check(product, nest, dialect)
    text = lower_nest(product, nest, target=target, dialect=dialect).source
    assert len(re.findall(r"dma_copy\(\s*dst=[xw]_kept", text)) == 2 and "for i_k" in text


@pytest.mark.parametrize(("extent", "change", "rounds"), [(128, 64, [2, 64]), (8, 3, [8])])
def test_no_axis_is_joined_along_which_a_condition_is_decided(
    extent: int, change: int, rounds: list[int]
) -> None:
    """A rotation by halves makes an operand: each half is a round of the sum, written without a mask, also
    where all of the rows are transposed."""
    halves = (f"x[m, k + {at}] * gain[k + {at}]" for at in (extent - change, -change))
    made = algorithms.written(
        "rotation", {"m": 16, "k": extent, "n": 24},
        {"x": (16, extent), "gain": (extent,), "w": (extent, 24)},
        f"out[m, n] = add[k](({next(halves)} if k * -1 + {change - 1} >= 0 else {next(halves)}) * w[k, n])",
    )  # fmt: skip
    nest, (out,) = default_nest(made), prepared(made).definitions
    assert isinstance(out, Reduce) and [axis.extent for axis in out.reduced] == rounds
    ways: tuple[Way, ...] = ("direct", "turned")
    for way in ways:
        orient = Orient(definition="out", side="left", way=way)
        check(made, applied(orient, made, nest), "neuronxcc")
    axes = tuple(Part(axis=axis.name, size=axis.extent) for axis in out.reduced)
    with pytest.raises(NotNested, match="out is decided along"):
        applied(Contract(definition="out", axes=axes), made, nest)


@pytest.mark.parametrize("dialect", TARGETS)
def test_what_is_held_does_not_go_through_hbm(dialect: Dialect) -> None:
    """What a stage computes is there for a product that sums over its partitions, for one that sums along
    its rows and for elements in the same rows."""
    chain = algorithms.written(
        "chain", {"a": 256, "b": 256, "k": 64, "c": 96}, {"x": (256, 64), "y": (256, 96)},
        "gram[a, b] = add[k](x[a, k] * x[b, k])",
        "square[a, c] = add[b](gram[a, b] * y[b, c])",
        "out[a, c] = square[a, c] + gram[a, c]",
    )  # fmt: skip
    nest = default_nest(chain, TARGETS[dialect])
    for name in ("gram", "square"):
        nest = applied(Hold(definition=name, memory="SBUF"), chain, nest, TARGETS[dialect])
    check(chain, nest, dialect)
    text = lower_nest(chain, nest, target=TARGETS[dialect], dialect=dialect).source
    assert "private_hbm" not in text
    assert applied(Hold(definition="gram", memory="HBM"), chain, nest).held == ("square",)


@pytest.mark.parametrize("dialect", TARGETS)
def test_both_ends_that_masks_empty_are_left_out(dialect: Dialect) -> None:
    """Of a band of keys before each query, blocks on both sides are not computed. Evidence: as above."""
    band = algorithms.written(
        "band", {"m": 512, "l": 512, "j": 32, "n": 32}, {"q": (512, 32), "k": (512, 32)},
        "s[m, l] = add[j](q[m, j] * k[l, j])",
        "p[m, l] = exp(s[m, l] * 0.05) if m - l >= 0 and l - m + 127 >= 0 else 0.0",
        "out[m, n] = add[l](p[m, l] * k[l, n])",
    )  # fmt: skip
    starts = list(starting_nests(band, TARGETS[dialect]))
    nest = next(n for n in starts if len(n.stages) == 1 and n.stages[0].skipped)
    whole = nest.model_copy(update={"stages": (nest.stages[0].model_copy(update={"skipped": ()}),)})
    made, all_of_it = (
        lower_nest(band, n, target=TARGETS[dialect], dialect=dialect).price for n in (nest, whole)
    )
    assert made.engines["tensor"] < 0.75 * all_of_it.engines["tensor"]
    check(band, nest, dialect)


def test_rims_are_parts_of_their_own() -> None:
    """Where a condition changes along a long axis that lies beside itself, no mask is applied."""
    shift = algorithms.written(
        "shift", {"m": 128, "n": 40}, {"x": (128, 40)},
        "out[m, n] = x[m, n] * 0.5 + x[m, n - 1] if n - 1 >= 0 else x[m, n]",
    )  # fmt: skip
    nest = next(n for n in starting_nests(shift) if n.stages[0].partition[0].size == 128)
    check(shift, nest, "neuronxcc")
    text = lower_nest(shift, nest).source
    assert "affine_select" not in text and "private_hbm" not in text


@pytest.mark.parametrize("dialect", MOSTLY_TODAY)
@pytest.mark.parametrize("chunks, width", [(4, 32), (6, 48)])
def test_a_state_is_read_a_step_before_on_the_chip(
    chunks: int, width: int, dialect: Dialect
) -> None:
    """Chunks of a linear attention in one stage: what products sum over is laid, states are taken step by
    step and read where none is yet, and each array is brought for all chunks at once."""
    retention = algorithms.written(
        "retention", {"h": chunks, "l": width, "n": 40, "m": 64, "j": 96},
        {"q": (width, chunks, 64), "keys": (width, chunks, 96), "k": (chunks, 96, width),
         "v": (chunks, 96, 40), "mask": (96, 64), "decay": (width,), "gain": (64,)},
        "kv[h, l, n] = add[j](k[h, j, l] * v[h, j, n])",
        "state[h, l, n] = scan[h](decay[l] * 0.1, kv[h, l, n])",
        "old[h, m, n] = add[l](q[l, h, m] * state[h - 1, l, n])",
        "scores[h, m, j] = add[l](q[l, h, m] * keys[l, h, j])",
        "new[h, m, n] = add[j](scores[h, m, j] * mask[j, m] * v[h, j, n])",
        "out[h, m, n] = new[h, m, n] + old[h, m, n] * gain[m] if h - 1 >= 0 else new[h, m, n]",
    )  # fmt: skip
    assert "scores_operand" in {d.out for d in prepared(retention).definitions}
    starts = starting_nests(retention, TARGETS[dialect])
    found = [n for n in starts if len(n.stages) == 1 and dict(n.stages[0].laid).get("state")]
    assert found
    for nest in found[:2]:
        check(retention, nest, dialect)
        text = lower_nest(retention, nest, target=TARGETS[dialect], dialect=dialect).source
        assert "private_hbm" not in text and "tensor_tensor_scan" not in text
        assert text.count("dma_copy(") <= 9  # eight arrays, one of which is read in two parts
    state = prepared(retention).definition("state")
    assert isinstance(state, Scan)
    lying = (Part(axis=state.axes[1].name, size=width),)
    apart = default_nest(retention, TARGETS[dialect])
    for change in (
        Partition(definition="kv", axes=lying), Partition(definition="state", axes=lying),
        At(definition="kv", consumer="state"), Hold(definition="state", memory="SBUF"),
        Tile(definition="state", axis=state.along.name, size=1),
    ):  # fmt: skip
        apart = changed(change, retention, apart, TARGETS[dialect])
        if apart.held:
            check(retention, apart, dialect)
            text = lower_nest(retention, apart, target=TARGETS[dialect], dialect=dialect).source
            through = re.findall(r"(\w+) = nl.ndarray\(.*private_hbm", text)
            assert through and not any(name.startswith("state") for name in through)


@pytest.mark.parametrize("dialect", TARGETS)
def test_bodies_that_differ_in_numbers_are_written_once(dialect: Dialect) -> None:
    """Twice as many parts of a band take no more lines than the rows of a table."""

    def lines(rows: int) -> int:
        band = algorithms.written(
            "band", {"m": rows, "l": rows, "j": 32, "n": 32}, {"q": (rows, 32), "k": (rows, 32)},
            "s[m, l] = add[j](q[m, j] * k[l, j])",
            "p[m, l] = exp(s[m, l] * 0.05) if m - l >= 0 and l - m + 127 >= 0 else 0.0",
            "out[m, n] = add[l](p[m, l] * k[l, n])",
        )  # fmt: skip
        starts = list(starting_nests(band, TARGETS[dialect]))
        nest = next(n for n in starts if len(n.stages) == 1 and n.stages[0].skipped)
        check(band, nest, dialect)
        source = lower_nest(band, nest, target=TARGETS[dialect], dialect=dialect).source
        assert "static_range" in source or " in ((" in source or " in (\n" in source
        return len(source.splitlines())

    assert lines(1024) <= lines(512) + 12


def test_what_is_read_in_digits_elsewhere_has_those_digits() -> None:
    """A sum of two arrays in flat form lies in rows where a norm of it does, and shares their stage."""
    residual = algorithms.written(
        "residual", {"m": 128, "n": 256, "k": 128 * 256}, {"x": (128 * 256,)},
        "total[m] = add[n](x[m * 256 + n] * x[m * 256 + n])",
        "out[k] = x[k] * 2.0",
    )  # fmt: skip
    total, out = prepared(residual).definitions
    assert isinstance(total, Reduce) and out.axes == (*total.axes, *total.reduced)


def test_descriptors_are_made_before_the_run_where_a_stage_says_so() -> None:
    """nki.isa.dma_copy of SDK 2.32: `dge_mode.none` has them prepared; the other dialect has no such word."""
    softmax = algorithms.softmax(256, 96)
    nest = default_nest(softmax, "trn2")
    last = nest.stages[-1].members[-1]
    before = Descriptors(definition=last, made="before")
    made = applied(before, softmax, nest, "trn2", "nki")
    check(softmax, made, "nki")
    text = lower_nest(softmax, made, target="trn2", dialect="nki").source
    plain = lower_nest(softmax, nest, target="trn2", dialect="nki").source
    assert 0 < text.count("dge_mode=nisa.dge_mode.none") < text.count("nisa.dma_copy(")
    assert "dge_mode" not in plain
    again = Descriptors(definition=last, made="default")
    assert applied(again, softmax, made, "trn2", "nki") == nest
    with pytest.raises(NotNested, match=f"{last} cannot say in neuronxcc"):
        applied(before, softmax, nest, "trn2")

"""Kernels in different styles read alike."""

import pytest
from simulation import SMALL

from accelopt.kernels.nki.kernel_function import kernel_parameters
from accelopt.kernels.nki.moves.reading.reader import read
from accelopt.kernels.nki.moves.reading.source import NotAKernel, parse
from accelopt.kernels.nki.moves.surgery.names import apart
from accelopt.kernels.nki.parameters import ParameterFacts

HEADER = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((512, 1024), dtype=x.dtype, buffer=nl.shared_hbm)
"""

STYLES = {
    "slices": """
    for i in nl.affine_range(4):
        for j in nl.affine_range(2):
            t = nl.load(x[i * 128:(i + 1) * 128, j * 512:(j + 1) * 512])
""",
    "arange": """
    i_p, i_f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    for i in nl.affine_range(4):
        for j in nl.affine_range(2):
            t = nl.load(x[128 * i + i_p, i_f + j * 512])
""",
    "mgrid": """
    grid = nl.mgrid[0:128, 0:512]
    for i in nl.affine_range(4):
        for j in nl.affine_range(2):
            t = nl.load(x[i * 128 + grid.p, 512 * j + grid.x])
""",
    "ds": """
    width = 512
    for i in nl.affine_range(4):
        first = i * 128
        for j in nl.affine_range(2):
            t = nl.load(x[nl.ds(first, 128), nl.ds(width * j, width)])
""",
    "view": """
    for i in nl.affine_range(4):
        rows = x[i * 128:(i + 1) * 128, :]
        for j in nl.affine_range(2):
            t = nl.load(rows[:, j * 512:j * 512 + 512])
""",
}


def dims_of_load(body):
    kernel = parse(f"{HEADER}{body}    return out\n", {"x": ParameterFacts((512, 1024))})
    reading = read(kernel)
    load = next(s for s in reading.statements if s.call and s.call.name == "nl.load")
    names = {facts.symbol: facts.node.variable for facts in reading.loops}

    def text(dim):
        return dim.render(lambda symbol: names.get(symbol, f"{symbol.name}@{symbol.axis}"))

    assert load.result is not None and load.result.dtype == "float32"
    assert [size.constant for size in load.result.shape] == [128, 512]
    return [text(dim) for dim in load.reads[0].dims]


@pytest.mark.parametrize("style", STYLES)
def test_styles_read_alike(style):
    assert dims_of_load(STYLES[style]) == ["128 * i + ramp[128]@-2", "512 * j + ramp[512]@-1"]


def test_sizes_may_stay_symbols():
    source = (
        HEADER.replace("x.dtype", "nl.float32")
        + """
    rows, columns = x.shape
    half = columns // 2
    for j in nl.affine_range(2):
        t = nl.load(x[0:128, j * half:(j + 1) * half])
    return out
"""
    )
    reading = read(parse(source))
    load = next(s for s in reading.statements if s.call and s.call.name == "nl.load")
    last = load.reads[0].dims[-1]
    (loop,) = reading.loops
    assert last.factor_of(loop.symbol) == last.ramps[0].size


@pytest.mark.parametrize("name", SMALL)
def test_a_kernel_that_nothing_touches_is_given_back_as_it_was(name):
    source = SMALL[name][0].read_text()
    if '" end of' not in source:
        assert parse(source).render() == source


def test_names_come_apart_only_where_they_mean_different_things():
    source = (
        HEADER
        + """
    for i in nl.affine_range(4):
        t = nl.load(x[0:128, 0:512])
        t = nl.exp(t)
        nl.store(out[0:128, 0:512], value=t)
    for i in nl.affine_range(4):
        t = nl.load(x[0:128, 0:512])
        t[:, :] = nl.exp(t)
        nl.store(out[0:128, 0:512], value=t)
    return out
"""
    )
    text = apart(parse(source)).render()
    assert "t_1 = nl.exp(t)" in text and "value=t_1" in text
    assert "for i_1 in" in text and "t_2[:, :] = nl.exp(t_2)" in text


def test_a_condition_keeps_names_together():
    source = (
        HEADER
        + """
    t = nl.load(x[0:128, 0:512])
    if out.shape[0] > 4:
        t = nl.exp(t)
    nl.store(out[0:128, 0:512], value=t)
    return out
"""
    )
    assert apart(parse(source)).render() == source


@pytest.mark.parametrize("text", ["def f(:", "x = 1\n", "def kernel(x): return x\n"])
def test_what_is_no_kernel_is_said(text):
    with pytest.raises(NotAKernel):
        parse(text)


@pytest.mark.parametrize("levels", [150, 3000, 100_000])
@pytest.mark.parametrize(
    "deep",
    [
        lambda n: "x = " + "(" * n + "1" + ")" * n,
        lambda n: "x = " + "-" * n + "1",
        lambda n: "x = " + "1 + " * n + "1",
        lambda n: "x = a" + ".b" * n,
        lambda n: "if a:\n        pass\n" + "    elif a:\n        pass\n" * n,
    ],
)
def test_nesting_that_would_overflow_the_stack_is_refused(deep, levels):
    """A model can write it; libcst's parser dies of it, and the whole run with it."""
    source = f"def kernel(a):\n    {deep(levels)}\n    return a\n"
    try:
        assert parse(source).parameters == ["a"]
    except NotAKernel:
        pass
    else:
        assert levels == 150
    assert kernel_parameters(source) in (("a",), ())


def test_what_nobody_passes_is_its_default():
    """A grid kernel's program number is a symbol, its tile size a number."""
    source = HEADER.replace("def kernel(x):", "def kernel(x, width=512):") + (
        "    row = nl.program_id(0)\n"
        "    for j in nl.affine_range(x.shape[1] // width):\n"
        "        tile = nl.load(x[row * 128:(row + 1) * 128, j * width:(j + 1) * width])\n"
        "    return out\n"
    )
    assert "width=512" in source
    given = {"x": ParameterFacts((1024, 2048))}
    reading = read(parse(source, given))
    assert reading.loops[0].trips.constant == 4
    assert [statement.opaque for statement in reading.statements].count(True) == 0
    passed = read(parse(source, {**given, "width": ParameterFacts(())}))
    assert passed.loops[0].trips is None or passed.loops[0].trips.constant is None


def test_a_slice_keeps_its_bounds_under_a_name():
    source = (
        HEADER + "    rows = slice(0, 128)\n    tile = nl.load(x[rows, 0:512])\n    return out\n"
    )
    [load] = [
        s for s in read(parse(source, {"x": ParameterFacts((512, 1024))})).statements if s.reads
    ][:1]
    assert [size.constant for size in load.reads[0].shape] == [128, 512]

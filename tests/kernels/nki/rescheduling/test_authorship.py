"""A kernel by schedule reads as a change of its author's module, and its instructions stay."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from warm import computed, core

from accelopt.kernels.nki.actions.primitive_answers import nest_of
from accelopt.kernels.nki.arguments import ParameterFacts
from accelopt.kernels.nki.devices.protocol import TensorArgument
from accelopt.kernels.nki.nests.nest import Nest, Part, Stage
from accelopt.kernels.nki.rescheduling.any_rows import authored
from accelopt.kernels.nki.rescheduling.authorship.author import Author
from accelopt.kernels.nki.rescheduling.authorship.layout import laid_out
from accelopt.kernels.nki.rescheduling.lifted_kernel import lifted_kernel

NORM = '''# Copyright of a company.
"""Normalization of rows, as our models have it."""

from functools import partial

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

# Keeps the root away from zero.
EPSILON = 1e-5
STEP = 256  # columns that are read at a time
TEMPERATURE = 1.702  # of the gate


def squared(tile):
    """Only the old kernel needs it."""
    return nl.multiply(tile, tile)


@nki.jit
def normalize(x, gain):
    """Rows of x over their root mean square, gated."""
    rows, width = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # rows do not depend on each other
    for i in nl.affine_range(rows // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        # the mean of squares
        power = nl.multiply(nl.sum(squared(tile), axis=[1]), 1 / width)
        root = nl.rsqrt(nl.add(power, EPSILON))
        gains = nl.load(gain[0:1, :])
        # column by column
        for j in nl.affine_range(width // STEP):
            part = nl.multiply(tile[:, j * STEP : (j + 1) * STEP], root)
            # gated as in the paper
            gate = nl.reciprocal(nl.add(nl.exp(nl.multiply(part, -TEMPERATURE)), 1.0))
            wide = gains[:, j * STEP : (j + 1) * STEP].broadcast_to((128, STEP))
            nl.store(y[i * 128 : (i + 1) * 128, j * STEP : (j + 1) * STEP],
                     nl.multiply(nl.multiply(part, gate), wide))
    return y


def launch(x, gain):
    """Who calls it."""
    return partial(normalize, x)(gain)
'''


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The first kernel by schedule, as it is lowered and as its author would have it."""
    path = tmp_path_factory.mktemp("authorship") / "kernel.py"
    path.write_text(NORM)
    given = {
        "x": ParameterFacts((256, 512), "float32"),
        "gain": ParameterFacts((1, 512), "float32"),
    }
    lifted = lifted_kernel(NORM, path, given)
    schedule = nest_of(None, lifted, "trn1").nest
    made = lifted.lowered(schedule).source
    assert "# Schedule" not in made + lifted.authored(made)
    return made, lifted.authored(made)


def test_the_module_around_a_kernel_stays(lowered: tuple[str, str]) -> None:
    _, text = lowered
    assert text.startswith('# Copyright of a company.\n"""Normalization of rows, as our models')
    assert '    """Rows of x over their root mean square, gated."""\n' in text
    assert "# Keeps the root away from zero.\nEPSILON = 1e-5\n" in text
    assert text.endswith(NORM[NORM.index("\n\ndef launch") :])
    assert "from functools import partial" in text
    assert "STEP" not in text and "squared(" not in text, "what the old kernel alone used"
    assert text.index("import neuronxcc.nki.isa") < text.index("import neuronxcc.nki.language")


def test_numbers_are_the_author_s_expressions(lowered: tuple[str, str]) -> None:
    made, text = lowered
    assert "1.702" in made and "1e-05" in made
    body = text[text.index("def normalize") :]
    for number in ("1.702", "1e-05", "0.00195"):
        assert number not in body
    assert "EPSILON" in body and "TEMPERATURE" in body and "1 / width" in body
    assert "    rows, width = x.shape\n" in body


def test_names_and_comments_stand_by_the_same_steps(lowered: tuple[str, str]) -> None:
    _, text = lowered
    lines = text.splitlines()
    assert "    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n" in text
    assert text.rstrip().count("return y\n") == 1
    (at,) = [n for n, line in enumerate(lines) if "# the mean of squares" in line]
    assert "square" in "".join(lines[at + 1 : at + 6])
    assert "power = " in text and "root = " in text
    assert "# rows do not depend on each other\n    for " in text
    assert "# column by column" not in text, "the new kernel does not do so"


@pytest.mark.parametrize("docstring", [True, False])
def test_a_comment_on_top_of_a_kernel_stays_on_top(
    lowered: tuple[str, str], docstring: bool
) -> None:
    """Also where the statement below it, which names sizes, is another one in the lowered kernel."""
    top = "    # gated, unlike the paper\n    rows, width"
    source = NORM.replace("    rows, width", top, 1).replace("rows, width = x", "(rows, width) = x")
    if not docstring:
        source = source.replace('    """Rows of x over their root mean square, gated."""\n', "")
    author = Author(source, "normalize", {"x": (256, 512), "gain": (1, 512)})
    text = author.with_kernel(lowered[0])
    body = text[text.index("def normalize") :]
    lines = body.splitlines()[1 + docstring :]
    assert lines[0] == "    # gated, unlike the paper", body


def test_arguments_have_the_shapes_that_callers_know(lowered: tuple[str, str]) -> None:
    """Another is named where it is read, and a row that is sliced needs none."""
    for text in lowered:
        assert text.count("reshape") == text.count("gain_flat = gain.reshape((512,))") == 1


def test_statements_are_in_the_authors_layout(lowered: tuple[str, str]) -> None:
    """A formatter leaves them alone where it would leave the author's; else they stand on few lines, as theirs."""
    made, text = lowered
    formatted = Author(laid_out(NORM), "normalize", {"x": (256, 512), "gain": (1, 512)})
    command = [sys.executable, "-m", "ruff", "format", "--line-length", "100", "-"]
    theirs = formatted.with_kernel(made)
    done = subprocess.run(command, input=theirs, capture_output=True, text=True, check=True)
    assert done.stdout == theirs and len(theirs.splitlines()) > len(text.splitlines())
    assert ast.dump(ast.parse(theirs)) == ast.dump(ast.parse(text))
    assert max(map(len, text.splitlines())) <= 100


def test_the_instructions_stay(lowered: tuple[str, str], tmp_path: Path) -> None:
    arguments = [TensorArgument((256, 512), "float32"), TensorArgument((1, 512), "float32")]
    found = []
    for number, text in enumerate(lowered):
        path = tmp_path / f"kernel{number}.py"
        path.write_text(text)
        compiled = core().compile(str(path), arguments)
        steps = [
            (
                instruction.opcode,
                len(loops),
                [v if isinstance(v, str) else np.float32(v)
                 for v in instruction.attributes.values() if isinstance(v, (float, str))],
                [access.shape for access in instruction.inputs.values()],
            )
            for loops, instruction in compiled.program.walk()
        ]  # fmt: skip
        found.append((compiled.measure().runs_ms, steps))
    assert found[0] == found[1]


def test_a_text_that_holds_no_such_function_stays() -> None:
    author = Author("x = 1\n", "kernel", {})
    assert author.with_kernel("def kernel(): ...\n") == "def kernel(): ...\n"


TOKENS = '''"""Root mean square norm of tokens."""

import math

import nki
import nki.isa as nisa
import nki.language as nl

PART = 128  # partitions
EPS = 1e-6
TEMPERATURE = math.sqrt(2)


def load_rows(src, start):
    """A tile of rows."""
    tile = nl.ndarray((PART, src.shape[1]), dtype=src.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=src[start : start + PART, :])
    return tile


@nki.jit(mode="trace")
def tokens_norm(
    x: "nl.NkiTensor",  # tokens
    gain: "nl.NkiTensor",
) -> "nl.NkiTensor":
    """x (T, D), gain (1, D) -> (T, D)."""
    T, D = x.shape
    y = nl.ndarray((T, D), dtype=x.dtype, buffer=nl.shared_hbm)
    g = nl.ndarray((PART, D), dtype=gain.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=g, src=gain.ap([[0, PART], [1, D]], offset=0))
    for t in range(T // PART):
        rows = load_rows(x, t * PART)
        # mean of squares
        squares = nl.ndarray((PART, D), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=squares, data1=rows, data2=rows, op=nl.multiply)
        ms = nl.ndarray((PART, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=ms, op=nl.add, data=squares, axis=1)
        eps = nl.ndarray((PART, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=eps, value=EPS)
        inv = nl.ndarray((PART, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=inv, op=nl.rsqrt, data=ms, bias=eps, scale=1 / D)
        normed = nl.ndarray((PART, D), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=normed, data=rows, op0=nl.multiply, operand0=inv)
        out = nl.ndarray((PART, D), dtype=y.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=out, data1=normed, data2=g, op=nl.multiply)
        nisa.dma_copy(dst=y[t * PART : (t + 1) * PART, :], src=out)
    return y
'''


def test_a_kernel_of_nki_keeps_loops_sizes_and_names(tmp_path: Path) -> None:
    """Evidence: the author's words, and the simulated core's numbers for another number of tokens."""
    path = tmp_path / "kernel.py"
    path.write_text(TOKENS)
    given = {
        "x": ParameterFacts((512, 1536), "float32"),
        "gain": ParameterFacts((1, 1536), "float32"),
    }
    lifted = lifted_kernel(TOKENS, path, given, "trn2")
    nest = Nest(stages=(Stage(members=("total", "out"), partition=(Part(axis="m", size=128),)),))
    source = authored(lifted, nest, lifted.lowered(nest, "trn2").source, "trn2")
    assert source.startswith(TOKENS[: TOKENS.index("def load_rows")])
    header = TOKENS[TOKENS.index("@nki.jit(") : TOKENS.index("    y = ")]
    assert header in source
    for said in ("T, D = x.shape", "for t in range(T // PART):", "y = nl.ndarray((T, D), dtype=x.dtype",
                 "g = nl.ndarray((PART, D)", "nisa.memset(dst=eps, value=EPS)", "scale=1 / D",
                 "ms = nl.ndarray((PART, 1)", "inv = nl.ndarray((PART, 1)",
                 "out = nl.ndarray((PART, D)", "# mean of squares"):  # fmt: skip
        assert said in source
    x, gain = (np.random.default_rng(n).standard_normal((n, 1536)).astype("f") for n in (256, 1))
    (got,) = computed(source, [x, gain], "trn2")
    wanted = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * gain
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


STEPPED = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

RATE, DECAY = 0.001, 0.1


@nki.jit
def step(x):
    rows, width = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 125):
        tile = nl.load(x[i * 125 : (i + 1) * 125, :])
        nl.store(y[i * 125 : (i + 1) * 125, :], nl.multiply(nl.add(tile, DECAY), RATE))
    return y
"""


def test_a_number_has_its_name_and_not_that_of_a_size_that_it_is_the_inverse_of() -> None:
    made = STEPPED.replace("RATE, DECAY = 0.001, 0.1\n", "").replace("DECAY", "0.1")
    text = Author(STEPPED, "step", {"x": (1000, 64)}).with_kernel(made.replace("RATE", "0.001"))
    assert "RATE)" in text and "RATE, DECAY = 0.001, 0.1" in text and "1 / rows" not in text


def test_a_comment_follows_the_numbers_of_its_step() -> None:
    """Two steps differ in a number alone; a lowered kernel has them in another order."""
    source = STEPPED.replace(
        "        nl.store(y[i * 125 : (i + 1) * 125, :], nl.multiply(nl.add(tile, DECAY), RATE))\n",
        "        # slow\n        slow = nl.multiply(tile, 0.25)\n"
        "        # fast\n        fast = nl.multiply(tile, 0.75)\n"
        "        nl.store(y[i * 125 : (i + 1) * 125, :], nl.subtract(fast, slow))\n",
    )
    lines = source.splitlines(keepends=True)
    slow, fast = (n for n, line in enumerate(lines) if "nl.multiply" in line)
    lines[slow], lines[fast] = lines[fast], lines[slow]
    made = "".join(line for line in lines if "#" not in line)
    text = Author(source, "step", {"x": (1000, 64)}).with_kernel(made)
    stands = {at.strip(): below for at, below in zip(text.splitlines(), text.splitlines()[1:])}
    assert "0.25" in stands["# slow"] and "0.75" in stands["# fast"]

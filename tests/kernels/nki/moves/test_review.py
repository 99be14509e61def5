"""Rewritten kernels as a reviewer reads them: names, comments, lines that a formatter leaves alone."""

import re
import subprocess
import sys

import pytest

from accelopt.hardware import TARGETS
from accelopt.kernels.nki.kernel_function import kernel_parameters
from accelopt.kernels.nki.knob_actions import rewrites_of
from accelopt.kernels.nki.moves.move import Facts
from accelopt.kernels.nki.moves.surgery.review import (
    familiar,
    given_again,
    reviewed,
    told,
    without_aliases,
)
from accelopt.kernels.nki.parameters import ParameterFacts

TOP = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

TILE = 128  # rows in one tile


"""
MLP = (
    TOP
    + '''@nki.jit
def gelu_mlp(x, w):
    """gelu(x @ w)."""
    M, K = x.shape
    N = w.shape[1]
    out = nl.ndarray((M, N), dtype=x.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // TILE):
        for n in nl.affine_range(N // 512):
            acc = nl.zeros((TILE, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(K // TILE):
                # the PE wants K on the partitions
                xT = nl.load_transpose2d(
                    x[m * TILE : (m + 1) * TILE, k * TILE : (k + 1) * TILE]
                )  # transposed on the way in
                w_tile = nl.load(w[k * TILE : (k + 1) * TILE, n * 512 : (n + 1) * 512])
                acc += nl.matmul(xT, w_tile, transpose_x=True)
            nl.store(out[m * TILE : (m + 1) * TILE, n * 512 : (n + 1) * 512], nl.gelu(acc))
    return out
'''
)
SOFTMAX = (
    TOP
    + '''@nki.jit
def softmax(x):
    """Softmax along the last axis."""
    rows, cols = x.shape
    out = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    for t in nl.affine_range(rows // TILE):
        i_p = nl.arange(TILE)[:, None]
        i_f = nl.arange(cols)[None, :]
        x_tile = nl.load(x[t * TILE + i_p, i_f])
        # subtract the row maximum so that exp cannot overflow
        row_max = nl.max(x_tile, axis=[1], keepdims=True)
        exps = nl.exp(nl.subtract(x_tile, row_max))
        denominator = nl.sum(exps, axis=[1], keepdims=True)
        nl.store(out[t * TILE + i_p, i_f], value=nl.divide(exps, denominator))
    return out
'''
)
KERNELS = {
    "mlp": (MLP, [(512, 512), (512, 2048)]),
    "softmax": (SOFTMAX, [(1024, 512)]),
}


def facts(source, shapes):
    arguments = {
        name: ParameterFacts(shape, "float32")
        for name, shape in zip(kernel_parameters(source), shapes, strict=True)
    }
    return Facts(metrics={}, arguments=arguments, sbuf_bytes=TARGETS["trn1"].sbuf_usable_bytes)


def formatted(source):
    command = [sys.executable, "-m", "ruff", "format", "--line-length", "100", "-"]
    return subprocess.run(
        command, input=source, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip


def chain(source, known, steps):
    """Kernels, each made of the one before by the first rewrite that gives a new one."""
    seen = {source}
    for _ in range(steps):
        offered = [action for action in rewrites_of(source, known) if action.source not in seen]
        if not offered:
            return
        seen.add(source := offered[0].source)
        yield offered[0], source


@pytest.mark.parametrize("name", KERNELS)
def test_a_formatter_leaves_rewritten_kernels_alone(name):
    source, shapes = KERNELS[name]
    known = facts(source, shapes)
    assert formatted(source) == source
    made = [action.source for action in rewrites_of(source, known)]
    made += [source for _, source in chain(source, known, 5)]
    assert len(made) > 5
    for text in made:
        assert formatted(text) == text
        assert max(map(len, text.splitlines())) <= 100
        assert not re.search(r"[a-z]_\d+_\d+\b", text), text
        comments = re.findall(r"# (.*)", source)
        assert [c for c in comments if c not in text] in ([], ["transposed on the way in"])


def test_a_loop_after_another_keeps_its_name():
    text = "for k in a:\n    f(k)\nfor k_1 in b:\n    g(k_1, k_1=2)\n"
    assert familiar(text) == text.replace("in b", "in b").replace("for k_1", "for k").replace(
        "g(k_1,", "g(k,"
    )
    for other in (
        "for k in a:\n    for k_1 in b:\n        g(k, k_1)\n",
        "for k_1 in a:\n    for k in b:\n        g(k, k_1)\n",
        "for k in a:\n    f(k)\nfor k_1 in b:\n    g(k_1)\nh(k)\n",
        "for k_1 in b:\n    g(k_1)\nh(k_1)\n",
        "k = 1\nfor k_1 in b:\n    g(k, k_1)\n",
        "def f(k):\n    for k_1 in b:\n        g(k, k_1)\n",
    ):
        assert familiar(other) == other


def test_of_two_names_for_one_value_the_authors_stays():
    before = "total = nl.sum(x)\ny = x / total\n"
    made = "row_sum = nl.ndarray(s)\nf(row_sum)\ntotal = row_sum\ny = x / total\n"
    assert without_aliases(made, before) == "total = nl.ndarray(s)\nf(total)\ny = x / total\n"
    for other in (
        "total = 1\nrow_sum = 2\ntotal = row_sum\n",
        "row_sum = 1\ntotal = row_sum\nrow_sum = 2\ny = total\n",
        "x = 1\ntotal = x\ny = x / total\n",
    ):
        assert without_aliases(other, before) == other


def test_what_is_no_python_stays():
    assert reviewed("def f(:", "", {}) == "def f(:"


def test_sentences_name_what_the_author_wrote():
    source = "for k in a:\n    f(k)\nfor k in b:\n    g(k, x_1)\n"
    assert told("Swap k_1 and m_1 at x_1.", source) == "Swap k and m_1 at x_1."


PROJECTION = (
    TOP
    + '''TILE_N = 128  # columns of one product


@nki.jit
def projection(x_t, w):
    """x @ w, with x transposed."""
    M = x_t.shape[1]
    N = w.shape[1]
    out = nl.ndarray((M, N), dtype=x_t.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // TILE):
        # rows stay
        x_tile = nl.load(x_t[0:128, m * TILE : (m + 1) * TILE])
        for n in nl.affine_range(N // TILE_N):
            # weights of these columns
            w_tile = nl.load(w[0:128, n * TILE_N : (n + 1) * TILE_N])
            acc = nl.matmul(x_tile, w_tile, transpose_x=True)
            nl.store(out[m * TILE : (m + 1) * TILE, n * TILE_N : (n + 1) * TILE_N], value=acc)
    return out
'''
)


def test_constants_and_indices_stay_and_multiples_get_names_of_their_own():
    made = {
        a.change.sentence: a.source
        for a in rewrites_of(PROJECTION, facts(PROJECTION, [(128, 512), (128, 512)]))
    }
    (wide,) = [source for sentence, source in made.items() if sentence.startswith("Handle 2 ")]
    assert "TILE_N = 128  # columns of one product\nWIDE_TILE_N = 2 * TILE_N\n" in wide
    assert "n_block * WIDE_TILE_N : (n_block + 1) * WIDE_TILE_N" in wide
    assert "out[m * TILE : (m + 1) * TILE, " in wide, "as the author wrote it"
    again = [
        action.source
        for action in rewrites_of(wide, facts(wide, [(128, 512), (128, 512)]))
        if action.change.sentence.startswith("Handle 2 ")
    ]
    assert "\nWIDER_TILE_N = 4 * TILE_N\n" in again[0] and "WIDE_TILE_N" not in again[0]
    for source in (*made.values(), *again):
        assert formatted(source) == source
        assert max(map(len, source.splitlines())) <= 100
        assert "# rows stay" in source and "# weights of these columns" in source


def test_a_constant_that_nothing_uses_any_more_goes_with_its_comment():
    before = "# of a row\nSTEP = 3\nOTHER = 4\n\n\ndef f(a):\n    return a[0:STEP]\n"
    after = before.replace("0:STEP", "0:8")
    assert reviewed(after, before, {}) == "OTHER = 4\n\n\ndef f(a):\n    return a[0:8]\n"


REUSED = """def f(x, y):
    for i in r(2):
        b = load(x[i])
        b = b * 2
        b = b + 1
        store(y[i], b)
"""


def test_an_author_s_name_for_value_after_value_is_given_again():
    text = REUSED.replace("b = b * 2", "b_2 = twice(b)").replace("b = b + 1", "b_3 = b_2 + 1")
    text = text.replace("y[i], b)", "y[i], b_3)")
    assert given_again(text, REUSED) == REUSED.replace("b * 2", "twice(b)")
    for other in (
        text.replace("b_2 + 1", "b_2 + b"),  # an earlier value is asked for once more
        text + "    return b\n",
        text.replace("b = load(x[i])", "b[...] = load(x[i])"),  # bound elsewhere
        text.replace("b = load(x[i])", "b = load(b[i])"),
        text.replace("f(x, y)", "f(x, y, b)"),
    ):
        assert "twice(b)" in given_again(other, REUSED) and "b_2" in given_again(other, REUSED)
    once = REUSED.replace("b = b * 2", "c = b * 2").replace("b = b + 1", "d = c + 1")
    assert given_again(text, once) == text  # the author names each value

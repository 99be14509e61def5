"""Loops are traced once. Where their Python would not be the same every time they are unrolled or
refused, and never give a silently different answer."""

import numpy as np
import pytest
from kernel_lines import writing

from accelopt.sim.errors import KernelError
from accelopt.sim.program import Loop

A = np.ones((128, 512), np.float32)


HELPERS = """
def shifted(values):
    for value in values:
        yield value + 1

class Counter:
    def __init__(self):
        self.n = 0
        self.seen = []

    def next(self):
        self.n += 1
        return self.n

TOTAL = [0]

"""


def summing(*lines):
    """A kernel whose lines add to `s`, a (128, 64) tile of zeros; `t` is the input."""
    start = "t, s = nl.load(a), nl.zeros((128, 64), dtype=nl.float32)"
    return HELPERS + writing(start, *lines, "nl.store(out, s)", shape="(128, 64)")


SAID = {
    "zip": (10, ["for i, w in zip(nl.affine_range(4), [1.0, 2.0, 3.0, 4.0]):", "    s += w"]),
    "enumerate": (10, ["for n, i in enumerate(nl.affine_range(4)):", "    s += float(n + 1)"]),
    "reversed": (6, ["for i in reversed(list(nl.affine_range(4))):", "    s += float(i)"]),
    "generator": (10, ["for i in shifted(nl.affine_range(4)):", "    s += float(i)"]),
    "comprehension": (6, ["s += float(sum([int(i) for i in nl.affine_range(4)]))"]),
    "comprehension on the line of a loop": (
        12, ["for i in nl.affine_range(2): s += float(sum([int(j) for j in range(4)]))"]),
    "static range": (
        16, ["n, w = 0, [1.0, 2.0, 3.0]", "for i in nl.static_range(4):", "    if i == 3:",
             "        break", "    n += 1", "    s += w[i] * n + (0 if i < 2 else 2) / 2",
             "s += min(n, i - 2)"]),
    "inner bound from the outer index": (
        6, ["for i in nl.affine_range(4):", "    for j in nl.affine_range(i):", "        s += 1.0"]),
    "branch on the index": (
        12, ["for i in nl.affine_range(4):", "    if i == 2:", "        s += 3.0",
             "    elif i % 2 and i > 0:", "        s += 4.0", "    else:", "        s += 1.0"]),
    "branch on a minimum": (
        5, ["for i in nl.affine_range(4):", "    size = min((i + 1) * 32, 80) - i * 32",
            "    if size < 32:", "        s += 1.0", "    else:", "        s += 1.5"]),
    "condition joined with a flag": (
        5, ["causal = True", "for i in nl.affine_range(4):", "    if causal and i != 1:",
            "        s += 1.0", "    if not causal or i == 3:", "        s += 2.0"]),
    "else of a loop": (5, ["for i in nl.affine_range(4):", "    s += 1.0", "else:", "    s += 1.0"]),
    "two calls of a helper with a loop": (
        12, ["def add(times, value):", "    for k in nl.affine_range(times):",
             "        s[...] = nl.add(s, value)", "add(2, 1.0)", "add(5, 2.0)"]),
    "index as an operand": (
        26, ["for i in nl.affine_range(4):", "    s += i", "    s[...] = nl.add(s, 2 * i + 1)",
             "    s += nl.full((128, 64), i % 2, nl.float32)", "    s += i * i - i * i + i // 2 + 0"]),
    "exception inside": (
        4, ["for i in nl.affine_range(4):", "    try:", "        s += [][0]",
            "    except IndexError:", "        s += 1.0"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_result_is_what_python_says(name, kernel_text):
    """Branches on indices are predicated (docs: nki.errors.rst, err_local_variable_...); the rest is
    Python that the tracer does not touch, or operands that are scalars (nki-samples, flash_fwd:
    `seed + i` of its dropout). That loops may be bounded by outer indices is an assumption."""
    expected, lines = SAID[name]
    assert np.array_equal(kernel_text(summing(*lines)).run(A), np.full((128, 64), expected))


ONCE = {
    "counter": (["n = 0", "for i in nl.sequential_range(4):", "    n += 1", "    s += n"], "'n' changes"),
    "counter read before it is set": (
        ["n = 0", "for i in nl.affine_range(4):", "    s += n", "    n = n + 1"], "'n' changes"),
    "counter beside a branch": (
        ["n = 0", "for i in nl.affine_range(4):", "    if i > 1:", "        s += 1.0", "    s += n",
         "    n += 1"], "'n' changes"),
    "first time": (
        ["last = None", "for i in nl.affine_range(4):", "    if last is not None:",
         "        s += last", "    last = nl.add(s, 1.0)"], "'last' changes"),
    "list that grows": (
        ["seen = []", "for i in nl.affine_range(4):", "    s += len(seen)", "    seen.append(i)"],
        "a list, dict or object"),
    "list of tiles": (
        ["made = []", "for i in nl.affine_range(4):", "    made.append(nl.add(s, 1.0))",
         "for i in nl.static_range(4):", "    s += made[i]"], "a list, dict or object"),
    "dict that grows": (
        ["seen = {}", "for i in nl.affine_range(4):", "    seen['x'] = len(seen)"],
        "a list, dict or object"),
    "nested list": (["box = [[0]]", "for i in nl.affine_range(4):", "    box[0][0] += 1"],
                    "a list, dict or object"),
    "attribute of an object": (
        ["c = Counter()", "for i in nl.affine_range(4):", "    s += c.next()"],
        "a list, dict or object"),
    "closure": (
        ["n = 0", "def bump():", "    nonlocal n", "    n += 1", "    return n",
         "for i in nl.affine_range(4):", "    s += bump()"], "a list, dict or object"),
    "global list": (
        ["TOTAL[0] = 0", "for i in nl.affine_range(4):", "    TOTAL[0] += 1"],
        "a list, dict or object"),
    "swapped references": (
        ["x, y = nl.ones((128, 64), nl.float32), nl.zeros((128, 64), nl.float32)",
         "for i in nl.sequential_range(8):", "    s += x", "    x, y = y, x"], "'x' changes"),
    "two levels": (
        ["for i in nl.affine_range(2):", "    n = 0", "    for j in nl.affine_range(3):",
         "        n += 1", "        s += n"], "'n' changes"),
    "list indexed by the loop": (
        ["w = [1.0, 2.0, 3.0, 4.0]", "for i in nl.affine_range(4):", "    s += w[i]"],
        "as a Python number"),
    "list indexed by the loop, beside a branch": (
        ["w = [1.0, 2.0, 3.0, 4.0]", "for i in nl.affine_range(4):", "    if i > 1:",
         "        s += 1.0", "    s += w[i]"], "as a Python number"),
    "dict indexed by the loop": (
        ["w = {0: 1.0, 1: 2.0}", "for i in nl.affine_range(2):", "    s += w[i]"],
        "as a Python number"),
    "number of an index": (["for i in nl.affine_range(4):", "    s += float(i)"],
                           "as a Python number"),
    "quotient of an index": (["for i in nl.affine_range(4):", "    s += i / 2"],
                             "as a Python number"),
    "number of a minimum": (["for i in nl.affine_range(4):", "    s += float(min(i, 2))"],
                            "min\\(\\) or max\\(\\)"),
    "break": (["for i in nl.affine_range(8):", "    if i == 3:", "        break", "    s += 1.0"],
              "left by break"),
    "break always": (["for i in nl.affine_range(8):", "    s += 1.0", "    break"], "left by break"),
    "continue": (["for i in nl.affine_range(4):", "    if i == 1:", "        continue",
                  "    s += 1.0"], "left by continue"),
    "index after the loop": (["for i in nl.affine_range(4):", "    pass", "s += t[:, nl.ds(i, 64)]"],
                             "after its loop"),
    "number bound in branches": (
        ["for i in nl.affine_range(4):", "    if i == 0:", "        w = 1.0", "    else:",
         "        w = 2.0", "    s += w"], "'w' is bound in a branch"),
    "tile of a helper bound in branches": (
        ["def more(x):", "    return nl.add(x, 1.0)", "for i in nl.affine_range(4):",
         "    if i == 0:", "        u = more(s)", "    else:", "        u = nl.copy(s)",
         "    s[...] = u"], "'u' is bound in a branch"),
    "tile bound in a branch on a minimum": (
        ["for i in nl.affine_range(4):", "    size = min((i + 1) * 32, 80) - i * 32",
         "    if size < 32:", "        u = nl.add(s, 1.0)", "    else:", "        u = nl.add(s, 2.0)",
         "    s[...] = u"], "'u' is bound in a branch"),
    "counter in a branch": (
        ["n = 0", "for i in nl.affine_range(4):", "    if i > 1:", "        n += 1", "s += n"],
        "'n' is bound in a branch"),
    "slice that ends at a minimum that never decides": (
        ["for i in nl.affine_range(4):", "    stop = min((i + 1) * 64, 512)",
         "    s += t[:, i * 64:stop]"], "variable size"),
    "the same beside a branch": (
        ["for i in nl.affine_range(4):", "    if i == 0:", "        s += 1.0",
         "    stop = min((i + 1) * 64, 512)", "    s += t[:, i * 64:stop]"], "variable size"),
}  # fmt: skip


@pytest.mark.parametrize("name", ONCE)
def test_what_a_body_that_runs_once_cannot_do_is_refused(name, kernel_text):
    """docs (programming model): loops are traced, not run; a body runs once with a symbolic index.
    obs: "list indices must be integers", "slice with variable size is not supported" (a layernorm of
    autocomp with min()), "local variable ... is referenced outside of its parent scope (if/else
    block ...)" (another, whose branch is on a difference of min())."""
    lines, said = ONCE[name]
    with pytest.raises(KernelError, match=said) as refused:
        kernel_text(summing(*lines)).trace(A)
    assert refused.value.mend and refused.value.source.line


def test_a_ternary_on_an_index_takes_its_first_value(kernel_text):
    """Measured on trn2 (kda-for-trainium, gqa_full_v7b): `reset_reduce if c == 0 else reduce` in a
    loop of eight left the last eighth of a sum, a relative error of 7.04. The condition is an object,
    which is true, and so are `not`, `and` and `or` on it; unrolled for a branch or not."""
    text = kernel_text(summing(
        "for i in nl.affine_range(4):",
        "    if i == 1:",
        "        s += 8.0",
        "    s += 4.0 if i == 2 else 1.0",
        "for i in nl.affine_range(2):",
        "    last = i == 1 and i == 0",
        "    nothing = not last",
        "    s += 1.0 if nothing else 2.0",
    ))  # fmt: skip
    assert np.array_equal(text.run(A), np.full((128, 64), 8 + 16 + 4))


def test_an_index_may_be_compared_with_a_minimum_in_a_mask(kernel_text):
    """Measured on trn1 (autocomp, layernorm i1_c02 and i2_c12): kernels with
    `mask=i_f < min(512, n - j * 512)` run."""
    text = kernel_text(summing(
        "rows, columns = nl.arange(128)[:, None], nl.arange(48)[None, :]",
        "for j in nl.affine_range(2):",
        "    left = min(48, 64 - j * 48)",
        "    s[rows, j * 48 + columns] = nl.add(t[rows, columns], 1.0, mask=columns < left)",
    ))  # fmt: skip
    assert np.array_equal(text.run(A), np.full((128, 64), 2))


def test_an_index_rebound_in_the_body_starts_from_the_one_outside(kernel_text):
    """nki-samples, fused_self_attn_bwd rebinds an nl.arange in its loop; the body runs once, so each
    iteration reads what was bound before the loop."""
    text = kernel_text(summing(
        "columns = nl.arange(64)[None, :]",
        "rows = nl.arange(128)[:, None]",
        "part = t[rows, columns]",
        "for i in nl.sequential_range(4):",
        "    s[rows, columns] = nl.add(s[rows, columns], part)",
        "    columns = nl.arange(32)[None, :] + 32",
        "    part = nl.add(part, 1.0)",
    ))  # fmt: skip
    assert np.array_equal(text.run(A), np.full((128, 64), 4))


SYMBOLIC = {
    "plain": ["for i in nl.affine_range(8):", "    s += t[:, nl.ds(i * 64, 64)]"],
    "scratch names": ["for i in nl.affine_range(8):", "    start = i * 64", "    stop = start + 64",
                      "    part = t[:, start:stop]", "    s += part"],
    "names used again after the loop": [
        "x = 1.0", "for i in nl.affine_range(8):", "    x = 2.0", "    s += x"],
    "two loops": ["for i in nl.affine_range(2):", "    for j in nl.affine_range(4):",
                  "        s += t[:, nl.ds(i * 256 + j * 64, 64)]"],
    "lists that only the body uses": [
        "for i in nl.affine_range(8):", "    parts = []",
        "    parts.append(t[:, nl.ds(i * 64, 64)])", "    s += parts[0]"],
    "remainder and quotient": [
        "for i in nl.affine_range(8):", "    s += t[:, nl.ds((i // 2) * 128 + (i % 2) * 64, 64)]"],
    "functions made in the body": [
        "for i in nl.affine_range(8):", "    f = lambda x: nl.add(x, 1.0)",
        "    s += f(t[:, nl.ds(i * 64, 64)])"],
}  # fmt: skip


@pytest.mark.parametrize("name", SYMBOLIC)
def test_loop_stays_one_loop(name, kernel_text):
    program = kernel_text(summing(*SYMBOLIC[name])).trace(A)
    assert any(isinstance(node, Loop) for node in program.body)
    assert sum(1 for _ in program.walk()) < 10


def test_only_the_loop_that_needs_it_is_unrolled(kernel_text):
    lines = ["for i in nl.affine_range(3):", "    for j in nl.affine_range(64):", "        s += i"]
    program = kernel_text(summing(*lines)).trace(A)
    loops = [node for node in program.body if isinstance(node, Loop)]
    assert [loop.variable.trips for loop in loops] == [64, 64, 64]


def test_error_in_a_loop_names_its_line_once(kernel_text):
    text = kernel_text(summing("for i in nl.affine_range(4):", "    s += nl.exp(a)  # here"))
    with pytest.raises(TypeError) as refused:
        text.trace(A)
    assert refused.value.source.line == text.line_of("# here")


def test_own_python_error_of_the_kernel_comes_through(kernel_text):
    with pytest.raises(ZeroDivisionError):
        kernel_text(summing("for i in nl.affine_range(4):", "    s += 1 / 0")).trace(A)


def test_running_address_of_direct_allocation_is_no_reason_to_unroll(kernel_text):
    """The real tracer runs the body once, so a running address keeps its first value; public
    allocated kernels rely on it."""
    program = kernel_text.writing("""
        address = 0
        for i in nl.affine_range(100):
            t = nl.ndarray((128, 512), a.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=address))
            address += 2048
            t[...] = nl.load(a[:, nl.ds(i * 512, 512)])
            nl.store(out[:, nl.ds(i * 512, 512)], t)
        """).trace(np.zeros((128, 51_200), np.float32))
    assert sum(1 for _ in program.walk()) == 2


def test_return_at_the_end_of_the_body_ends_the_trace_not_the_loop(kernel_text):
    """SDK 2.26.1 `nki/examples/layout-dynamic-loop.py` returns inside of its loop."""
    text = kernel_text.writing("""
        for i in nl.affine_range(4):
            part = nl.ds(i * 128, 128)
            nl.store(out[:, part], nl.load(a[:, part]))
            return out
        """)
    assert np.array_equal(text.run(A), A)

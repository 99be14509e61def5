"""Loops are traced once; when their Python is not the same every time they are unrolled, and never
give a silently different answer. Every kernel here is compared with what Python says."""

import numpy as np
import pytest

from accelopt.sim.program import Loop

A = np.ones((128, 512), np.float32)


def summing(*lines):
    """A kernel whose lines add to `s`, a (128, 64) tile of zeros; `t` is the input."""
    body = "\n".join("    " + line for line in lines)
    return f"""
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

@nki.jit
def kernel(a):
    out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.load(a)
    s = nl.zeros((128, 64), dtype=nl.float32)
{body}
    nl.store(out, s)
    return out
"""


UNROLLED = {
    "counter": (10, ["n = 0", "for i in nl.sequential_range(4):", "    n += 1", "    s += float(n)"]),
    "counter read before it is set": (
        6, ["n = 0", "for i in nl.affine_range(4):", "    s += float(n)", "    n = n + 1"]),
    "list that grows": (
        6, ["seen = []", "for i in nl.affine_range(4):", "    s += float(len(seen))",
            "    seen.append(i)"]),
    "dict that grows": (
        6, ["seen = {}", "for i in nl.affine_range(4):", "    s += float(len(seen))",
            "    seen[i] = 1"]),
    "nested list": (
        6, ["box = [[0]]", "for i in nl.affine_range(4):", "    s += float(box[0][0])",
            "    box[0][0] += 1"]),
    "attribute of an object": (
        10, ["c = Counter()", "for i in nl.affine_range(4):", "    s += float(c.next())"]),
    "closure": (
        10, ["n = 0", "def bump():", "    nonlocal n", "    n += 1", "    return n",
             "for i in nl.affine_range(4):", "    s += float(bump())"]),
    "global list": (
        6, ["TOTAL[0] = 0", "for i in nl.affine_range(4):", "    s += float(TOTAL[0])",
            "    TOTAL[0] += 1"]),
    "list indexed by the loop": (
        10, ["w = [1.0, 2.0, 3.0, 4.0]", "for i in nl.affine_range(4):", "    s += w[i]"]),
    "dict indexed by the loop": (
        10, ["w = {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}", "for i in nl.affine_range(4):",
             "    s += w[i]"]),
    "condition": (7, ["for i in nl.affine_range(4):", "    s += 4.0 if i == 2 else 1.0"]),
    "min": (5, ["for i in nl.affine_range(4):", "    s += float(min(i, 2))"]),
    "index times index": (14, ["for i in nl.affine_range(4):", "    s += float(i * i)"]),
    "break": (3, ["for i in nl.affine_range(8):", "    if i == 3:", "        break",
                  "    s += 1.0"]),
    "continue": (3, ["for i in nl.affine_range(4):", "    if i == 1:", "        continue",
                     "    s += 1.0"]),
    "zip": (10, ["for i, w in zip(nl.affine_range(4), [1.0, 2.0, 3.0, 4.0]):", "    s += w"]),
    "enumerate": (10, ["for n, i in enumerate(nl.affine_range(4)):", "    s += float(n + 1)"]),
    "reversed": (6, ["for i in reversed(list(nl.affine_range(4))):", "    s += float(i)"]),
    "generator": (10, ["for i in shifted(nl.affine_range(4)):", "    s += float(i)"]),
    "comprehension": (6, ["s += float(sum([int(i) for i in nl.affine_range(4)]))"]),
    "comprehension on the line of a loop": (
        12, ["for i in nl.affine_range(2): s += float(sum([int(j) for j in range(4)]))"]),
    "inner bound from the outer index": (
        6, ["for i in nl.affine_range(4):", "    for j in nl.affine_range(i):", "        s += 1.0"]),
    "index after the loop": (3, ["for i in nl.affine_range(4):", "    pass", "s += float(i)"]),
    "else of a loop": (5, ["for i in nl.affine_range(4):", "    s += 1.0", "else:", "    s += 1.0"]),
    "swapped references": (
        4, ["x, y = nl.ones((128, 64), nl.float32), nl.zeros((128, 64), nl.float32)",
            "for i in nl.sequential_range(8):", "    s += x", "    x, y = y, x"]),
    "two levels, only the inner depends": (
        12, ["for i in nl.affine_range(2):", "    n = 0", "    for j in nl.affine_range(3):",
             "        n += 1", "        s += float(n)"]),
    "two calls of a helper with a loop": (
        12, ["def add(times, value):", "    for k in nl.affine_range(times):",
             "        s[...] = nl.add(s, value)", "add(2, 1.0)", "add(5, 2.0)"]),
    "exception inside": (
        4, ["for i in nl.affine_range(4):", "    try:", "        s += [1.0][i]",
            "    except IndexError:", "        s += 1.0"]),
}  # fmt: skip


@pytest.mark.parametrize("name", UNROLLED)
def test_result_is_what_python_says(name, kernel_text):
    expected, lines = UNROLLED[name]
    assert np.array_equal(kernel_text(summing(*lines)).run(A), np.full((128, 64), expected))


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
    program = kernel_text(
        summing(
            "for i in nl.affine_range(3):",
            "    n = float(int(i))",
            "    for j in nl.affine_range(64):",
            "        s += n",
        )
    ).trace(A)
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
    program = kernel_text("""
        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            address = 0
            for i in nl.affine_range(100):
                t = nl.ndarray((128, 512), a.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=address))
                address += 2048
                t[...] = nl.load(a[:, nl.ds(i * 512, 512)])
                nl.store(out[:, nl.ds(i * 512, 512)], t)
            return out
        """).trace(np.zeros((128, 51_200), np.float32))
    assert sum(1 for _ in program.walk()) == 2


def test_return_at_the_end_of_the_body_ends_the_trace_not_the_loop(kernel_text):
    """SDK 2.26.1 `nki/examples/layout-dynamic-loop.py` returns inside of its loop."""
    text = kernel_text("""
        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            for i in nl.affine_range(4):
                part = nl.ds(i * 128, 128)
                nl.store(out[:, part], nl.load(a[:, part]))
                return out
        """)
    assert np.array_equal(text.run(A), A)

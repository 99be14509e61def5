"""What Triton kernels with their launches are lifted to."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from accelopt.algorithm.equality import same_function
from accelopt.algorithm.ir import Scan
from accelopt.algorithm.notation import definition_text
from accelopt.algorithm.traced_array import NotTraced
from accelopt.kernels.triton.lift.lifting import Like, lift_launches
from tests.algorithm.evaluation import evaluate

KERNELS = Path(__file__).with_name("kernels.py")
_random = np.random.default_rng(3)


def _f(*shape):
    return _random.standard_normal(shape).astype(np.float32)


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _attention(q, k, v, causal):
    scores = q @ k.swapaxes(1, 2) * q.shape[-1] ** -0.5
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    return [_softmax(scores) @ v]


def _cross_entropy(logits, labels):
    p, rows, kept = _softmax(logits), np.arange(len(logits)), labels != -100
    at = np.where(kept, labels, 0)
    gradient = p - (np.arange(logits.shape[1]) == at[:, None])
    return [np.where(kept, -np.log(p[rows, at]), 0), np.where(kept[:, None], gradient, logits)]


def _recurrence(x, a):
    h = np.zeros_like(x)
    for t in range(len(x)):
        h[t] = (h[t - 1] * a[t] if t else 0) + x[t]
    return [h]


def _convolution(x, w):
    padded = np.pad(x, ((0, 0), (w.shape[1] - 1, 0)))
    return [sum(padded[:, k : k + x.shape[1]] * w[:, k : k + 1] for k in range(w.shape[1]))]


LABELS = np.array([3, 0, -100, 49, 7, 7, 21])
BEGINS = np.array([0, 2, 5, 9])
STARTS = np.array([0, 5, 5, 12])


def _summed(x, starts):
    counts = np.diff(starts)
    return np.repeat([x[a : a + n].sum() for a, n in zip(starts, counts)], counts)


CASES = {
    "softmax": ([_f(6, 50)], lambda x: [_softmax(x)]),
    "running_softmax": ([_f(6, 100)], lambda x: [_softmax(x)]),
    "matmul": ([_f(64, 50), _f(50, 48)], lambda a, b: [a @ b]),
    "matmul with a last group of one tile": ([_f(80, 50), _f(50, 48)], lambda a, b: [a @ b]),
    "persistent_matmul": ([_f(64, 50), _f(50, 48)], lambda a, b: [a @ b]),
    "attention": ([_f(3, 40, 16), _f(3, 40, 16), _f(3, 40, 16), False], _attention),
    "attention causal": ([_f(3, 48, 16), _f(3, 48, 16), _f(3, 48, 16), True], _attention),
    "cross_entropy": ([_f(7, 50), LABELS], _cross_entropy),
    "recurrence": ([_f(12, 20), _f(12, 20)], _recurrence),
    "column_sums": ([_f(18, 20)], lambda x: [x.sum(0)]),
    "segment_sums": ([_f(9, 20), BEGINS], lambda x, b: [np.add.reduceat(x, b[:-1])]),
    "by_sequence": ([_f(12, 20), STARTS], lambda x, s: [x.max(1)]),
    "by_assigned_rows": ([_f(12), STARTS], lambda x, s: [_summed(x, s)]),
    "by_repeated_rows": ([_f(12), STARTS], lambda x, s: [_summed(x, s)]),
    "stack": ([_f(5, 20), _f(5, 20)], lambda a, b: [np.stack([a, b], 1)]),
    "no_zero": (
        [np.where(_f(6, 40) > 2, 0, 1).astype(np.float32)],
        lambda x: [(x.reshape(12, 20) != 0).all(1).astype(np.float32)],
    ),
    "causal_convolution": ([_f(3, 40), _f(3, 4)], _convolution),
}


def _lifted(name):
    return lift_launches(KERNELS, name.split()[0], CASES[name][0]).algorithm


def _evaluated(name, dtype=np.float64):
    arrays = [value for value in CASES[name][0] if isinstance(value, np.ndarray)]
    found = _lifted(name)
    return evaluate(found, dict(zip((a.name for a in found.inputs), arrays, strict=True)), dtype)


@pytest.mark.parametrize("name", CASES)
def test_is_what_the_kernel_computes(name):
    """Evidence: the problems' definitions in NumPy. Rows, tiles and groups do not divide the shapes."""
    wanted = CASES[name][1](*CASES[name][0])
    for one, other in zip(_evaluated(name), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


needs_interpreter = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("triton", "torch"))),
    reason="Triton's interpreter needs the packages triton and torch",
)


def interpreted(folder, sources, function):
    """What Triton's interpreter makes of the arguments in a folder: results, then what was changed."""
    script = (
        "import sys, importlib, pathlib, numpy as np, torch\n"
        "for file in sorted(pathlib.Path(sys.argv[1]).glob('*.npz')):\n"
        "    held = np.load(file)\n"
        "    given = [torch.from_numpy(held[k]) if held[k].ndim else held[k].item() for k in held]\n"
        f"    found = {function}(*given)\n"
        "    found = [] if found is None else [found] if torch.is_tensor(found) else list(found)\n"
        "    changed = [g for k, g in zip(held, given) if torch.is_tensor(g)\n"
        "               and not np.array_equal(held[k], g.numpy())]\n"
        "    np.savez(file.with_suffix('.out.npz'), *[one.numpy() for one in found + changed])\n"
    )
    folders = os.pathsep.join([str(sources), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": folders}
    subprocess.run([sys.executable, "-c", script, str(folder)], env=environment, check=True)


@needs_interpreter
def test_is_what_the_interpreter_computes(tmp_path):
    """Evidence: `TRITON_INTERPRET=1`, Triton's own meaning of its language."""
    for name, (given, _) in CASES.items():
        np.savez(tmp_path / name, *given)
    function = "getattr(importlib.import_module('kernels'), file.stem.split()[0])"
    interpreted(tmp_path, KERNELS.parent, function)
    for name in CASES:
        wanted = np.load(tmp_path / f"{name}.out.npz")
        for one, key in zip(_evaluated(name), wanted, strict=True):
            np.testing.assert_allclose(one, wanted[key], rtol=1e-4, atol=1e-4)


def test_two_ways_of_one_problem_are_one_algorithm():
    """Evidence: softmax at once and online, a product by groups of tiles and by persistent programs."""
    rows = [
        lift_launches(KERNELS, name, [Like((6, 100))]).algorithm
        for name in ("softmax", "running_softmax")
    ]
    assert same_function(*rows)
    assert same_function(_lifted("matmul"), _lifted("persistent_matmul"))


def test_a_state_that_decays_is_a_scan():
    """Evidence: h[t] = a[t] * h[t - 1] + x[t], as the kernel says."""
    assert any(isinstance(one, Scan) for one in _lifted("recurrence").definitions)


def test_a_view_needs_no_memory(tmp_path):
    """Evidence: torch's rule for views: dimensions join where their strides do. The elements are nowhere, so
    making the view must not read them: here a terabyte."""
    file = tmp_path / "kernel.py"
    file.write_text(
        "import torch\ndef run(x):\n    turned = x.view(1 << 20, 1 << 18).T\n"
        "    return turned.view(1 << 9, 1 << 9, -1)[1, 2, 3:4].float()\n"
    )
    (read,) = lift_launches(file, "run", [Like((1 << 38,))]).algorithm.definitions
    assert f"x[{3 * 2**18 + 2**9 + 2}]" in definition_text(read)


HEAD = "import torch, triton\nimport triton.language as tl\n\n@triton.jit\n"
REFUSED = {
    "a random number": ("def k(x, n):\n    tl.store(x, tl.rand(n, 0))", "random numbers", 6),
    "a loop to a number of an input that bounds nothing": (
        "def k(x, n):\n    for i in range(0, tl.load(x).to(tl.int32)):\n        tl.store(x + i, 1.0)",
        "only known at run time", 6,
    ),
    "what another program stored": (
        "def k(x, n):\n    i = tl.program_id(0)\n    tl.store(x + i, 1.0)\n"
        "    tl.store(x + i, tl.load(x + 3 - i))",
        "another program", 8,
    ),
    "two programs at one place": (
        "def k(x, n):\n    tl.store(x, tl.program_id(0) * 1.0)", "write the same elements", 6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_says_why_and_where_it_is_not_lifted(name, tmp_path):
    """Evidence: the kernels' own lines."""
    text, reason, line = REFUSED[name]
    file = tmp_path / "kernel.py"
    file.write_text(f"{HEAD}{text}\n\ndef run(x):\n    k[(4,)](x, 4)\n")
    with pytest.raises(NotTraced) as refusal:
        lift_launches(file, "run", [Like((4,))]).algorithm
    assert reason in str(refusal.value) and f"kernel.py:{line}:" in str(refusal.value)


COUNTED = """
import torch, triton
import triton.language as tl

@triton.jit
def add_up(x, ends, out, STEP: tl.constexpr):
    row = tl.program_id(0)
    end = tl.load(ends + row)
    total = tl.zeros((), tl.float32)
    place = tl.zeros((), tl.int32)
    while place < end:
        at = place + tl.arange(0, STEP)
        total += tl.sum(tl.load(x + row * 20 + at, mask=at < end, other=0.0), 0)
        place += STEP
    tl.store(out + row, total)

def run(x, ends):
    assert x.shape[1] >= ends[-1].item()
    if int(ends[0].item()) > x.shape[1]:
        raise ValueError("too long")
    out = torch.empty((x.shape[0],), dtype=torch.float32, device=x.device)
    add_up[(x.shape[0],)](x, ends, out, STEP=4)
    return out

def where_long(x, ends):
    out = torch.zeros((x.shape[0],), dtype=torch.float32, device=x.device)
    if ends[0].item() > 2:
        add_up[(x.shape[0],)](x, ends, out, STEP=4)
        if ends[0].item() > x.shape[1]:
            raise ValueError("too long")
    return out

def by_length(x, ends):
    if ends[0].item() > 4:
        return x * 2.0
    return x * 3.0
"""


def test_numbers_that_the_host_reads_may_decide_on_errors_alone(tmp_path):
    """Evidence: a sum of as many elements as a length says, whose host function checks lengths."""
    file = tmp_path / "counted.py"
    file.write_text(COUNTED)
    x, ends = np.arange(60, dtype=np.float32).reshape(3, 20), np.array([3, 0, 17], np.int32)
    for name, least in (("run", -1), ("where_long", 2)):
        algorithm = lift_launches(file, name, [x, ends]).algorithm
        for given in (ends, ends[::-1] * 0):
            wanted = [
                x[row, :end].sum() if given[0] > least else 0 for row, end in enumerate(given)
            ]
            (found,) = evaluate(algorithm, {"x": x, "ends": given})
            np.testing.assert_allclose(found, wanted)
    with pytest.raises(NotTraced, match="differs between two branches") as refusal:
        lift_launches(file, "by_length", [x, ends]).algorithm
    assert (
        refusal.value.line == COUNTED[: COUNTED.index("    if ends[0].item() > 4")].count("\n") + 1
    )


HOSTS = {
    "a view": "v = y[1:3]\n    v += x[1:3] * n[2].item()",
    "another name": "z = y\n    z *= n[0].item()",
    "a column in a loop": "for i in range(4):\n        y.T[i] += x[i] * n.tolist()[1]",
    "a part behind a number": "if n[0].item() > 2:\n        y += 1.0\n    else:\n        y[1:].mul_(3.0)",
    "an attribute": "held = Held()\n    held.total = n[1].item()\n    for i in range(4):\n"
                    "        held.total += i\n    y *= held.total",
    "a list of two names": "rows = others = [n[0].item()]\n    others += [y[j] * 2.0 for j in range(4)]\n"
                           "    y[0] = rows[0] + rows[3]",
}  # fmt: skip


class Changed(np.ndarray):
    """NumPy's array with the methods of a tensor that `HOSTS` have."""

    clone = np.ndarray.copy

    def mul_(self, factor):
        self *= factor


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_changes_what_its_names_share(name, tmp_path):
    """Evidence: the same statements with NumPy's arrays, whose views and in-place operators are torch's."""
    text = f"class Held:\n    pass\n\ndef run(x, n):\n    y = x.clone()\n    {HOSTS[name]}\n    return y\n"
    (tmp_path / "host.py").write_text(f"import torch\n\n{text}")
    x, n = np.arange(16, dtype=np.float32).reshape(4, 4), np.array([3, 5, 1, 2], np.int32)
    algorithm = lift_launches(tmp_path / "host.py", "run", [x, n]).algorithm
    names: dict = {}
    exec(text, names)
    for numbers in (n, n[::-1]):
        (found,) = evaluate(algorithm, {"x": x, "n": numbers})
        np.testing.assert_allclose(found, names["run"](x.view(Changed), numbers))

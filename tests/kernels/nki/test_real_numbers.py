"""That a kernel is its reference in real numbers is said of right kernels, and of no wrong one."""

from pathlib import Path

import exhibits
import pytest
from kernel_heads import neuronxcc_of, numpy_reference

from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.real_number_equality import Same, compared, same_in_real_numbers
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.sandbox.workers import Fault

WRONG = [
    name
    for name in exhibits.names()
    if exhibits.header(name)["verdict"] in ("wrong_numbers", "wrong_shape")
]
BY_ROUNDING = {
    *("layernorm_by_squares", "maximum_of_the_hidden", "distance_beyond_half"),
    *("distance_by_rounded_squares", "eight_parts_in_bfloat16"),
}
"""Wrong by what is lost between two large numbers, or below the least, and right in real ones."""
RIGHT = ("honest_adamw", "honest_likelihood", "honest_softmax_online", "honest_layernorm_by_statistics",
         "honest_silu_by_exp", "honest_total")  # fmt: skip

KERNEL = neuronxcc_of("x, w, eps", shape="(128, 512)", dtype="nl.float32")("""
a = nl.load(x)
r = nl.mean(nl.square(a), axis=1, keepdims=True)
g = nl.load(w.reshape((1, 512))).broadcast_to((128, 512))
y = a * nl.rsqrt(r + eps) * g
nl.store(out, y)
""")
REFERENCE = """
import numpy as np

def get_inputs():
    return [np.random.randn(128, 512).astype(np.float32), np.random.randn(512).astype(np.float32), 1e-5]

def forward(x, w, eps):
    return x / np.sqrt((x * x).sum(1, keepdims=True) / 512 + eps) * w
"""
CHANGES = [
    ("nl.mean(nl.square(a)", "nl.mean(nl.abs(a)"),
    ("r + eps", "r + 1e-5"),
    ("r + eps", "r - eps"),
    ("a * nl.rsqrt", "nl.load(x[:, ::-1]) * nl.rsqrt"),
    ("nl.store(out, y)", "nl.store(out[0:64], y[0:64])\n    nl.store(out[64:128], y[0:64])"),
    ("nl.rsqrt(r + eps)", "nl.rsqrt(r * 1.001 + eps)"),
    ("* g\n", "* (g + 1e-6)\n"),
    ("nl.store(out, y)", "nl.store(out[0:127], y[0:127])\n    nl.store(out[127:128], a[127:128])"),
    ("nl.mean(nl.square(a), axis=1", "nl.mean(nl.square(a[:, 0:511]), axis=1"),
]


def judged(folder: Path, kernel: str, reference: str = REFERENCE) -> Same:
    """Whether these two texts are the same."""
    for name, text in (("kernel", kernel), ("reference", reference)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    problem = Reference(folder / "reference.py")
    return same_in_real_numbers(folder / "kernel.py", problem, SimulatedDevice("trn1"))


@pytest.mark.parametrize("name", [*WRONG, *RIGHT])
def test_only_what_is_right_but_for_rounding_is_the_same(name: str) -> None:
    """Evidence: the verdicts of the museum, each of which the referee gives for a named fault."""
    problem = Reference(exhibits.reference_file(name))
    same = same_in_real_numbers(exhibits.kernel_file(name), problem, SimulatedDevice("trn1"))
    assert same.same == (name in RIGHT or name in BY_ROUNDING)


def test_spellings_of_one_function_are_the_same(tmp_path: Path) -> None:
    """Evidence: x / sqrt(v) is x * rsqrt(v), and a mean is a sum times 1/512."""
    assert judged(tmp_path, KERNEL) == Same(same=True)


@pytest.mark.parametrize("change", CHANGES, ids=[after for _, after in CHANGES])
def test_a_changed_kernel_is_not_the_same(change: tuple[str, str], tmp_path: Path) -> None:
    """Evidence: each change gives other real numbers; one writes the argument's usual value in its place."""
    assert change[0] in KERNEL
    found = judged(tmp_path, KERNEL.replace(*change))
    assert not found.same and found.why.startswith(("kernel | reference: ", "with "))


@pytest.mark.parametrize(
    "eps, limit", [(1e-5, "max(eps, 1e-7)"), (3.0, "max(eps, 1.0)"), (0.7, "min(eps, 1.0)")]
)
def test_a_kernel_takes_far_smaller_and_larger_plain_numbers(
    eps: float, limit: str, tmp_path: Path
) -> None:
    """Evidence: a clipped number is another one for some, though not for what `get_inputs` draws."""
    kernel = KERNEL.replace("r + eps", f"r + {limit}")
    assert not judged(tmp_path, kernel, REFERENCE.replace("1e-5", str(eps))).same


def test_a_kernel_may_refuse_far_plain_numbers(tmp_path: Path) -> None:
    """Evidence: what an assert refuses is not computed otherwise."""
    lines = KERNEL.replace("    a = nl", "    assert eps < 1e-4\n    a = nl", 1)
    assert judged(tmp_path, lines) == Same(same=True)


def test_a_comparison_that_takes_long_is_given_up(tmp_path: Path) -> None:
    """Evidence: of a Newton-Schulz step it took minutes, and held back the referee's verdict."""
    (tmp_path / "kernel.py").write_text(KERNEL, encoding="utf-8")
    (tmp_path / "reference.py").write_text(REFERENCE, encoding="utf-8")
    files = (tmp_path / "kernel.py", tmp_path / "reference.py", "trn1", "")
    assert compared(*files) == Same(same=True)
    found = compared(*files, seconds=0.01)
    assert isinstance(found, Fault) and "took longer than" in found.message


def test_rows_that_nothing_writes_are_not_the_same(tmp_path: Path) -> None:
    """Evidence: memory that nothing has written holds anything (NKI's uninitialised memory)."""
    text = KERNEL.replace("nl.store(out, y)", "nl.store(out[0:127], y[0:127])")
    assert not judged(tmp_path, text).same


@pytest.mark.parametrize("left_out", [(), (128, 300)])
def test_tiles_cut_in_two_dimensions_are_the_whole(
    left_out: tuple[int, ...], tmp_path: Path
) -> None:
    """Evidence: the tiles of 200 x 512 begin at rows 0 and 128 and at columns 0, 300 and 400."""
    kernel = neuronxcc_of("x", shape="(200, 512)", dtype="nl.float32")(f"""
for m, rows in ((0, 128), (128, 72)):
    for n, width in ((0, 300), (300, 100), (400, 112)):
        if (m, n) != {left_out}:
            a = nl.load(x[m:m + rows, n:n + width])
            nl.store(out[m:m + rows, n:n + width], nl.exp(a) if n % 200 else nl.tanh(a))
""")
    joined = "np.concatenate([np.tanh(x[:, :300]), np.exp(x[:, 300:400]), np.tanh(x[:, 400:])], 1)"
    reference = numpy_reference(joined, x=(200, 512))
    assert judged(tmp_path, kernel, reference).same == (not left_out)


PADDED = neuronxcc_of("x", shape="(128, 8, 30)", dtype="nl.float32")("""
wide = nl.ndarray((nl.par_dim(128), 8, 32), dtype=nl.float32, buffer=nl.sbuf)
wide[:, :, 0:1] = nisa.memset((128, 8, 1), 0, dtype=nl.float32)
wide[:, :, 31:32] = nisa.memset((128, 8, 1), 0, dtype=nl.float32)
wide[:, :, 1:31] = nl.load(x)
total = nl.zeros((nl.par_dim(128), 8, 30), dtype=nl.float32, buffer=nl.sbuf)
for k in nl.static_range(3):
    total[...] = nl.add(total, wide[:, :, k:k + 30])
nl.store(out, total)
""")
ADDED = """
import numpy as np

def get_inputs():
    return [np.random.randn(128, 8, 30).astype(np.float32)]

def forward(x):
    y = np.array(x)
    y[..., 1:] += x[..., :-1]
    y[..., :-1] += x[..., 1:]
    return y
"""


@pytest.mark.parametrize(
    "change, same",
    [
        (("", ""), True),
        (("31:32] = nisa.memset((128, 8, 1), 0,", "31:32] = nisa.memset((128, 8, 1), 1,"), False),
        (("    wide[:, :, 31:32] = nisa.memset((128, 8, 1), 0, dtype=nl.float32)\n", ""), False),
        (("wide[:, :, k:k + 30]", "wide[:, :, 0:30]"), False),
    ],
    ids=["as it is", "one at the end", "nothing at the end", "one tap"],
)
def test_sums_of_choices_are_compared_by_cells(
    change: tuple[str, str], same: bool, tmp_path: Path
) -> None:
    """Evidence: neighbours are added with a margin of zeros, or to the parts that have them."""
    assert judged(tmp_path, PADDED.replace(*change), ADDED).same == same

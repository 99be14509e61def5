"""`optimize --also`: other shapes are made faster, and each winner is tried at all of them."""

import json

import pytest
from kernel_heads import neuronxcc_kernel

import accelopt
from accelopt.errors import ConfigError

KERNEL = neuronxcc_kernel("""def kernel(x):
    rows, columns = x.shape
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in nl.affine_range(rows // 128):
        tile = nl.load(x[row * 128 : (row + 1) * 128, :])
        sigmoid = nl.reciprocal(nl.add(nl.exp(nl.negative(tile)), 1.0))
        nl.store(result[row * 128 : (row + 1) * 128, :], nl.multiply(tile, sigmoid))
    return result
""")
REFERENCE = """import numpy as np

M, N = 256, 512


def get_inputs():
    return [np.random.normal(size=(M, N)).astype(np.float32)]


def forward(x):
    return x / (1 + np.exp(-x))
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "reference.py").write_text(REFERENCE)
    return tmp_path


@pytest.mark.slow  # the documents run this command
def test_other_sizes_have_winners_of_their_own_and_every_winner_is_tried_there(files):
    found = accelopt.optimize(
        files / "kernel.py", files / "reference.py",
        also=["N=1024"], out=files / "run", iterations=1, plans=2, samples=1,
    )  # fmt: skip
    assert found.speedup and found.speedup > 1 and found.changes
    assert (files / "run" / "kernel" / "best.py").read_text() == found.source
    with pytest.raises(ConfigError, match="holds an earlier run"):
        accelopt.optimize(files / "kernel.py", files / "reference.py", out=files / "run")
    [there] = found.elsewhere
    assert there.case.case_name == "kernel_N1024"
    assert "M, N = 256, 1024" in (files / "run" / "references" / "reference_N1024.py").read_text()
    assert "(256, 1024)" in (files / "run" / "kernel_N1024" / "best.py").read_text()
    one, text = found.one_kernel, (files / "run" / "best.py").read_text()
    assert "if tuple(x.shape) == (256, 512):\n        return kernel_kernel(x)" in text
    assert one.latencies["kernel"] == pytest.approx(found.best.latency, rel=1e-3)
    assert set(one.latencies) == {"kernel", "kernel_N1024"} and one.source == text
    story = json.loads((files / "run" / "story.json").read_text())
    assert [problem["name"] for problem in story["problems"]] == ["kernel", "kernel_N1024"]
    assert all("kernel" in problem["elsewhere"][0] for problem in story["problems"])


@pytest.mark.slow
def test_one_text_that_is_as_fast_at_all_shapes_serves_all(files):
    """The author's kernel takes any multiple of 128 rows; no round looks for others."""
    given = {"also": ["M=512"], "out": files / "run", "iterations": 0}
    found = accelopt.optimize(files / "kernel.py", files / "reference.py", **given)
    assert found.one_kernel.source == KERNEL == (files / "run" / "best.py").read_text()
    assert found.one_kernel.how == "one text for all" and len(found.one_kernel.latencies) == 2


@pytest.mark.parametrize(
    ("also", "sentence"),
    [
        (["K=4"], "has no whole number K"),
        (["N=1024", "N=1024"], "--also says N1024 twice"),
        (["nowhere.py"], "neither a file nor sizes"),
    ],
)
def test_what_also_cannot_say(files, also, sentence):
    with pytest.raises(ConfigError, match=sentence):
        accelopt.optimize(files / "kernel.py", files / "reference.py", also=also)

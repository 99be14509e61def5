"""One small NKI problem, and the scripts run on it as a user would."""

import json
from pathlib import Path

from command_line import Begun

ROOT = Path(__file__).resolve().parents[1]

REFERENCE = '''"""x / (1 + exp(-x)), small."""
import numpy as np

def get_inputs():
    return [np.random.normal(size=(256, 1024)).astype(np.float32)]

def forward(x):
    return x / (1 + np.exp(-x))

def transform_to_nki_inputs(inputs):
    return [inputs[0].reshape(128, 2, 1024)]

def transform_nki_outputs(k_res, ref):
    return [k_res.reshape(ref.shape)]
'''

KERNEL = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in nl.affine_range(2):
        for j in nl.affine_range(8):
            x_tile = nl.load(x[0:128, row, j * 128 : (j + 1) * 128])
            exponential = nl.exp(nl.negative(x_tile))
            sigmoid = nl.reciprocal(nl.add(exponential, 1.0))
            y_tile = nl.multiply(x_tile, sigmoid)
            nl.store(result[0:128, row, j * 128 : (j + 1) * 128], value=y_tile)
    return result
"""


def benchmark(folder):
    """A benchmark folder with one small problem."""
    (folder / "reference").mkdir(parents=True)
    (folder / "kernels").mkdir()
    (folder / "reference" / "silu.py").write_text(REFERENCE)
    (folder / "kernels" / "silu.py").write_text(KERNEL)
    case = {
        "values": {"N": 1024, "M": 256},
        "impls": [{"task": "reference/silu.py", "kernel": "kernels/silu.py"}],
    }
    summary = {"silu": {"seed": "seeds/silu.yaml", "cases": {"7": case}}}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def run(name, *arguments, ok=True):
    """Run a script from the repository's root: what it said; an error when it fails."""
    path = ROOT / name if name.endswith(".py") else ROOT / "scripts" / f"{name}.py"
    done = Begun(path, *arguments, folder=ROOT)
    _, said = done.communicate(timeout=300)
    assert (done.returncode == 0) == ok, said[-3000:]
    assert "Traceback" not in said, said[-3000:]
    return said

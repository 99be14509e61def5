"""The referee tries plain arguments of its own: signs and flags that `get_inputs` never draws."""

from pathlib import Path

import pytest
from kernel_heads import neuronxcc_of
from warm import verdict

from accelopt.evaluation import Status

REFERENCE = """
import numpy as np
def get_inputs():
    return [np.random.normal(size=(128, 256)).astype(np.float32), 0.7, {flag}]
def forward(x, temperature, shifted):
    y = x / np.float32(temperature) + (1 if shifted else 0)
    return y - y.max(axis=1, keepdims=True) + np.float32(shifted)
"""
KERNEL = neuronxcc_of("x, temperature, shifted")("""
{check}
tile = nl.load(x)
peak = {peak}
nl.store(out, tile / temperature - peak + {shift})
""")
SAFE = "nl.max(tile / temperature, axis=1, keepdims=True)"
SIGNED = "nl.max(tile, axis=1, keepdims=True) / temperature"


@pytest.mark.parametrize(
    ("check", "peak", "shift", "said"),
    [
        ("pass", SAFE, "float(shifted)", ""),
        ("pass", SIGNED, "float(shifted)", "is wrong for -0.7, False"),
        ("assert temperature > 0", SIGNED, "float(shifted)", "refuses -0.7, False"),
        ("pass", SAFE, "0.0", "is wrong for 0.7, True"),
        ("assert shifted is False", SAFE, "0.0", "refuses 0.7, True"),
    ],
)
def test_what_a_kernel_does_not_hold_for_is_noted(
    tmp_path: Path, check: str, peak: str, shift: str, said: str
) -> None:
    """A maximum of x / t is no maximum of x for a negative t, and nobody drew one."""
    kernel = KERNEL.format(check=check, peak=peak, shift=shift)
    evaluation = verdict(tmp_path, kernel, REFERENCE.format(flag=False))
    assert evaluation.status is Status.CORRECT, evaluation.message
    plain = [note for note in evaluation.notes if "plain" in note]
    assert bool(plain) == bool(said)
    assert said in " ".join(plain)

"""Runs sources like `BY_SEQUENCE` through the Triton interpreter and prints how far each is from the
first, the largest relative L2 error over its outputs and several lengths of sequences.

    TRITON_INTERPRET=1 python alike.py < SOURCES

A source is one JSON line.
"""

import importlib.util
import json
import random
import sys
import tempfile
from pathlib import Path

import torch

LENGTHS = (
    ((5,), (40,)),
    ((2, 19, 3), (17, 31, 50)),
    ((1, 0, 4, 2, 0), (1, 5, 4, 33, 0)),
    ((5, 2, 3), (3, 2, 1)),
    tuple(zip(*((random.Random(n).randint(0, 1), n % 5 + 1) for n in range(129)))),
)
"""Queries and keys of each sequence: one, ragged ends, empty ones, queries before any key, many."""


def made(folder: str, number: int, text: str):
    """A source's `run`."""
    file = Path(folder) / f"source_{number}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run


def inputs(queries: tuple[int, ...], keys: tuple[int, ...]) -> tuple[object, ...]:
    """q, k, pages, both tables of offsets, the scale."""
    torch.manual_seed(sum(keys))
    ends = [torch.tensor((0, *lengths)).cumsum(0).int() for lengths in (queries, keys)]
    q, k = torch.randn(sum(queries), 2, 32).half(), torch.randn(sum(keys) + 7, 32).half()
    return q, k, torch.randperm(sum(keys) + 7)[: sum(keys)].int(), *ends, 0.21


def distance(outputs: list[torch.Tensor], wanted: list[torch.Tensor]) -> float:
    """Largest relative L2 error; what is not finite must be so in both."""
    found = 0.0
    for one, other in zip(outputs, wanted):
        finite = torch.isfinite(other)
        if not torch.equal(torch.isfinite(one), finite):
            return float("inf")
        own, its = one[finite].float(), other[finite].float()
        found = max(found, float((own - its).norm() / its.norm()))
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        runs = [made(folder, n, json.loads(line)) for n, line in enumerate(sys.stdin)]
        cases = [inputs(*lengths) for lengths in LENGTHS]
        first = [runs[0](*case) for case in cases]
        for run in runs[1:]:
            print(max(distance(run(*c), w) for c, w in zip(cases, first)), flush=True)

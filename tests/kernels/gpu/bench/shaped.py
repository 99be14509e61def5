"""Runs sources through the Triton interpreter and prints how far each is from the one that began its
group, a group being those on the same shapes.

    TRITON_INTERPRET=1 python shaped.py < SOURCES

A source is one JSON line with `source` and the `shapes` of its float16 arguments.
"""

import json
import sys
import tempfile

import torch
from alike import distance, made


def drawn(shapes: list[list[int]]) -> list[torch.Tensor]:
    """Arguments of those shapes, the same for the same shapes."""
    generator = torch.Generator().manual_seed(sum(map(sum, shapes)))
    return [torch.randn(shape, generator=generator).half() for shape in shapes]


if __name__ == "__main__":
    first: dict[str, torch.Tensor] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, line in enumerate(sys.stdin):
            case = json.loads(line)
            output = made(folder, number, case["source"])(*drawn(case["shapes"]))
            wanted = first.setdefault(str(case["shapes"]), output)
            print(distance([output], [wanted]), flush=True)

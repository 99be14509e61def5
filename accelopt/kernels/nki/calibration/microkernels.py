"""Small kernels that differ in one mechanism each, as NKI source.

What a repetition costs is told by two lengths of the same kernel, and what an element costs by two
widths; so every microkernel comes in several of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

HEADER = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel({parameters}):
    out = nl.ndarray({shape}, dtype={dtype}, buffer=nl.shared_hbm)
"""
ROWS = """    for i in nl.affine_range({count}):
        span = nl.ds(i * {width}, {width})
        nl.store(out[0:128, span], nl.load(x[0:128, span]))
    return out
"""
CHAIN = """    tile = nl.load(x)
    for i in nl.static_range({count}):
        tile = {step}
    nl.store(out, tile)
    return out
"""
PRODUCTS = """    left, right = nl.load(x), nl.load(y)
    sums = nl.zeros((128, {width}), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range({count}):
        sums += nisa.nc_matmul(left, right)
    nl.store(out, nl.copy(sums))
    return out
"""
STEPS = {
    "activation": "nisa.activation(nl.exp, tile, scale=float(i + 1))",
    "two_inputs": "nisa.tensor_tensor(tile, other, nl.add)",
    "one_input": "nisa.tensor_scalar(tile, nl.maximum, float(i), engine=nisa.vector_engine)",
    "reciprocal": "nisa.reciprocal(tile)",
    "scan": "nisa.tensor_tensor_scan(tile, other, 0, nl.multiply, nl.add)",
}


class Microkernel(NamedTuple):
    """One source, what it is called, and the shape and format of each of its tensors."""

    name: str
    source: str
    arguments: tuple[tuple[tuple[int, ...], str], ...]


def microkernels() -> Iterator[Microkernel]:
    """All of them: DMA by length of row, each engine by width and count, products by format."""
    for width in (128, 512, 1024, 2048, 4096):
        for count in (8, 64):
            head = HEADER.format(
                parameters="x", shape=f"(128, {width * count})", dtype="nl.float32"
            )
            body = ROWS.format(count=count, width=width)
            arguments = (((128, width * count), "float32"),)
            yield Microkernel(f"rows of {4 * width} B x{count}", head + body, arguments)
    for name, step in STEPS.items():
        for width in (64, 512, 2048):
            for count in (16, 48):
                yield _chain(name, step, width, count)
    for dtype in ("float32", "bfloat16"):
        for width in (128, 512):
            for count in (64, 512):
                head = HEADER.format(parameters="x, y", shape=f"(128, {width})", dtype="nl.float32")
                tensors = (((128, 128), dtype), ((128, width), dtype))
                body = PRODUCTS.format(count=count, width=width)
                yield Microkernel(f"products {dtype} {width} x{count}", head + body, tensors)


def _chain(name: str, step: str, width: int, count: int) -> Microkernel:
    two = "other" in step
    head = HEADER.format(
        parameters="x, y" if two else "x", shape=f"(128, {width})", dtype="nl.float32"
    )
    other = "    other = nl.load(y)\n" if two else ""
    body = CHAIN.format(count=count, step=step)
    tensor = ((128, width), "float32")
    arguments = (tensor, tensor) if two else (tensor,)
    return Microkernel(f"{name} {width} x{count}", head + other + body, arguments)

"""Small kernels that differ in one mechanism each, as NKI source.

What a repetition costs is told by two lengths of the same kernel, what an element costs by two widths,
and what is hidden while others work by one chain of instructions, each waiting for the one before,
against eight of them in turn.
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
WHOLE = """    for i in nl.affine_range({count}):
        nl.store(out[i], nl.load(x[i]))
    return out
"""
APART = """    for i in nl.affine_range({count}):
        nl.store(out[i], nl.load(x[i, 0:128, 0:{wide}:2]))
    return out
"""
FAR_APART = """    for i in nl.affine_range({count}):
        span = nl.ds(i * {width}, {width})
        nl.store(out[i], nl.load(x[0:128, span]))
    return out
"""
BACK_AND_FORTH = """    nl.store(out, nl.load(x))
    for i in nl.sequential_range({count}):
        nl.store(out, nl.load(out))
    return out
"""
BY_SOFTWARE = """    for i in nl.affine_range({count}):
        tile = nl.ndarray((128, {width}), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[i], dge_mode=nisa.dge_mode.swdge)
        nisa.dma_copy(dst=out[i], src=tile, dge_mode=nisa.dge_mode.swdge)
    return out
"""
READ_PLACES = """    tile = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.sbuf)
    tile[0:128, 0:16] = nl.load(x)
    p, f = nl.arange(128)[:, None], nl.arange(16)[None, :]
    places = nisa.iota(0 * nl.arange(1)[None, :] + 0 * p, dtype=nl.int32)
    for i in nl.sequential_range({count}):
        tile[0:128, 0:16] = nisa.tensor_copy_dynamic_src(
            tile[p, places[0:1, 0:1] + f], engine=nisa.{engine}_engine
        )
    nl.store(out, tile)
    return out
"""
CHAINS = """    tiles = nl.ndarray((128, {whole}), dtype={dtype}, buffer=nl.sbuf)
    tiles[0:128, 0:{whole}] = nl.load(x)
    for i in nl.sequential_range({rounds}):
        for k in nl.static_range({chains}):
            span = nl.ds(k * {width}, {width})
            tile = tiles[0:128, span]
            tiles[0:128, span] = {step}
    nl.store(out, tiles)
    return out
"""
OTHER = {
    "other": "    other = nl.load(y)\n",
    "held": "    held = nl.ndarray((128, {width}), dtype=nl.float32, buffer=nl.psum)\n"
    "    held[0:128, 0:{width}] = nl.copy(nl.load(y))\n",
    "sums": "    sums = nl.ndarray((128, {count}), dtype=nl.float32, buffer=nl.sbuf)\n",
}
PRODUCTS = """    left, right = nl.load(x), nl.load(y)
    sums = nl.zeros(({columns}, {width}), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range({count}):
        sums += nisa.nc_matmul(left, right)
    nl.store(out, nl.copy(sums))
    return out
"""
BURSTS = """    left, right = nl.load(x), nl.load(y)
    sums = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range({count}):
        for j in nl.affine_range(64):
            sums += nisa.nc_matmul(left, right)
        for j in nl.affine_range(128):
            sums += nisa.nc_matmul(left[0:48, 0:128], right[0:48, 0:512])
    nl.store(out, nl.copy(sums))
    return out
"""
TRANSPOSES = """    tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    tile[0:128, 0:128] = nl.load(x)
    for i in nl.sequential_range({count}):
        across = nisa.nc_transpose(tile, engine=nisa.tensor_engine)
        tile[0:128, 0:128] = nisa.tensor_copy(across)
    nl.store(out, tile)
    return out
"""
STEPS = {
    "activation": "nisa.activation(nl.exp, tile, scale=0.5)",
    "activation with sums": "nisa.activation_reduce(nl.exp, tile, reduce_op=nl.add, "
    "reduce_res=sums[0:128, nl.ds(i * {chains} + k, 1)], scale=0.5)",
    "two inputs": "nisa.tensor_tensor(tile, other, nl.add, engine=nisa.vector_engine)",
    "one input": "nisa.tensor_scalar(tile, nl.maximum, 0.5, engine=nisa.vector_engine)",
    "one input with sums": "nisa.tensor_scalar_reduce(data=tile, op0=nl.add, operand0=0.5, "
    "reduce_op=nl.add, reduce_res=sums[0:128, nl.ds(i * {chains} + k, 1)])",
    "input in PSUM": "nisa.tensor_tensor(tile, held, nl.add, engine=nisa.vector_engine)",
    "reciprocal": "nisa.reciprocal(tile)",
    "scan": "nisa.tensor_tensor_scan(tile, other, 0, nl.multiply, nl.add)",
    "gpsimd": "nisa.affine_select(nl.arange({width})[None, :] <= nl.arange(128)[:, None], tile, 0.5)",
}
"""Instructions of Scalar, Vector and GpSimd engine, each on a tile that the one before it made."""

SIZES = ((16, 8, 384), (16, 1, 96), (512, 8, 96), (1024, 1, 32))
"""Width, chains and count: what an instruction costs, what waiting for it adds, what elements cost."""
ABOVE_THE_FLOOR = (128, 8, 384)
"""Wide enough to take longer than any instruction of the Scalar engine, and no wider."""
SHAPES = (
    (128, 512, 64), (128, 512, 384), (128, 128, 384), (32, 128, 384), (128, 8, 384), (32, 8, 768)
)  # fmt: skip
PRODUCTS_BY_FORMAT = {"float32": (*SHAPES, (128, 80, 768)), "bfloat16": (*SHAPES, (128, 256, 768))}
"""Columns, width and count; besides the shapes of both, the narrowest that no floor hides."""


class Microkernel(NamedTuple):
    """One source, what it is called, and the shape and format of each of its tensors."""

    name: str
    source: str
    arguments: tuple[tuple[tuple[int, ...], str], ...]


def microkernels() -> Iterator[Microkernel]:
    """All of them: DMA by rows, stride, alignment and entries of its lists, engines by width, wait and
    count, products by format and shape and in bursts, transposes."""
    yield from _transfers()
    for name, step in STEPS.items():
        for width, chains, count in SIZES:
            if name != "input in PSUM" or width <= 512:  # a bank's
                yield _chains(name, step, width, chains, count, "float32")
    for name in ("two inputs", "one input", "activation"):
        yield _chains(name, STEPS[name], 1024, 1, 48, "bfloat16")
    for name in ("activation", "activation with sums"):
        yield _chains(name, STEPS[name], *ABOVE_THE_FLOOR, "float32")
    for dtype, widths in PRODUCTS_BY_FORMAT.items():
        for columns, width, count in widths:
            yield _products(dtype, columns, width, count)
    head = HEADER.format(parameters="x, y", shape="(128, 512)", dtype="nl.float32")
    for count in (4, 16):
        yield Microkernel(f"64 whole products and 128 of 48 rows x{count}",
                          head + BURSTS.format(count=count),
                          (((128, 128), "bfloat16"), ((128, 512), "bfloat16")))  # fmt: skip
    for engine in ("vector", "scalar", "gpsimd"):  # longer than their latency: a wait shows alone
        head = HEADER.format(parameters="x", shape="(128, 16)", dtype="nl.float32")
        body = READ_PLACES.format(count=384, engine=engine)
        yield Microkernel(f"places read by {engine} x384", head + body, (((128, 16), "float32"),))
    for count in (16, 64):
        head = HEADER.format(parameters="x", shape="(128, 128)", dtype="nl.float32")
        yield Microkernel(f"transposes x{count}", head + TRANSPOSES.format(count=count),
                          (((128, 128), "float32"),))  # fmt: skip


def _transfers() -> Iterator[Microkernel]:
    for width in (64, 128, 256, 512, 1024, 4096):
        for count in (8, 64):
            whole = (128, width * count)
            yield _transfer(f"rows of {4 * width} B", ROWS, whole, whole, width, count)
    for width in (16, 20, 36, 128, 1024):
        shape = (96, 128, width)
        yield _transfer(f"tiles of {4 * width} B a row", WHOLE, shape, shape, width, 96)
    for width in (16, 64):
        given, made = (24, 128, 2 * width), (24, 128, width)
        yield _transfer(f"{width} elements apart", APART, given, made, width, 24)
    for width, count in ((16, 96), (128, 32), (1024, 32)):
        made = (count, 128, width)
        yield _transfer(
            f"rows 1 MiB apart of {4 * width} B", FAR_APART, (128, 1 << 18), made, width, count
        )
    for count in (24, 96):
        shape = (count, 128, 64)
        yield _transfer("descriptors by software", BY_SOFTWARE, shape, shape, 64, count)
    for count in (8, 32):
        yield _transfer("back and forth", BACK_AND_FORTH, (128, 16), (128, 16), 16, count)


def _transfer(
    name: str, body: str, given: tuple[int, ...], made: tuple[int, ...], width: int, count: int
) -> Microkernel:
    head = HEADER.format(parameters="x", shape=made, dtype="nl.float32")
    source = head + body.format(count=count, width=width, wide=2 * width)
    return Microkernel(f"{name} x{count}", source, ((given, "float32"),))


def _chains(name: str, step: str, width: int, chains: int, count: int, dtype: str) -> Microkernel:
    other = "".join(text for word, text in OTHER.items() if word in step)
    shape, second = (128, chains * width), (128, width)
    head = HEADER.format(
        parameters="x, y" if "(y)" in other else "x", shape=shape, dtype=f"nl.{dtype}"
    )
    body = CHAINS.format(
        rounds=count // chains,
        chains=chains,
        width=width,
        whole=chains * width,
        step=step.format(chains=chains, width=width),
        dtype=f"nl.{dtype}",
    )
    if "sums" in step:
        body = body.replace("    return out", "    nl.store(total, sums)\n    return out, total")
        other += f"    total = nl.ndarray((128, {count}), dtype=nl.float32, buffer=nl.shared_hbm)\n"
    arguments = ((shape, dtype), (second, dtype)) if "(y)" in other else ((shape, dtype),)
    source = head + other.format(width=width, count=count) + body
    return Microkernel(f"{name} {dtype} {width} in {chains} x{count}", source, arguments)


def _products(dtype: str, columns: int, width: int, count: int) -> Microkernel:
    head = HEADER.format(parameters="x, y", shape=(columns, width), dtype="nl.float32")
    body = PRODUCTS.format(count=count, width=width, columns=columns)
    arguments = (((128, columns), dtype), ((128, width), dtype))
    return Microkernel(f"products {dtype} {columns} by {width} x{count}", head + body, arguments)

"""Kernels that Python unrolls, no two rounds alike: no loop stands for their instructions."""

from __future__ import annotations

from typing import Any

from accelopt.sim.dialects.neuronxcc import isa as nisa
from accelopt.sim.dialects.neuronxcc import language as nl

TILE = 128


def elementwise(x: Any, rounds: int) -> Any:
    """Ten instructions a round on a tile of its own: a load, eight on three engines, a store."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = x.shape[1] // TILE
    for i in nl.static_range(rounds):
        read, written = (i * 7919 + i * i % 31) % tiles * TILE, i % tiles * TILE
        tile = nl.load(x[0:128, read : read + TILE])
        raised = nisa.activation(nl.exp, tile, scale=1.0 + i % 5)
        turned = nl.copy(nisa.nc_transpose(raised))
        added = nisa.tensor_tensor(turned, tile, nl.add)
        halved = nisa.tensor_scalar(added, nl.multiply, 0.5)
        inverse = nisa.reciprocal(halved)
        mixed = nisa.tensor_tensor(inverse, raised, nl.multiply)
        nl.store(out[0:128, written : written + TILE], nl.exp(mixed))
    return out


def products(left: Any, right: Any, rounds: int) -> Any:
    """Ten instructions a round: four loads, three products into one bank, two to evict, a store."""
    out = nl.ndarray((128, right.shape[1]), dtype=left.dtype, buffer=nl.shared_hbm)
    rows, columns = left.shape[1] // 128, right.shape[1] // 512
    for i in nl.static_range(rounds):
        total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
        read, written = i * 5 % columns * 512, i * 3 % columns * 512
        moving = nl.load(right[0:128, read : read + 512])
        for k in nl.static_range(3):
            at = (i * 37 + k * 11) % rows * 128
            total[...] += nisa.nc_matmul(nl.load(left[0:128, at : at + 128]), moving)
        scaled = nisa.activation(nl.gelu, nl.copy(total), scale=0.5 + i % 3)
        nl.store(out[0:128, written : written + 512], scaled)
    return out


def transfers(x: Any, rounds: int) -> Any:
    """Ten instructions a round: five loads into pieces of one tile, four stores of other pieces."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    width = x.shape[1]
    for i in nl.static_range(rounds):
        tile = nl.ndarray((128, 320), dtype=x.dtype, buffer=nl.sbuf)
        for k in nl.static_range(5):
            read = (i * 331 + k * 97) % (width - 64)
            tile[0:128, k * 64 : k * 64 + 64] = nl.load(x[0:128, read : read + 64])
        raised = nisa.tensor_scalar(tile, nl.add, 1.0)
        for k in nl.static_range(4):
            written = (i * 173 + k * 41) % (width - 80)
            nl.store(out[0:128, written : written + 80], raised[0:128, k * 80 : k * 80 + 80])
    return out


def long_lived(x: Any, rounds: int, kept: int) -> Any:
    """Nine instructions a round, on tiles of up to `kept` rounds before: more than SBUF holds are
    spilled."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = x.shape[1] // 256
    raised: list[Any] = []
    for i in nl.static_range(rounds):
        at, oldest = i * 13 % tiles * 256, i - kept if i > kept else 0
        tile = nl.load(x[0:128, at : at + 256])
        raised.append(nisa.activation(nl.exp, tile, scale=1.0 + i % 7))
        older = raised[oldest + i * 7 % (i + 1 - oldest)]
        first = nisa.tensor_tensor(raised[i], raised[oldest], nl.add)
        second = nisa.tensor_tensor(first, older, nl.multiply)
        third = nisa.tensor_scalar(second, nl.multiply, 0.25)
        fourth = nisa.tensor_tensor(third, tile, nl.subtract)
        nl.store(out[0:128, at : at + 256], nisa.reciprocal(nisa.activation(nl.tanh, fourth)))
    return out


def many_shapes(x: Any, rounds: int) -> Any:
    """Nine instructions a round on tiles of nearly two thousand shapes, cut into uneven pieces."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(rounds):
        rows, width = 32 * (1 + i % 4), 16 + i * 29 % 480
        half, at = width // 2, i * 331 % (x.shape[1] - 512)
        kind = nl.bfloat16 if i % 3 else nl.float32
        joined = nl.ndarray((rows, width + 16), dtype=kind, buffer=nl.sbuf)
        tile = nl.load(x[0:rows, at : at + width])
        joined[0:rows, 0:width] = nisa.activation(nl.exp, tile)
        joined[0:rows, width : width + 16] = nisa.tensor_scalar(tile[0:rows, 0:16], nl.add, 2.0)
        total = nisa.tensor_reduce(nl.add, joined, axis=1)
        both = nisa.tensor_tensor(nisa.tensor_scalar(tile, nl.multiply, total), tile, nl.add)
        swapped = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.sbuf)
        swapped[0:rows, 0:half] = nl.copy(both[0:rows, width - half : width])
        swapped[0:rows, half:width] = nl.copy(both[0:rows, 0 : width - half])
        nl.store(out[0:rows, at : at + width], swapped)
    return out


KERNELS: dict[str, tuple[Any, list[tuple[int, int]], int, list[int]]] = {
    "elementwise": (elementwise, [(128, 1 << 27)], 10, []),
    "products": (products, [(128, 8192), (128, 32768)], 10, []),
    "transfers": (transfers, [(128, 65536)], 10, []),
    "long-lived tiles": (long_lived, [(128, 131072)], 9, [40]),
    "spilled tiles": (long_lived, [(128, 131072)], 9, [250]),
    "many shapes": (many_shapes, [(128, 65536)], 9, []),
}
"""Each kernel with the shapes it takes, its instructions a round, and its further arguments."""

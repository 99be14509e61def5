"""Kernels of the `nki` dialect that one core runs whole and two cores share, and the means to time them."""

import textwrap
from dataclasses import replace

import ml_dtypes
import numpy as np
from kernel_heads import nki_kernel

from accelopt.hardware import TRN2
from accelopt.sim import rules, serial
from accelopt.sim.dialects.dialect import trace_kernel
from accelopt.sim.kernel_loading import load
from accelopt.sim.timing import KernelProfile, profile
from accelopt.sim.timing.compiler.cores import by_core
from accelopt.sim.trace import AbstractTensor

HEAD = nki_kernel("""def kernel({arguments}):
    me, cores = nl.program_id(0), nl.num_programs()
""")

DOCUMENTED = replace(TRN2, dma_bytes_per_ns=27.2, hbm_bytes_per_ns=716.0)
"""trn2 with the rates of DMA engines (nki-dma-overview) and of a stack of HBM (a profile's metadata)."""

PRODUCT = """
    K, M = left.shape
    _, N = right.shape
    rows, columns, depth = SPLIT
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((128, K // 128, M), dtype=left.dtype, buffer=nl.sbuf)
    b = nl.ndarray((128, K // 128, N), dtype=right.dtype, buffer=nl.sbuf)
    mine = nl.ds(rows[0] * 128, len(rows) * 128)
    for k in depth:
        nisa.dma_copy(dst=b[:, k, :], src=right[k * 128 : k * 128 + 128, :])
        nisa.dma_copy(dst=a[:, k, mine], src=left[k * 128 : k * 128 + 128, mine])
    for m in rows:
        tile = nl.ndarray((128, N), dtype=nl.float32, buffer=nl.sbuf)
        for n in columns:
            total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in depth:
                nisa.nc_matmul(dst=total, stationary=a[:, k, m * 128 : m * 128 + 128],
                               moving=b[:, k, n * 512 : n * 512 + 512])
            nisa.tensor_copy(dst=tile[:, n * 512 : n * 512 + 512], src=total)
        STORE
    return out
"""
HALF = "range(me * ({0}) // cores, (me + 1) * ({0}) // cores)"
ALL = "range({0})"
WHOLE_ROWS = "nisa.dma_copy(dst=out[m * 128 : m * 128 + 128, :], src=tile)"
HALF_ROWS = """half = nl.ds(me * N // cores, N // cores)
        nisa.dma_copy(dst=out[m * 128 : m * 128 + 128, half], src=tile[:, half])"""
ADD_PARTS = """half, rest = nl.ds(me * N // cores, N // cores), nl.ds((1 - me) * N // 2, N // 2)
        if cores == 2:
            other = nl.ndarray((128, N // 2), dtype=nl.float32, buffer=nl.sbuf)
            nisa.sendrecv(src=tile[:, rest], dst=other, send_to_rank=1 - me, recv_from_rank=1 - me,
                          pipe_id=0)
            nisa.tensor_tensor(dst=tile[:, half], data1=tile[:, half], data2=other, op=nl.add)
        nisa.dma_copy(dst=out[m * 128 : m * 128 + 128, half], src=tile[:, half])"""


def _product(rows, columns, depth, store):
    loops = (rows.format("M // 128"), columns.format("N // 512"), depth.format("K // 128"))
    return PRODUCT.replace("SPLIT", ", ".join(loops)).replace("STORE", store)


ROWS = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = x.shape[0] // 128
    for r in {rows}:
        t = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[r * 128 : r * 128 + 128, :])
        for _ in range({times}):
            nisa.activation(dst=t, op=nl.tanh, data=t)
        nisa.dma_copy(dst=out[r * 128 : r * 128 + 128, :], src=t)
    return out
"""

SWAP_HALVES = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    part = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    half = x.shape[1] // cores
    mine, other = nl.ds(me * half, half), nl.ds((cores - 1 - me) * half, half)
    for r in range(x.shape[0] // 128):
        rows = nl.ds(r * 128, 128)
        t = nl.ndarray((128, half), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[rows, mine])
        nisa.activation(dst=t, op=nl.tanh, data=t)
        nisa.dma_copy(dst=part[rows, mine], src=t)
        if cores == 2:
            nisa.core_barrier(part, (0, 1))
        u = nl.ndarray((128, half), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=u, src=part[rows, other])
        nisa.dma_copy(dst=out[rows, other], src=u)
    return out
"""

BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
MATRICES = {"left": ((2048, 1024), BF16), "right": ((2048, 1024), BF16)}
ARRAY = {"x": ((1024, 2048), F32)}


def of_rows(rows=HALF.format("tiles"), times=8):
    """The text of a kernel that works `times` on each of some rows of x."""
    return ROWS.format(rows=rows, times=times)


UNBALANCED = "range(0 if me == 0 else 3 * tiles // 4, tiles if me == cores - 1 else 3 * tiles // 4)"
SHARED = {
    "a product by rows": (_product(HALF, ALL, ALL, WHOLE_ROWS), MATRICES),
    "a product by columns": (_product(ALL, HALF, ALL, HALF_ROWS), MATRICES),
    "a product by depth": (_product(ALL, ALL, HALF, ADD_PARTS), MATRICES),
    "rows": (of_rows(), ARRAY),
    "unequal numbers of rows": (of_rows(UNBALANCED), ARRAY),
    "a barrier in a loop": (SWAP_HALVES, ARRAY),
}


def traced(body, arguments, cores=1, target="trn2"):
    """The verified Program of a kernel's body for arguments by name."""
    text = HEAD.format(arguments=", ".join(arguments)) + textwrap.dedent(body).replace(
        "\n", "\n    "
    )
    kernel = load(text, "two_cores.py").kernel
    specs = [AbstractTensor(shape, dtype) for shape, dtype in arguments.values()]
    program = serial.transferred(trace_kernel(kernel[cores], specs, target=target))
    rules.check(program)
    return program


def timed(body, arguments, cores=1, spec=TRN2) -> KernelProfile:
    """Its profile."""
    return profile(traced(body, arguments, cores, spec.name), spec)


def net_us(found: KernelProfile) -> float:
    """The latency without launching."""
    return found.latency_ms * 1e3 - found.run.spec.launch_ns * 1e-3


def alone_us(found: KernelProfile) -> list[float]:
    """The same of each core's instructions if it ran them by itself."""
    spec = found.run.spec
    return [net_us(profile(part, spec)) for part, _ in by_core(found.run.program, spec)]

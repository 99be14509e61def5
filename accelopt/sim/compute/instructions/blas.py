"""sgemm of the OpenBLAS that NumPy's wheels carry, called in place.

`np.matmul` cannot add to its output, holds the interpreter lock for small tiles, and offers no way
to run one thread a call. Where the library is not found (NumPy built against another BLAS), callers
fall back to `np.matmul`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112  # cblas.h

Sgemm = Callable[..., object]


class Blas(NamedTuple):
    """cblas_sgemm(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc), pointers
    as integers, and the functions that read and set its number of threads."""

    sgemm: Sgemm
    get_threads: Callable[[], int]
    set_threads: Callable[[int], object]


@cache
def load() -> Blas | None:
    """The library that NumPy has already loaded, or None."""
    folder = Path(np.__file__).parent
    patterns = ("../numpy.libs/libscipy_openblas64_*", ".dylibs/libscipy_openblas64_*")
    for path in (found for pattern in patterns for found in sorted(folder.glob(pattern))):
        try:
            library = ctypes.CDLL(str(path))
            sgemm = library.scipy_cblas_sgemm64_
            get_threads = library.scipy_openblas_get_num_threads64_
            set_threads = library.scipy_openblas_set_num_threads64_
        except (OSError, AttributeError):
            continue
        whole, real, place = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
        sgemm.argtypes = [
            ctypes.c_int, ctypes.c_int, ctypes.c_int, whole, whole, whole,
            real, place, whole, place, whole, real, place, whole,
        ]  # fmt: skip
        sgemm.restype = None
        return Blas(sgemm, get_threads, set_threads)
    return None


def product(stationary: np.ndarray, moving: np.ndarray) -> np.ndarray:
    """stationary (K, M).T @ moving (K, N) as a new array of float32, or of float64 where one of them is; the
    interpreter is free while it is computed."""
    blas = load()
    wide = np.float64 in (stationary.dtype, moving.dtype)
    if blas is None or wide or not stationary.size or not moving.size:
        return np.asarray(np.matmul(stationary.T, moving))
    left = np.ascontiguousarray(stationary, dtype=np.float32)
    right = np.ascontiguousarray(moving, dtype=np.float32)
    (depth, rows), columns = left.shape, right.shape[1]
    result: np.ndarray = np.empty((rows, columns), dtype=np.float32)
    blas.sgemm(
        ROW_MAJOR, TRANSPOSED, PLAIN, rows, columns, depth, 1.0, left.ctypes.data, rows,
        right.ctypes.data, columns, 0.0, result.ctypes.data, columns,
    )  # fmt: skip
    return result


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Limits the library to a number of threads for a while."""
    blas = load()
    if blas is None:
        yield
        return
    before = blas.get_threads()
    blas.set_threads(count)
    try:
        yield
    finally:
        blas.set_threads(before)

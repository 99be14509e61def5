"""Kernels by schedule take any number of rows where only trip counts depend on them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from kernel_heads import neuronxcc_kernel
from warm import computed

from accelopt.kernels.nki.actions.primitive_answers import nest_of
from accelopt.kernels.nki.arguments import ParameterFacts
from accelopt.kernels.nki.devices.protocol import KernelFailure
from accelopt.kernels.nki.nests.nest import Nest, Part, Stage, default_nest
from accelopt.kernels.nki.nests.search import with_columns
from accelopt.kernels.nki.rescheduling.any_rows import for_any_rows
from accelopt.kernels.nki.rescheduling.lifted_kernel import Lifted, lifted_kernel

NORM = neuronxcc_kernel("""def norm(x, w):
    out = nl.ndarray((1024, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    g = nl.load(w).broadcast_to((128, 256))
    for i in nl.affine_range(8):
        rows = nl.load(x[nl.ds(i * 128, 128), :])
        total = nl.sum(nl.square(rows), axis=1, keepdims=True)
        nl.store(out[nl.ds(i * 128, 128), :], rows * nl.rsqrt(total / 256 + 1e-5) * g)
    return out
""")


SHAPES = {"x": ParameterFacts((1024, 256)), "w": ParameterFacts((1, 256))}


def lifted(folder: Path, text: str, given: Mapping[str, ParameterFacts] = SHAPES) -> Lifted:
    """What the kernel of a text computes."""
    path = folder / "kernel.py"
    path.write_text(text)
    return lifted_kernel(text, path, given)


def run(path: Path, *given: np.ndarray) -> np.ndarray:
    """What a kernel makes of two arrays."""
    (got,) = computed(path, [array.astype(np.float32) for array in given])
    return got


@pytest.mark.parametrize("together", [False, True])
def test_rows_are_those_of_the_argument(together: bool, tmp_path: Path) -> None:
    """Evidence: the simulated core's numbers against NumPy, for three numbers of rows."""
    found = lifted(tmp_path, NORM)
    schedule = nest_of(None, found, "trn1").nest
    if together:
        stage = Stage(members=("total", "out"), partition=(Part(axis="m", size=128),))
        schedule = Nest(stages=(stage,))
    source = for_any_rows(found, schedule, found.lowered(schedule).source, "trn1")
    assert "1024" not in source and "range(size_m // 128)" in source
    path = tmp_path / "any.py"
    path.write_text(found.authored(source))
    for rows in (128, 384, 1024):
        x, w = (np.random.default_rng(rows).standard_normal((n, 256)) for n in (rows, 1))
        wanted = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * w
        np.testing.assert_allclose(run(path, x, w), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(KernelFailure, match="multiple of 128"):
        run(path, x[:100], w)


GROUPS = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

GROUPS = 8


@nki.jit
def mean_free(x, w):
    images, groups, width = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    g = nl.load(w)
    for i in nl.affine_range(images):
        tile = nl.load(x[i])
        mean = nl.multiply(nl.sum(tile, axis=1, keepdims=True), 1 / width)
        nl.store(out[i], nl.multiply(nl.subtract(tile, mean), g))
    return out
"""


def test_an_axis_that_is_joined_with_others_keeps_the_author_s_name(tmp_path: Path) -> None:
    """Images and groups lie together on the partitions; of the images there may be any number that
    fills them. Evidence: the simulated core's numbers against NumPy, for three numbers of images."""
    given = {"x": ParameterFacts((64, 8, 256)), "w": ParameterFacts((8, 1))}
    found = lifted(tmp_path, GROUPS, given)
    parts = (Part(axis="b", size=16), Part(axis="m", size=8))
    names = tuple(d.out for d in found.algorithm.definitions)
    schedule = Nest(stages=(Stage(members=names, partition=parts),))
    source = for_any_rows(found, schedule, found.lowered(schedule).source, "trn1")
    path = tmp_path / "any.py"
    path.write_text(found.authored(source))
    assert "images, groups, width = x.shape" in path.read_text()
    assert "range(images // 16)" in path.read_text() and "size_b" not in path.read_text()
    for images in (16, 48, 64):
        x = np.random.default_rng(images).standard_normal((images, 8, 256))
        w = np.random.default_rng(1).standard_normal((8, 1))
        wanted = (x - x.mean(2, keepdims=True)) * w
        np.testing.assert_allclose(run(path, x, w), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(KernelFailure, match="images must be a multiple of 16"):
        run(path, x[:20], w)


def test_a_kernel_that_combines_rows_keeps_their_number(tmp_path: Path) -> None:
    """Every block of rows is multiplied by the first one. Evidence: the simulated core's numbers against
    NumPy."""
    text = NORM.replace(
        "rows * nl.rsqrt(total / 256 + 1e-5) * g", "rows * nl.load(x[nl.ds(0, 128), :]) * g"
    )
    found = lifted(tmp_path, text)
    schedule = nest_of(None, found, "trn1").nest
    source = for_any_rows(found, schedule, found.lowered(schedule).source, "trn1")
    assert "x.shape[0]" not in source and "(1024, " in source
    path = tmp_path / "any.py"
    path.write_text(source)
    x, w = (np.random.default_rng(n).standard_normal((n, 256)) for n in (1024, 1))
    wanted = x * np.tile(x[:128], (8, 1)) * w
    np.testing.assert_allclose(run(path, x, w), wanted, rtol=1e-4, atol=1e-5)


SQUARE = neuronxcc_kernel("""def differences(x, w):
    out = nl.ndarray((2048, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    row = nl.load(x.reshape((1, 2048))).broadcast_to((128, 2048))
    for i in nl.affine_range(16):
        nl.store(out[nl.ds(i * 128, 128), :], row - nl.load(x[nl.ds(i * 128, 128), :]) * 2.0)
    return out
""")


def test_an_axis_that_is_two_dimensions_of_an_array_keeps_its_number(tmp_path: Path) -> None:
    """Every element is compared with every other: more of them make the result longer and wider."""
    given = {"x": ParameterFacts((2048, 1)), "w": ParameterFacts((1, 1))}
    found = lifted(tmp_path, SQUARE, given)
    nest = with_columns(default_nest(found.algorithm, "trn1"), 512)
    source = found.lowered(nest).source
    assert for_any_rows(found, nest, source, "trn1") == source

"""The data of NKIBench: names, shapes and values, without running a kernel."""

import textwrap
from typing import Any

import numpy as np
import pytest
import yaml
from nkibench_problems import FOLDER, SMALL, SUMMARY, files, load, reference, tolerance

from accelopt.evaluation import case_name

PROBLEMS = sorted(SMALL)


def test_the_index_names_the_fourteen_problems_and_nothing_else() -> None:
    assert sorted(SUMMARY) == PROBLEMS
    named = {FOLDER / "summary.json", FOLDER / "README.md"}
    for problem, entry in SUMMARY.items():
        assert set(entry) == {"seed", "cases"}
        (case,) = entry["cases"].values()
        assert set(case) == {"values", "impls"}
        assert list(case["values"]) == sorted(case["values"])
        named |= {FOLDER / entry["seed"], *files(problem)}
        named.add(FOLDER / "nki" / "kernels" / files(problem)[1].name)  # in the other dialect
    named.add(FOLDER / "nki" / "summary.json")
    assert {
        path for path in FOLDER.rglob("*") if path.suffix in {".py", ".yaml", ".json", ".md"}
    } == named


@pytest.mark.parametrize("problem", PROBLEMS)
def test_files_are_named_by_their_case(problem: str) -> None:
    (case,) = SUMMARY[problem]["cases"].values()
    name = case_name(problem, case["values"])
    task, kernel = files(problem)
    assert (task.stem, kernel.stem) == (f"{name}_numpy", f"{name}_0")
    module = load(task)
    assert {key: getattr(module, key) for key in case["values"]} == case["values"]
    assert "float16" not in kernel.read_text()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_kernels_get_reshaped_inputs(problem: str) -> None:
    task = reference(problem, SMALL[problem])
    inputs = task.get_inputs()
    for before, after in zip(inputs, task.transform_to_nki_inputs(inputs), strict=True):
        if isinstance(before, np.ndarray):
            assert np.shares_memory(before, after)  # a reshape, never a copy or a permutation


@pytest.mark.parametrize("problem", PROBLEMS)
def test_inputs_have_the_published_distribution(problem: str) -> None:
    np.random.seed(7)
    inputs = reference(problem, SMALL[problem]).get_inputs()
    deviation = 0.05 if problem == "mamba" else 1.0
    for position, array in enumerate(inputs):
        if not isinstance(array, np.ndarray):
            assert array == 1e-5
            continue
        assert array.dtype == np.float32
        second_moment = float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))
        assert second_moment == pytest.approx(deviation, rel=10 / np.sqrt(array.size))
        positive = problem == "adamw" and position == 3
        assert bool(np.all(array >= 0)) == positive


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_seed_says_what_the_reference_computes(problem: str) -> None:
    seed = yaml.safe_load((FOLDER / SUMMARY[problem]["seed"]).read_text())
    assert set(seed) == {"test_name", "parameters", "input", "impl", "comments"}
    assert seed["test_name"] == problem
    (case,) = SUMMARY[problem]["cases"].values()
    assert sorted(seed["parameters"]) == sorted(case["values"])
    namespace: dict[str, Any] = {"np": np, **SMALL[problem]}
    exec("def get_inputs():\n" + textwrap.indent(seed["input"], "    ") + seed["impl"], namespace)

    task = reference(problem, SMALL[problem])
    np.random.seed(3)
    inputs = task.get_inputs()
    np.random.seed(3)
    for ours, short in zip(inputs, namespace["get_inputs"](), strict=True):
        np.testing.assert_array_equal(ours, short)
    expected = task.forward(*inputs)
    with np.errstate(over="ignore"):
        short = namespace["forward"](*inputs)
    assert expected.dtype == short.dtype == np.float32
    assert np.linalg.norm(expected - short) <= 1e-6 * np.linalg.norm(short)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_float64_inputs_give_a_float64_reference(problem: str) -> None:
    task = reference(problem, SMALL[problem])
    np.random.seed(0)
    inputs = task.get_inputs()
    copies = [x.copy() if isinstance(x, np.ndarray) else x for x in inputs]
    single = task.forward(*inputs)
    double = task.forward(
        *[x.astype(np.float64) if isinstance(x, np.ndarray) else x for x in inputs]
    )
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    assert np.linalg.norm(single - double) < 0.2 * tolerance(problem) * np.linalg.norm(double)
    for array, copy in zip(inputs, copies, strict=True):
        np.testing.assert_array_equal(
            array, copy
        )  # forward works in place on nothing of the caller's


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p != "rope_single_freq_apply"])
def test_outputs_that_cannot_fit_reach_the_referee_unchanged(problem: str) -> None:
    task = load(files(problem)[0])
    expected = np.zeros((4, 6), np.float32)
    flat = np.arange(24, dtype=np.float32)
    (fitting,) = task.transform_nki_outputs(flat, expected)
    np.testing.assert_array_equal(fitting, flat.reshape(4, 6))
    (short,) = task.transform_nki_outputs(flat[:5], expected)
    assert short.shape == (5,)
    assert len(task.transform_nki_outputs((flat, flat), expected)) == 2


def test_rope_output_is_passed_as_it_is() -> None:
    task = load(files("rope_single_freq_apply")[0])
    array = np.zeros((2, 3))
    assert task.transform_nki_outputs(array, np.zeros((3, 2)))[0] is array


def test_silu_and_swiglu_reach_their_limits_quietly() -> None:
    silu = load(files("silu")[0])
    extreme = np.array([[-1e4, -0.0, 1e4]], np.float32)
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_array_equal(silu.forward(extreme), [[-0.0, 0.0, 1e4]])

"""Spec files: what they must say, the values that they stand for, and what is made of them."""

import base64
import importlib.util
import json
import zlib
from pathlib import Path

import kernels
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from accelopt.contract.spec import IOContract, KernelSpec, read_specs
from accelopt.contract.tensors import contents, decode, dtype_of
from accelopt.errors import ConfigError
from accelopt.kernel_source import fingerprint
from accelopt.kernels.gpu.bench.judging.compile_check import CompilerPool
from accelopt.kernels.gpu.bench.source.source_rules import violations
from accelopt.kernels.gpu.cases import ProblemFiles
from accelopt.kernels.specs.control_file import updated
from accelopt.kernels.specs.solutions import (
    case_of_spec,
    definition_of,
    solution_of,
    triton_module,
    workload_of,
)
from accelopt.kernels.triton.configurations.proposals import proposals

KINDS = {
    "randn": {"mean": 3.0, "std": 0.5}, "uniform": {"low": -2.0, "high": -1.0}, "zeros": {},
    "ones": {}, "full": {"fill_value": 7.0}, "arange": {"start": 5.0, "step": 2.0},
}  # fmt: skip
DTYPES = ("float32", "float16", "bfloat16", "int32", "int64", "uint8", "float8_e4m3fn")


def installed(*names):
    return all(importlib.util.find_spec(name) is not None for name in names)


def encode(array):
    packed = zlib.compress(array.tobytes())
    stored = {"base64": base64.b64encode(packed).decode(), "zlib": True}
    return {"shape": list(array.shape), "dtype": array.dtype.name, "data": stored}


def io_of(*args):
    return IOContract.model_validate({"args": list(args), "launch": {"grid": [4], "block": 32}})


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_contents_is_the_same_for_the_same_seed(kind):
    def made(seed):
        argument = kernels.tensor("x", [64, 32], kind=kind, seed=seed, **KINDS[kind])
        return contents(io_of(argument).args[0])

    first, again, other = made(1), made(1), made(2)
    assert first.shape == (64, 32) and first.dtype == np.float32
    assert np.array_equal(first, again)
    assert np.array_equal(first, other) is (kind not in ("randn", "uniform"))


def test_contents_are_what_they_are_called():
    made = {
        kind: contents(io_of(kernels.tensor("x", [4096], kind=kind, **more)).args[0])
        for kind, more in KINDS.items()
    }
    assert abs(made["randn"].mean() - 3) < 0.05 and abs(made["randn"].std() - 0.5) < 0.05
    assert -2 <= made["uniform"].min() < made["uniform"].max() <= -1
    assert not made["zeros"].any() and (made["ones"] == 1).all() and (made["full"] == 7).all()
    assert made["arange"][:3].tolist() == [5, 7, 9]


@settings(max_examples=60)
@given(
    arrays.arrays(np.uint8, arrays.array_shapes(max_dims=3, max_side=40)), st.sampled_from(DTYPES)
)
def test_what_is_encoded_is_decoded(raw, name):
    dtype = dtype_of(name)
    array = np.repeat(raw.reshape(-1), dtype.itemsize).view(dtype)
    again = decode(json.loads(json.dumps(encode(array))))
    assert again.dtype == array.dtype and again.shape == array.shape
    assert again.tobytes() == array.tobytes()


def test_data_that_does_not_fit_its_shape_is_refused():
    said = {**encode(np.zeros(4, np.float32)), "shape": [5]}
    with pytest.raises(ConfigError, match="data of 16 bytes"):
        decode(said)
    with pytest.raises(ConfigError, match="cannot be decoded"):
        decode({"shape": [1], "dtype": "float32", "data": "!!"})


def test_outputs_are_never_left_as_found():
    out, count = (
        contents(io_of(kernels.tensor(name, [8], "output", dtype)).args[0])
        for name, dtype in (("out", "bfloat16"), ("count", "int32"))
    )
    assert np.isnan(out.astype(np.float32)).all() and (count == 2**31 - 1).all()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda s: s["kernel"]["io"]["args"][0]["tensor_spec"].pop("init"), "neither init nor data"),
        (lambda s: s["kernel"]["io"]["args"][3].pop("value"), "n has no value"),
        (lambda s: s["kernel"].pop("source_code"), "source_code"),
        (lambda s: s["kernel"].update(kernel_type="hip"), "kernel_type"),
        (lambda s: s["kernel"].update(invocation_example="x") or s["kernel"].pop("io"),
         "say its arguments"),
    ],
)  # fmt: skip
def test_what_a_spec_file_lacks_is_said(tmp_path, change, why):
    said = kernels.vector_add()
    change(said)
    (tmp_path / "kernels.json").write_text(json.dumps(said))
    with pytest.raises(ConfigError, match=why):
        read_specs(tmp_path / "kernels.json")


@pytest.mark.parametrize("text", ["[]", '{"kernels": []}'])
def test_a_spec_file_without_kernels_says_so(tmp_path, text):
    (tmp_path / "kernels.json").write_text(text)
    with pytest.raises(ConfigError, match=r"kernels\.json names no kernel"):
        read_specs(tmp_path / "kernels.json")


def test_spec_files_hold_one_kernel_several_or_are_a_folder(tmp_path):
    both = [kernels.vector_add(), kernels.softmax()]
    (tmp_path / "a.json").write_text(json.dumps(both[0]))
    (tmp_path / "b.json").write_text(json.dumps({"kernels": both[1:]}))
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "list.json").write_text(json.dumps(both))
    names = [spec.name for spec in read_specs(tmp_path)]
    assert (
        names == [spec.name for spec in read_specs(tmp_path / "all")] == ["vector_add", "softmax"]
    )
    (tmp_path / "c.json").write_text(json.dumps(both[0]))
    with pytest.raises(ConfigError, match="two kernels are called vector_add"):
        read_specs(tmp_path)


def test_a_triton_kernel_becomes_a_solution_that_the_moves_can_read(tmp_path):
    spec = KernelSpec.model_validate(kernels.triton_add())
    module = triton_module(spec)
    assert (
        "add[(triton.cdiv(16777216, BLOCK),)](x_ptr, y_ptr, out_ptr, 16777216, BLOCK=BLOCK)"
        in module
    )
    assert violations(solution_of(spec)) == []
    sources = {action.source for action in proposals(module, 48)}
    assert any("BLOCK = 2048" in source for source in sources)
    case = case_of_spec(spec, tmp_path, tmp_path)
    problem = ProblemFiles(case.values)
    assert list(problem.definition.inputs) == ["x_ptr", "y_ptr"]
    assert problem.workload.workload.inputs["y_ptr"].tensor["init"]["seed"] == 3
    assert "load_entry" in problem.definition.reference


def test_a_reference_may_be_given_with_its_tolerance(tmp_path):
    said = kernels.row_sums()
    said["reference"] |= {"rtol": 1e-4, "atol": 1e-5}
    problem = ProblemFiles(case_of_spec(KernelSpec.model_validate(said), tmp_path, tmp_path).values)
    assert problem.definition.model_extra["tolerance"] == {"rtol": 1e-4, "atol": 1e-5}
    names = {}
    exec(problem.definition.reference, names)
    assert callable(names["run"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda k: k["metadata"].update(kernel_name="other"), "there are add"),
        (lambda k: k["io"]["args"].pop(), "needs BLOCK"),
        (lambda k: k["io"]["args"].__delitem__(2), "has no output"),
        (lambda k: k.update(source_code="def f(:"), "is not Python"),
    ],
)
def test_a_contract_that_the_kernel_does_not_fit_is_refused(change, why):
    said = kernels.triton_add()
    change(said["kernel"])
    with pytest.raises(ConfigError, match=why):
        solution_of(KernelSpec.model_validate(said))


def test_a_cuda_contract_must_fit_the_parameters():
    said = kernels.vector_add()
    said["kernel"]["io"]["args"].pop()
    with pytest.raises(ConfigError, match="takes 4 arguments, 1 of them numbers"):
        solution_of(KernelSpec.model_validate(said))


def test_a_launch_update_that_changes_nothing_makes_no_new_kernel():
    source = triton_module(KernelSpec.model_validate(kernels.softmax()))
    for update in ({}, {"num_warps": 4}, {"unheard_of": 3}):
        assert updated("triton", source, update) == (source, False)
    changed = updated("triton", source, {"num_warps": 8})
    assert changed.applied and fingerprint(changed.source) != fingerprint(source)


@pytest.mark.skipif(not installed("torch", "triton"), reason="torch and triton are not installed")
def test_each_number_of_warps_is_other_code():
    spec = KernelSpec.model_validate(kernels.softmax())
    solution = solution_of(spec)
    found = {}
    with CompilerPool(1) as pool:
        for warps in (2, 4, 8):
            text = updated("triton", solution.main_source, {"num_warps": warps}).source
            verdict = pool.check(
                definition_of(spec, solution, Path()),
                workload_of(spec),
                solution.with_source(text, f"warps_{warps}"),
            )
            assert not verdict.failure
            [code] = verdict.code
            found[warps] = code.ptx
    assert len(set(found.values())) == 3
    for warps, ptx in found.items():
        assert f".reqntid {32 * warps}" in ptx

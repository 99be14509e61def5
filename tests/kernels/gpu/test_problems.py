"""PyTorch modules as problems: what they take and give, and which are refused."""

import importlib.util

import pytest

from accelopt.api import language_of_case, starting_case
from accelopt.errors import ConfigError, MissingExtra
from accelopt.kernels.gpu.problems import case_of_problem, definition_of, is_torch_problem

PROBLEM = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        return torch.exp(x) * self.scale + y.sum(dim=0), x.half()

def get_inputs():
    return [torch.randn(4, 8), torch.randn(3, 8)]

def get_init_inputs():
    return [2.0]
"""


def problem(folder, text=PROBLEM):
    path = folder / "scaled.py"
    path.write_text(text)
    return path


def test_only_files_with_all_three_parts_are_pytorch_problems(tmp_path):
    assert is_torch_problem(problem(tmp_path))
    assert not is_torch_problem(problem(tmp_path, "def forward(x):\n    return x\n"))
    assert not is_torch_problem(problem(tmp_path, "def forward(:"))


def test_a_definition_needs_its_workload(tmp_path):
    (tmp_path / "definition.json").write_text("{}")
    with pytest.raises(ConfigError, match="needs the option `workload`"):
        case_of_problem(tmp_path / "definition.json", tmp_path / "k.py", None, tmp_path)


def test_shapes_dtypes_and_the_reference_come_from_the_module(tmp_path):
    pytest.importorskip("torch")
    definition, trace = definition_of(problem(tmp_path))
    sizes = [definition.shape(spec, trace.workload) for spec in definition.inputs.values()]
    assert list(definition.inputs) == ["x", "y"] and sizes == [(4, 8), (3, 8)]
    assert [spec.dtype for spec in definition.outputs.values()] == ["float32", "float16"]
    space = {}
    exec(definition.reference, space)
    import torch

    made = space["run"](torch.zeros(4, 8), torch.ones(3, 8))
    assert torch.equal(made[0], torch.full((4, 8), 5.0))


def test_a_kernel_for_it_defines_kernel_function(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "kernel.py").write_text("def kernel_function(x, y):\n    return x\n")
    case = case_of_problem(problem(tmp_path), tmp_path / "kernel.py", None, tmp_path / "made")
    assert case.problem == "scaled"
    assert "::kernel_function" in (tmp_path / "made" / "solution.json").read_text()


def test_a_model_with_parameters_and_one_that_does_not_run_are_refused(tmp_path):
    pytest.importorskip("torch")
    with_parameters = PROBLEM.replace("self.scale = scale", "self.linear = nn.Linear(2, 2)")
    with pytest.raises(ConfigError, match="a model with 6 parameters"):
        definition_of(problem(tmp_path, with_parameters))
    with pytest.raises(ConfigError, match=r"does not run: .*lost"):
        definition_of(problem(tmp_path, PROBLEM.replace("return [2.0]", "raise OSError('lost')")))


def test_a_module_is_a_reference_of_a_command(tmp_path):
    """`accelopt optimize kernel.py --reference problem.py` takes it as the FSM's managers do."""
    kernel = tmp_path / "kernel.py"
    kernel.write_text("def kernel_function(x, y):\n    return x\n")
    if importlib.util.find_spec("torch") is None:
        with pytest.raises(MissingExtra, match="torch"):
            starting_case(kernel, problem(tmp_path), None, None, tmp_path / "run")
        return
    case = starting_case(kernel, problem(tmp_path), None, None, tmp_path / "run")
    assert language_of_case(case) == "triton"

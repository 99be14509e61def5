"""Kernels of spec files on a GPU: started by the driver, judged, profiled."""

import importlib.util

import kernels
import pytest

from accelopt.contract.spec import Argument, KernelSpec
from accelopt.evaluation import Status
from accelopt.kernels.gpu.bench.judging.compile_check import CompilerPool
from accelopt.kernels.gpu.ptx_structure import structures
from accelopt.kernels.specs.solutions import definition_of, solution_of, workload_of
from accelopt.ptx.global_traffic import global_traffic


def has_gpu():
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="no CUDA GPU")]


def task_of(said, folder, source=None, **fields):
    from accelopt.kernels.gpu.bench.judging.evaluation_task import Task, TimingPlan

    spec = KernelSpec.model_validate(said)
    start = solution_of(spec)
    solution = start.with_source(source(start.main_source), "changed") if source else start
    return Task(
        root=folder,
        definition=definition_of(spec, start, folder),
        workload=workload_of(spec),
        solution=solution,
        start=start,
        plan=TimingPlan(package=False),
        timeout_seconds=200,
        **fields,
    )


def judged(*args, **fields):
    from accelopt.kernels.gpu.bench.judging.evaluation import evaluate

    return evaluate(task_of(*args, **fields)).evaluation


@pytest.mark.parametrize("made", [kernels.vector_add, kernels.row_sums])
def test_the_driver_starts_a_kernel(tmp_path, made):
    import torch

    from accelopt.kernels.cuda import launcher
    from accelopt.kernels.cuda.compiling import build
    from accelopt.kernels.cuda.launch_pragma import launch_of, signature_of

    torch.cuda.init()
    spec = KernelSpec.model_validate(made())
    source = solution_of(spec).main_source
    signature = signature_of(source)
    kernel = launcher.ByDriver(build(source, 90, tmp_path), signature.name, launch_of(source))
    arguments = [Argument.model_validate(a.model_dump()) for a in spec.kernel.io.args]
    inputs = [torch.randn(a.tensor.shape, device="cuda") for a in spec.kernel.io.inputs]
    result = launcher.LoadedKernel(signature, arguments, kernel.start).call(*inputs)
    wanted = inputs[0] + inputs[1] if len(inputs) == 2 else inputs[0].sum(dim=1)
    assert torch.allclose(result, wanted, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(
    "made", [kernels.vector_add, kernels.row_sums, kernels.softmax, kernels.triton_add]
)
def test_the_kernels_of_spec_files_are_judged_right(tmp_path, made):
    evaluation = judged(made(), tmp_path)
    assert evaluation.status is Status.CORRECT, evaluation
    assert {"mean_ms", "std_ms"} <= set(evaluation.profile.metrics)


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        (("x[i] + y[i]", "0.5f"), (Status.WRONG_NUMBERS,)),
        (("x[i] + y[i]", "x[i]"), (Status.WRONG_NUMBERS,)),
        (("if (i < n)", "if (i < n / 2)"), (Status.WRONG_NUMBERS,)),
        (("out[i] =", "out[i + (1ll << 38)] ="), (Status.RUN_ERROR, Status.CRASH)),
        (("x[i] + y[i]", "z[i]"), (Status.COMPILE_ERROR,)),
        (("const float* x", "float* x"), (Status.CORRECT,)),
    ],
)
def test_garbage_is_refused(tmp_path, change, verdicts):
    evaluation = judged(kernels.vector_add(), tmp_path, lambda text: text.replace(*change))
    assert evaluation.status in verdicts, evaluation


@pytest.mark.parametrize("made", [kernels.vector_add, kernels.triton_add, kernels.softmax])
def test_counters_show_the_bytes_that_must_move(tmp_path, made):
    from accelopt.kernels.gpu.profiling.metrics import Metrics
    from accelopt.kernels.gpu.profiling.ncu import collect

    spec = KernelSpec.model_validate(
        made(rows=1 << 15) if made is kernels.softmax else made(1 << 26)
    )
    found = collect(task_of(spec.model_dump(), tmp_path))
    assert isinstance(found, Metrics), found
    tensors = [*spec.kernel.io.inputs, *spec.kernel.io.outputs]
    moved = 4 * sum(a.tensor.shape[0] * (a.tensor.shape[1] if len(a.tensor.shape) > 1 else 1)
                    for a in tensors)  # fmt: skip
    assert found.dram_bytes == pytest.approx(moved, rel=0.1)
    assert found.share > 0.9
    task = task_of(spec.model_dump(), tmp_path)
    with CompilerPool(1) as pool:
        compiled = pool.check(task.definition, task.workload, task.solution)
    (kernel,) = structures(compiled.code, compiled.resources)
    block = global_traffic(kernel.dag)
    assert block is not None
    assert found.dram_bytes == pytest.approx(block.asked * kernel.blocks, rel=0.1)

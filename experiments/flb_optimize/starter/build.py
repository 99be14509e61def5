"""Writes the starter trace set from the readable sources beside this file.

    python experiments/flb_optimize/starter/build.py

`references/NAME.py` is the PyTorch reference of a definition, `solutions/NAME.py` a plain Triton
solution. Each definition has a workload over 100 microseconds on a Hopper GPU and a tiny one for
the Triton interpreter. Index tensors are not stored: they are generated from the workload's uuid
when they are first needed (`accelopt.kernels.gpu.bench.files.index_tensors`).
"""

from __future__ import annotations

import uuid
from pathlib import Path

from accelopt.kernels.gpu.bench.files.tracefiles import (
    BuildSpec,
    Definition,
    DefinitionAxis,
    DefinitionTensor,
    InputSource,
    Solution,
    SourceFile,
    Trace,
    Workload,
    write_json,
)
from accelopt.store import write_atomically

HERE = Path(__file__).parent
OUTPUT = HERE.parent / "starter_trace"
SM_SCALE = 0.08838834764831845  # 1 / sqrt(128)


def tensor(dtype: str, *shape: str) -> DefinitionTensor:
    return DefinitionTensor(shape=list(shape), dtype=dtype)


SCALAR = DefinitionTensor(shape=None, dtype="float32")
ATTENTION_AXES = {"num_qo_heads": 32, "num_kv_heads": 8, "head_dim": 128}

# name: op_type, constant axes, variable axes, inputs, outputs, [large workload, tiny workload]
PROBLEMS = {
    "gemm_n4096_k4096": (
        "gemm", {"N": 4096, "K": 4096}, ["M"],
        {"A": tensor("float16", "M", "K"), "B": tensor("float16", "N", "K")},
        {"C": tensor("float16", "M", "N")},
        [{"M": 8192}, {"M": 1}],
    ),
    "rmsnorm_h4096": (
        "rmsnorm", {"hidden_size": 4096}, ["batch_size"],
        {"hidden_states": tensor("bfloat16", "batch_size", "hidden_size"),
         "weight": tensor("bfloat16", "hidden_size")},
        {"output": tensor("bfloat16", "batch_size", "hidden_size")},
        [{"batch_size": 32768}, {"batch_size": 3}],
    ),
    "fused_add_rmsnorm_h4096": (
        "rmsnorm", {"hidden_size": 4096}, ["batch_size"],
        {"hidden_states": tensor("bfloat16", "batch_size", "hidden_size"),
         "residual": tensor("bfloat16", "batch_size", "hidden_size"),
         "weight": tensor("bfloat16", "hidden_size")},
        {"output": tensor("bfloat16", "batch_size", "hidden_size"),
         "total": tensor("bfloat16", "batch_size", "hidden_size")},
        [{"batch_size": 16384}, {"batch_size": 3}],
    ),
    "silu_and_mul_h14336": (
        "activation", {"intermediate_size": 14336, "gate_up_size": 28672}, ["batch_size"],
        {"gate_up": tensor("bfloat16", "batch_size", "gate_up_size")},
        {"output": tensor("bfloat16", "batch_size", "intermediate_size")},
        [{"batch_size": 8192}, {"batch_size": 2}],
    ),
    "softmax_n8192": (
        "softmax", {"vocab_size": 8192}, ["batch_size"],
        {"logits": tensor("float32", "batch_size", "vocab_size")},
        {"probabilities": tensor("float32", "batch_size", "vocab_size")},
        [{"batch_size": 8192}, {"batch_size": 3}],
    ),
    "rope_h32_kv8_d128": (
        "rope", {**ATTENTION_AXES, "max_position": 8192}, ["num_tokens"],
        {"q": tensor("bfloat16", "num_tokens", "num_qo_heads", "head_dim"),
         "k": tensor("bfloat16", "num_tokens", "num_kv_heads", "head_dim"),
         "cos_sin_cache": tensor("float32", "max_position", "head_dim"),
         "positions": tensor("int32", "num_tokens")},
        {"q_out": tensor("bfloat16", "num_tokens", "num_qo_heads", "head_dim"),
         "k_out": tensor("bfloat16", "num_tokens", "num_kv_heads", "head_dim")},
        [{"num_tokens": 32768}, {"num_tokens": 5}],
    ),
    "gqa_paged_decode_h32_kv8_d128_ps16": (
        "gqa_paged", {**ATTENTION_AXES, "page_size": 16},
        ["batch_size", "num_pages", "len_indptr", "num_kv_indices"],
        {"q": tensor("bfloat16", "batch_size", "num_qo_heads", "head_dim"),
         "k_cache": tensor("bfloat16", "num_pages", "page_size", "num_kv_heads", "head_dim"),
         "v_cache": tensor("bfloat16", "num_pages", "page_size", "num_kv_heads", "head_dim"),
         "kv_indptr": tensor("int32", "len_indptr"),
         "kv_indices": tensor("int32", "num_kv_indices"),
         "kv_last_page_len": tensor("int32", "batch_size"),
         "sm_scale": SCALAR},
        {"output": tensor("bfloat16", "batch_size", "num_qo_heads", "head_dim"),
         "lse": tensor("float32", "batch_size", "num_qo_heads")},
        [{"batch_size": 64, "num_pages": 18000, "len_indptr": 65, "num_kv_indices": 16384},
         {"batch_size": 2, "num_pages": 9, "len_indptr": 3, "num_kv_indices": 7}],
    ),
    "gqa_ragged_prefill_causal_h32_kv8_d128": (
        "gqa_ragged", ATTENTION_AXES, ["len_indptr", "total_q", "total_kv"],
        {"q": tensor("bfloat16", "total_q", "num_qo_heads", "head_dim"),
         "k": tensor("bfloat16", "total_kv", "num_kv_heads", "head_dim"),
         "v": tensor("bfloat16", "total_kv", "num_kv_heads", "head_dim"),
         "qo_indptr": tensor("int32", "len_indptr"),
         "kv_indptr": tensor("int32", "len_indptr"),
         "sm_scale": SCALAR},
        {"output": tensor("bfloat16", "total_q", "num_qo_heads", "head_dim"),
         "lse": tensor("float32", "total_q", "num_qo_heads")},
        [{"len_indptr": 5, "total_q": 8192, "total_kv": 8192},
         {"len_indptr": 3, "total_q": 9, "total_kv": 20}],
    ),
}  # fmt: skip


def definition_of(name: str) -> Definition:
    op_type, constants, variables, inputs, outputs, _ = PROBLEMS[name]
    axes = {axis: DefinitionAxis(type="const", value=value) for axis, value in constants.items()}
    axes.update({axis: DefinitionAxis(type="var") for axis in variables})
    return Definition(
        name=name,
        op_type=op_type,
        axes=axes,
        inputs=inputs,
        outputs=outputs,
        reference=(HERE / "references" / f"{name}.py").read_text(),
    )


def workload_of(definition: Definition, axes: dict[str, int]) -> Trace:
    label = f"{definition.name}/{sorted(axes.items())}"
    identity = str(uuid.uuid5(uuid.NAMESPACE_URL, f"accelopt/starter/{label}"))
    stem = f"{definition.name}_{identity[:7]}"
    sources: dict[str, InputSource] = {}
    for name, spec in definition.inputs.items():
        if spec.shape is None:
            sources[name] = InputSource(type="scalar", value=SM_SCALE)
        elif spec.dtype.startswith("int"):
            path = f"blob/workloads/{definition.op_type}/{definition.name}/{stem}.safetensors"
            sources[name] = InputSource(type="safetensors", path=path, tensor_key=name)
        else:
            sources[name] = InputSource(type="random")
    workload = Workload(axes=axes, inputs=sources, uuid=identity)
    return Trace(definition=definition.name, workload=workload)


def solution_of(name: str) -> Solution:
    return Solution(
        name=f"plain_{name}",
        definition=name,
        author="accelopt",
        spec=BuildSpec(
            language="triton",
            target_hardware=["NVIDIA H200"],
            entry_point="main.py::run",
            destination_passing_style=False,
        ),
        sources=[
            SourceFile(
                path="main.py", content=(HERE / "solutions" / f"{name}.py").read_text()
            )
        ],
        description="A plain Triton kernel: the first thing one would write.",
    )


def main() -> None:
    for name, problem in PROBLEMS.items():
        definition = definition_of(name)
        folder = definition.op_type
        write_json(definition, OUTPUT / "definitions" / folder / f"{name}.json")
        lines = [
            workload_of(definition, axes).model_dump_json(exclude_unset=True) for axes in problem[5]
        ]
        write_atomically(OUTPUT / "workloads" / folder / f"{name}.jsonl", "\n".join(lines) + "\n")
        solution = solution_of(name)
        write_json(
            solution,
            OUTPUT / "solutions" / "accelopt" / folder / name / f"{solution.name}.json",
        )


if __name__ == "__main__":
    main()

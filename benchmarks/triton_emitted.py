"""Public Triton kernels against the kernels that are written from what they compute, and torch.compile.

    python benchmarks/triton_emitted.py write OUT FOLDER... [--only TEXT] [--most 4]
    python benchmarks/triton_emitted.py time OUT FOLDER... [--only TEXT] [--seconds 450]

`write` needs no GPU: it lifts each launch in the folders (checkouts; `triton_cases.py` says of what), and
writes the candidates that are expected to be fastest to OUT. `time` needs one, and torch and triton, but not
this package: it compares each candidate with the start, and prints medians of launches with a cold L2 cache,
start, candidates in the order of their prices and torch.compile in one run.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import math
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from triton_cases import CASES, Case
from triton_reach import SHIMS, _imported, _Missing, located, shells

Shape = tuple[tuple[int, ...], str]


class Problem(NamedTuple):
    """A launch of `triton_cases` on larger tensors, and the same in PyTorch."""

    case: str
    inputs: tuple[Shape, ...]
    torch: Callable[..., Any]
    most: int = 0
    call: Callable[..., Any] | None = None


def _rms(torch: Any, x: Any, w: Any) -> Any:
    f = x.float()
    r = torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (f * r).to(x.dtype) * w, r


def _rms_backward(torch: Any, x: Any, w: Any, dy: Any) -> Any:
    f, m = x.float(), w.float() * dy.float()
    r = torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6)
    dx = r * (m - f * r * r * (m * f).mean(-1, keepdim=True))
    return dx.to(x.dtype), (dy.float() * f * r).sum(0).to(w.dtype)


def _layer_backward(torch: Any, x: Any, w: Any, b: Any, dy: Any) -> Any:
    f, g = x.float(), dy.float()
    c = f - f.mean(-1, keepdim=True)
    r = torch.rsqrt(c.pow(2).mean(-1, keepdim=True) + 1e-6)
    h, m = c * r, g * w.float()
    dx = r * (m - m.mean(-1, keepdim=True) - h * (m * h).mean(-1, keepdim=True))
    return dx.to(x.dtype), (g * h).sum(0).to(w.dtype), g.sum(0).to(b.dtype)


def _added_rms(torch: Any, x: Any, r: Any, w: Any) -> Any:
    s = x + r
    y, scale = _rms(torch, s, w)
    return y, s, scale


def _layer(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b, 1e-6)


def _attention(torch: Any, q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.25)


def _cross_entropy(torch: Any, x: Any, t: Any) -> Any:
    return torch.nn.functional.cross_entropy(x.float(), t, reduction="none")


def _group(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.group_norm(x, 8, w, b, 1e-6)


def _dyt_backward(torch: Any, dy: Any, x: Any, a: Any, g: Any, b: Any) -> Any:
    f, d = x.float(), dy.float()
    t = torch.tanh(a.float() * f)
    grown = d * g.float() * (1 - t * t)
    da = (grown * f).sum().reshape(1).to(a.dtype)
    return (grown * a.float()).to(x.dtype), da, (d * t).sum(0).to(g.dtype), d.sum(0).to(b.dtype)


def _poly_norm(torch: Any, x: Any, w: Any, b: Any) -> Any:
    f, parts = x.float(), 0
    for n in (3, 2, 1):
        p = f**n
        parts = parts + w[3 - n] * p * torch.rsqrt((p * p).mean(-1, keepdim=True) + 1e-6)
    return (parts + b).to(x.dtype)


def _jsd(torch: Any, x: Any, y: Any) -> Any:
    q, p = x.exp(), y.exp()
    m = torch.log((q + p) * 0.5)
    return (0.5 * (q * (x - m) + p * (y - m))).sum() / x.shape[0], 0.5 * q * (x - m) / x.shape[0]


def _rotary(torch: Any, x: Any, c: Any, s: Any) -> Any:
    a, b = x.chunk(2, -1)
    c, s = c[None, :, None], s[None, :, None]
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def _attn_res(torch: Any, b: Any, q: Any, w: Any) -> Any:
    f = b.float()
    k = f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()
    a = torch.softmax((k * q.float()).sum(-1), 0)
    return (a[..., None] * f).sum(0).to(b.dtype)


def _swiglu_backward(torch: Any, dc: Any, a: Any, b: Any) -> Any:
    f = a.float()
    gate = torch.sigmoid(f)
    silu = f * gate
    grown = dc.float() * (silu * (1 - gate) + gate) * b.float()
    return grown.to(a.dtype), (dc.float() * silu).to(b.dtype)


def _rope(torch: Any, q: Any, k: Any, c: Any, s: Any) -> Any:
    def turned(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return x * c + torch.cat((-b, a), -1) * s

    return turned(q), turned(k)


def _modulated(torch: Any, x: Any, w: Any, scale: Any, shift: Any) -> Any:
    y = _rms(torch, x, w)[0]
    return y * (1 + scale[:, None]) + shift[:, None]


def _tvd(torch: Any, p: Any, q: Any) -> Any:
    rows = p.shape[0]
    return (p - q).abs().sum() * 0.5 / rows, torch.where(p > q, 0.5, -0.5) / rows


def _geglu_backward(torch: Any, d: Any, e: Any, g: Any) -> Any:
    f, gate, grown = e.float(), g.float(), d.float()
    inner = 0.7978845608028654 * (f + 0.044715 * f**3)
    t = torch.tanh(inner)
    gelu = 0.5 * f * (1 + t)
    slope = 0.5 * (1 + t) + 0.5 * f * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * f * f)
    return (gelu * gate).to(e.dtype), (grown * gelu).to(e.dtype), (grown * gate * slope).to(e.dtype)


def _gated_norm(torch: Any, x: Any, g: Any, w: Any, b: Any) -> Any:
    normed = torch.nn.functional.layer_norm(x.float(), (x.shape[-1],), w.float(), b.float(), 1e-5)
    gate = g.float()
    return (normed * gate * torch.sigmoid(gate)).to(x.dtype)


def _chunks(x: Any, size: int) -> Any:
    """(batch, chunks, heads, rows, channels) of (batch, rows, heads, channels)."""
    batch, rows, heads, channels = x.shape
    return x.view(batch, rows // size, size, heads, channels).transpose(2, 3)


def _kkt(torch: Any, k: Any, beta: Any) -> Any:
    c = _chunks(k, 64)
    scores = torch.tril((c @ c.transpose(-1, -2)).float(), -1)
    made = scores * _chunks(beta[..., None], 64).float()
    return made.transpose(2, 3).reshape(*beta.shape, 64)


def _chunk_o(torch: Any, q: Any, k: Any, v: Any, h: Any) -> Any:
    a, b, c = (_chunks(x, 64) for x in (q, k, v))
    scores = torch.tril((a @ b.transpose(-1, -2)).float()).to(q.dtype)
    made = 0.25 * ((a @ h).float() + (scores @ c).float())
    return made.to(v.dtype).transpose(2, 3).reshape(v.shape)


def _capped_loss(torch: Any, x: Any, t: Any) -> Any:
    capped = 30.0 * torch.tanh(x.float() / 30.0)
    return torch.nn.functional.cross_entropy(capped, t, reduction="none")


def _llama4_rope(torch: Any, q: Any, k: Any, c: Any) -> Any:
    def turned(x: Any) -> Any:
        a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        real, imaginary = c[None, :, None, :, 0].float(), c[None, :, None, :, 1].float()
        both = torch.stack((a * real - b * imaginary, a * imaginary + b * real), -1)
        return both.flatten(-2).to(x.dtype)

    return turned(q), turned(k)


def _attention_gradients(torch: Any, q: Any, k: Any, v: Any, do: Any) -> Any:
    scores = torch.softmax((q @ k.transpose(-1, -2)).float() * 0.25, -1)
    dv = scores.to(q.dtype).transpose(-1, -2) @ do
    dp = (do @ v.transpose(-1, -2)).float()
    ds = (scores * (dp - (dp * scores).sum(-1, keepdim=True)) * 0.25).to(q.dtype)
    return ds @ k, ds.transpose(-1, -2) @ q, dv


_b, _f, _h = "bfloat16", "float32", "float16"
PROBLEMS = (
    Problem("rms_norm", (((8192, 4096), _b), ((4096,), _b)), _rms),
    Problem("rms_norm backward", (((8192, 4096), _b), ((4096,), _b), ((8192, 4096), _b)), _rms_backward),
    Problem("layer_norm", (((8192, 4096), _f), ((4096,), _f), ((4096,), _f)), _layer),
    Problem("layer_norm backward",
            (((8192, 4096), _b), ((4096,), _b), ((4096,), _b), ((8192, 4096), _b)), _layer_backward),
    Problem("fused_add_rms_norm", (((8192, 4096), _b), ((8192, 4096), _b), ((4096,), _b)), _added_rms),
    Problem("softmax", (((8192, 8192), _b),), lambda torch, x: torch.softmax(x.float(), -1).to(x.dtype)),
    Problem("geglu", (((8192, 11008), _b), ((8192, 11008), _b)),
            lambda torch, a, b: torch.nn.functional.gelu(a.float(), approximate="tanh").to(a.dtype) * b),
    Problem("kernels cross_entropy", (((4096, 32000), _h), ((4096,), "int64")), _cross_entropy, 32000),
    Problem("kernels matmul", (((4096, 4096), _h), ((4096, 4096), _h)), lambda torch, a, b: a @ b),
    Problem("kernels attention", (((4, 16, 2048, 64), _h),) * 3, _attention),
    Problem("group_norm", (((32, 256, 4096), _f), ((256,), _f), ((256,), _f)), _group,
            call=lambda m, x, w, b: m.group_norm_forward(x, 256, 8, w, b, 1e-6)[:4]),
    Problem("fla l2norm", (((131072, 128), _b),),
            lambda torch, x: x * torch.rsqrt(x.float().pow(2).sum(-1, keepdim=True) + 1e-6).to(x.dtype)),
    Problem("rope", (((4, 32, 2048, 128), _b), ((4, 8, 2048, 128), _b), ((1, 2048, 128), _b),
                     ((1, 2048, 128), _b)), _rope),
    Problem("fla softmax", (((8192, 4096), _b),), lambda torch, x: torch.softmax(x.float(), -1)),
    Problem("swiglu backward", (((8192, 11008), _b),) * 3, _swiglu_backward),
    Problem("dyt backward", (((8192, 4096), _b), ((8192, 4096), _b), ((1,), _b), ((4096,), _b), ((4096,), _b)),
            _dyt_backward),
    Problem("poly_norm", (((8192, 4096), _b), ((3,), _b), ((1,), _b)), _poly_norm),
    Problem("jsd", (((4096, 32000), _f), ((4096, 32000), _f)), _jsd),
    Problem("fla mean pooling", (((4, 4096, 16, 128), _b),),
            lambda torch, x: x.view(4, 256, 16, 16, 128).float().mean(2).to(x.dtype)),
    Problem("fla rotary", (((4, 4096, 16, 128), _b), ((4096, 64), _b), ((4096, 64), _b)), _rotary),
    Problem("fla cumsum vector", (((2, 4096, 16, 128), _f),),
            lambda torch, x: x.view(2, 256, 16, 16, 128).cumsum(2).view(x.shape)),
    Problem("attn_res", (((8, 4, 2048, 1024), _b), ((1024,), _b), ((1024,), _b)), _attn_res),
    # Added on 27 November 2026, when what writes kernels had been finished on those above.
    Problem("modulated_rms_norm",
            (((4, 2048, 4096), _b), ((4096,), _b), ((4, 4096), _b), ((4, 4096), _b)), _modulated),
    Problem("kl_div", (((4096, 32000), _f), ((4096, 32000), _f)),
            lambda torch, x, y: (y.exp() * (y - x)).sum() / x.shape[0]),
    Problem("tvd", (((4096, 32000), _f), ((4096, 32000), _f)), _tvd),
    Problem("unsloth geglu backward", (((8192, 11008), _b),) * 3, _geglu_backward),
    Problem("unsloth cross_entropy", (((4096, 32000), _b), ((4096,), "int64")), _capped_loss, 32000),
    Problem("fla layer_norm", (((8192, 4096), _b), ((4096,), _b), ((4096,), _b)), _layer),
    Problem("fla norm gate", (((16384, 4096), _b), ((16384, 4096), _b), ((4096,), _b), ((4096,), _b)), _gated_norm),
    Problem("fla scaled_dot_kkt", (((4, 4096, 8, 128), _b), ((4, 4096, 8), _b)), _kkt,
            call=lambda m, k, b: m.chunk_scaled_dot_kkt_fwd(k, beta=b, chunk_size=64)),
    Problem("fla chunk_fwd_o", (((2, 4096, 8, 128), _b),) * 3 + (((2, 64, 8, 128, 128), _b),), _chunk_o,
            call=lambda m, q, k, v, h: m.chunk_fwd_o(q, k, v, h, scale=0.25, chunk_size=64)),
    Problem("llama4 rope", (((4, 2048, 32, 128), _b), ((4, 2048, 8, 128), _b), ((2048, 64, 2), _f)), _llama4_rope),
    Problem("kernels attention backward", (((2, 8, 1024, 64), _h),) * 4, _attention_gradients),
    Problem("embedding backward", (((32000, 1024), _b), ((8192,), "int64"), ((8192, 1024), _b)),
            lambda torch, t, i, g: torch.zeros(t.shape, device=g.device).index_add_(0, i, g.float()), 32000),
)  # fmt: skip
_NAMED = {case.name: case for case in CASES}


def _name(problem: Problem) -> str:
    return problem.case.replace(" ", "_")


def _case(problem: Problem) -> Case:
    case = _NAMED[problem.case]
    return case if problem.call is None else Case(case.name, case.file, problem.call, ())


def written(problem: Problem, folders: list[Path], out: Path, most: int) -> str:
    """Writes the candidates of a problem, and what they are in a line."""
    from accelopt.algorithm.traced_array import NotTraced
    from accelopt.kernels.triton.lift.lifting import Like, lift_launches

    case = _case(problem)
    found = located(case, folders)
    if found is None:
        return "no such file"
    file, root = found
    given = [Like(shape, dtype) for shape, dtype in problem.inputs]
    try:
        with shells(root):
            algorithm = lift_launches(file, case.call, given, folders=[str(root)]).algorithm
        return _emitted(_name(problem), algorithm, out, most)
    except NotTraced as refusal:
        return f"no: {refusal}"


def _emitted(name: str, algorithm: Any, out: Path, most: int) -> str:
    from accelopt.algorithm.deep_recursion import deep_recursion
    from accelopt.hardware.gpus import H100
    from accelopt.kernels.triton.emission.module_text import kernels_text
    from accelopt.kernels.triton.emission.planning import plans
    from accelopt.kernels.triton.emission.schedule import NotEmitted
    from accelopt.kernels.triton.emission.solutions import beside

    for old in out.glob(f"{name}.*"):
        old.unlink()
    names = [array.name for array in algorithm.inputs]
    start = f"def run({', '.join(names)}):\n    raise ValueError('made for other tensors')\n"
    try:
        with deep_recursion():
            ranked = [p for p in plans(algorithm, H100, most) if p.seconds < LONGEST_SECONDS]
            for number, plan in enumerate(ranked):
                text = kernels_text(algorithm, plan.schedule)
                own = beside(start, "run", algorithm, text, names, {})
                (out / f"{name}.{number}.py").write_text(own)
    except NotEmitted as refusal:
        return f"no: {refusal}"
    if not ranked:
        return f"nothing of it is expected to take less than {LONGEST_SECONDS} s"
    rows = [[plan.seconds * 1e3, plan.schedule.model_dump()] for plan in ranked]
    (out / f"{name}.json").write_text(json.dumps(rows))
    return f"{len(ranked)} candidates, {ranked[0].seconds * 1e3:.4f} ms expected"


LONGEST_SECONDS = 0.1
"""That a candidate is expected to take."""
STARTERS = Path(__file__).parents[1] / "experiments" / "flb_optimize" / "starter_trace"


def _starters() -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Definition, first workload and solution of the starters of FlashInfer-Bench's form."""
    found = []
    for file in sorted(STARTERS.glob("definitions/*/*.json")):
        definition = json.loads(file.read_text())
        name = definition["name"]
        rows = next(STARTERS.glob(f"workloads/*/{name}.jsonl")).read_text().splitlines()
        solution = json.loads(next(STARTERS.glob(f"solutions/**/{name}/*.json")).read_text())
        found.append((definition, json.loads(rows[0])["workload"], solution))
    return found


def _starter_written(starter: Any, out: Path, most: int) -> str:
    from accelopt.algorithm.traced_array import NotTraced
    from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Solution, Workload
    from accelopt.kernels.triton.lift.confined import lift_solution

    definition, workload, solution = starter
    try:
        algorithm = lift_solution(
            Solution.model_validate(solution), Definition.model_validate(definition),
            Workload.model_validate(workload),
        ).algorithm  # fmt: skip
    except NotTraced as refusal:
        return f"no: {refusal}"
    return _emitted(definition["name"], algorithm, out, most)


def _starter_given(torch: Any, definition: Any, workload: Any) -> list[Any]:
    torch.manual_seed(1)
    sizes = {name: axis.get("value") for name, axis in definition["axes"].items()} | workload[
        "axes"
    ]
    made: list[Any] = []
    for name, spec in definition["inputs"].items():
        if spec["shape"] is None:
            made.append(workload["inputs"][name]["value"])
            continue
        shape = [sizes[axis] for axis in spec["shape"]]
        if name == "kv_indptr":
            whole = sizes.get("num_kv_indices", sizes.get("total_kv"))
            made.append(torch.arange(shape[0]).mul(whole // (shape[0] - 1)).int().cuda())
        elif name == "qo_indptr":
            made.append(torch.arange(shape[0]).mul(sizes["total_q"] // (shape[0] - 1)).int().cuda())
        elif name == "kv_indices":
            made.append(torch.randperm(sizes["num_pages"])[: shape[0]].int().cuda())
        elif name == "kv_last_page_len":
            made.append(torch.full(shape, sizes["page_size"]).int().cuda())
        elif "int" in spec["dtype"]:
            made.append(torch.arange(shape[0]).remainder(4096).int().cuda())
        else:
            made.append(torch.randn(shape, device="cuda").to(getattr(torch, spec["dtype"])))
    return made


def _from_text(name: str, file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def starter_timed(starter: Any, out: Path) -> dict[str, Any]:
    """As `timed`, of a starter."""
    import torch

    definition, workload, solution = starter
    name, entry = definition["name"], solution["spec"]["entry_point"].split("::")
    text = next(s["content"] for s in solution["sources"] if s["path"] == entry[0])
    (out / f"start_{name}.txt.py").write_text(text)
    start = getattr(_from_text(f"start_{name}", out / f"start_{name}.txt.py"), entry[1])
    looped = "for " in definition["reference"]
    (out / f"reference_{name}.txt.py").write_text(definition["reference"])
    reference = _from_text(f"reference_{name}", out / f"reference_{name}.txt.py").run
    given = lambda: _starter_given(torch, definition, workload)  # noqa: E731
    return _measured(name, start, given, None if looped else reference, out)


def _tensors(torch: Any, returned: Any) -> list[Any]:
    if isinstance(returned, torch.Tensor):
        return [returned]
    if isinstance(returned, (tuple, list)):
        return [tensor for part in returned for tensor in _tensors(torch, part)]
    return []


def _given(torch: Any, problem: Problem) -> list[Any]:
    torch.manual_seed(1)
    made = []
    for shape, dtype in problem.inputs:
        if dtype == "int64":
            made.append(torch.randint(0, problem.most, shape, device="cuda"))
        else:
            made.append(torch.randn(shape, device="cuda").to(getattr(torch, dtype)))
    return made


def _away(one: Any, other: Any) -> float:
    """The L2 norm of a difference, relative to the wanted values'."""
    one, other = one.double().flatten(), other.double().flatten()
    return float((one - other).norm() / other.norm().clamp_min(1e-30))


ON_A_DEVICE = """
from triton.language.extra.cuda import libdevice

tanh = triton_tanh = libdevice.tanh


def calculate_settings(n):
    block = triton.next_power_of_2(n)
    return block, 32 if block >= 32768 else 16 if block >= 8192 else 8 if block >= 2048 else 4
"""
"""What that package's own module, which asks for models and backends, has in place of `SHIMS`."""


def timed(problem: Problem, folders: list[Path], out: Path) -> dict[str, Any]:
    """Milliseconds of the start, the candidates and torch.compile."""
    import torch

    case = _case(problem)
    found = located(case, folders)
    assert found is not None
    file, root = found
    sys.path[:0] = [str(root), str(file.parent)]
    sys.meta_path.append(_Missing())
    try:
        with shells(root):
            if case.file.startswith("unsloth"):
                (out / "triton_shims.txt.py").write_text(SHIMS + ON_A_DEVICE)
                own = _from_text("unsloth.kernels.utils", out / "triton_shims.txt.py")
                sys.modules["unsloth.kernels.utils"] = own
            module = _imported(case.file.removesuffix(".py").replace("/", "."))
            return _measured(
                _name(problem), lambda *given: case.call(module, *given), lambda: _given(torch, problem),
                lambda *given: problem.torch(torch, *given), out,
            )  # fmt: skip
    finally:
        del sys.path[:2]


def _measured(
    name: str, start: Callable[..., Any], inputs: Callable[[], list[Any]],
    reference: Callable[..., Any] | None, out: Path,
) -> dict[str, Any]:  # fmt: skip
    import torch
    from triton.testing import do_bench

    def ms(function: Callable[..., Any]) -> float:
        given = inputs()
        return float(do_bench(lambda: function(*given), warmup=20, rep=80, return_mode="median"))

    row: dict[str, Any] = {"case": name, "candidates": []}
    wanted = _tensors(torch, start(*inputs()))
    row["start"] = ms(start)
    for file in sorted(out.glob(f"{name}.*.py")):
        try:
            emitted = _from_text(f"emitted_{file.stem.replace('.', '_')}", file).run
            parameters = len(inspect.signature(emitted).parameters)
            made = _tensors(torch, emitted(*inputs()[:parameters]))
            away = max(map(_away, made, wanted))
            row["candidates"].append(
                (ms(lambda *given, e=emitted, n=parameters: e(*given[:n])), away)
            )
        except Exception as error:
            said = str(error).strip().splitlines() or [""]
            row["candidates"].append((math.inf, f"{type(error).__name__}: {said[0]}"))
    if reference is None:
        return row
    try:
        torch._dynamo.reset()
        compiled = torch.compile(reference)
        compiled(*inputs())
        row["compile"], row["eager"] = ms(compiled), ms(reference)
    except Exception as error:
        row["compile_failure"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return row


CLOSE = 1e-2
"""Relative L2 error by which two kernels in 16 bits, or by tf32, may differ."""


def main() -> None:
    """Writes or times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("write", "time"))
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--only", default="")
    parser.add_argument("--most", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=450)
    options = parser.parse_args()
    folders = [folder.resolve() for folder in options.folders]
    options.out.mkdir(parents=True, exist_ok=True)
    begun, gains, beside = time.monotonic(), list[float](), list[float]()
    every: list[Any] = [*PROBLEMS, *_starters()]
    if len(every) == len(PROBLEMS):
        print(f"no starters: {STARTERS} is not there")
    for one in every:
        name = one.case if isinstance(one, Problem) else one[0]["name"]
        if options.only not in name:
            continue
        before = time.monotonic()
        if options.what == "write":
            said = (
                written(one, folders, options.out, options.most)
                if isinstance(one, Problem)
                else _starter_written(one, options.out, options.most)
            )
            print(f"{name:40}{time.monotonic() - before:6.1f} s  {said}", flush=True)
            continue
        if before - begun > options.seconds:
            print(f"{name:40} no time left")
            continue
        try:
            row = (
                timed(one, folders, options.out)
                if isinstance(one, Problem)
                else starter_timed(one, options.out)
            )
        except Exception:
            print(f"{name:40} {traceback.format_exc()[-600:]}", flush=True)
            continue
        right = [ms for ms, away in row["candidates"] if isinstance(away, float) and away < CLOSE]
        best = min(right, default=math.inf)
        gains.append(row["start"] / min(best, row["start"]))
        if "compile" in row:
            beside.append(row["compile"] / min(best, row["start"]))
        print(f"{name:40} gain {row['start'] / best:.3f}  {json.dumps(row)}", flush=True)
    if gains:
        print(f"geometric mean of gains {statistics.geometric_mean(gains):.3f}, each at least 1")
    if beside:
        print(f"torch.compile over the best {statistics.geometric_mean(beside):.3f}")


if __name__ == "__main__":
    main()

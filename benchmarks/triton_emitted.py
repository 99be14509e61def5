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
from triton_reach import _imported, _Missing, located, shells

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
)  # fmt: skip
_NAMED = {case.name: case for case in CASES}


def _name(problem: Problem) -> str:
    return problem.case.replace(" ", "_")


def _case(problem: Problem) -> Case:
    case = _NAMED[problem.case]
    return case if problem.call is None else Case(case.name, case.file, problem.call, ())


def written(problem: Problem, folders: list[Path], out: Path, most: int) -> str:
    """Writes the candidates of a problem, and what they are in a line."""
    from accelopt.algorithm.deep_recursion import deep_recursion
    from accelopt.algorithm.traced_array import NotTraced
    from accelopt.hardware.gpus import H100
    from accelopt.kernels.triton.emission.module_text import source_of
    from accelopt.kernels.triton.emission.planning import plans
    from accelopt.kernels.triton.emission.schedule import NotEmitted
    from accelopt.kernels.triton.lift.lifting import Like, lift_launches

    case = _case(problem)
    found = located(case, folders)
    if found is None:
        return "no such file"
    file, root = found
    given = [Like(shape, dtype) for shape, dtype in problem.inputs]
    for old in out.glob(f"{_name(problem)}.*"):
        old.unlink()
    try:
        with shells(root), deep_recursion():
            algorithm = lift_launches(file, case.call, given, folders=[str(root)])
            ranked = plans(algorithm, H100, most)
            for number, plan in enumerate(ranked):
                text = source_of(algorithm, plan.schedule)
                (out / f"{_name(problem)}.{number}.py").write_text(text)
    except (NotTraced, NotEmitted) as refusal:
        return f"no: {refusal}"
    rows = [[plan.seconds * 1e3, plan.schedule.model_dump()] for plan in ranked]
    (out / f"{_name(problem)}.json").write_text(json.dumps(rows))
    return f"{len(ranked)} candidates, {ranked[0].seconds * 1e3:.4f} ms expected"


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


def timed(problem: Problem, folders: list[Path], out: Path) -> dict[str, Any]:
    """Milliseconds of the start, the candidates and torch.compile."""
    import torch
    from triton.testing import do_bench

    case = _case(problem)
    found = located(case, folders)
    assert found is not None
    file, root = found
    sys.path[:0] = [str(root), str(file.parent)]
    sys.meta_path.append(_Missing())
    row: dict[str, Any] = {"case": problem.case}

    def ms(function: Callable[[], Any]) -> float:
        return float(do_bench(function, warmup=20, rep=80, return_mode="median"))

    with shells(root):
        module = _imported(case.file.removesuffix(".py").replace("/", "."))
        given = _given(torch, problem)
        wanted = _tensors(torch, case.call(module, *[x.clone() for x in given]))
        row["start"] = ms(lambda: case.call(module, *given))
        for text in sorted(out.glob(f"{_name(problem)}.*.py")):
            own = f"emitted_{text.stem.replace('.', '_')}"
            spec = importlib.util.spec_from_file_location(own, text)
            assert spec is not None and spec.loader is not None
            emitted = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(emitted)
                given = _given(torch, problem)
                made = _tensors(torch, emitted.run(*given))
                away = max(map(_away, made, wanted))
                ran = ms(lambda e=emitted, g=given: e.run(*g))  # type: ignore[misc]
                row.setdefault("candidates", []).append((ran, away))
            except Exception as error:
                said = str(error).strip().splitlines() or [""]
                row.setdefault("candidates", []).append(
                    (math.inf, f"{type(error).__name__}: {said[0]}")
                )
    del sys.path[:2]
    given = _given(torch, problem)
    try:
        torch._dynamo.reset()
        compiled = torch.compile(lambda *tensors: problem.torch(torch, *tensors))
        compiled(*given)
        row["compile"] = ms(lambda: compiled(*given))
        row["eager"] = ms(lambda: problem.torch(torch, *given))
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
    for problem in PROBLEMS:
        if options.only not in problem.case:
            continue
        if options.what == "write":
            before = time.monotonic()
            said = written(problem, folders, options.out, options.most)
            print(f"{problem.case:24}{time.monotonic() - before:6.1f} s  {said}", flush=True)
            continue
        if time.monotonic() - begun > options.seconds:
            print(f"{problem.case:24} no time left")
            continue
        try:
            row = timed(problem, folders, options.out)
        except Exception:
            print(f"{problem.case:24} {traceback.format_exc()[-600:]}", flush=True)
            continue
        right = [
            ms for ms, away in row.get("candidates", ()) if isinstance(away, float) and away < CLOSE
        ]
        best = min(right, default=math.inf)
        gains.append(row["start"] / min(best, row["start"]))
        if "compile" in row:
            beside.append(row["compile"] / min(best, row["start"]))
        print(f"{problem.case:24} gain {row['start'] / best:.3f}  {json.dumps(row)}", flush=True)
    if gains:
        print(f"geometric mean of gains {statistics.geometric_mean(gains):.3f}, each at least 1")
    if beside:
        print(f"torch.compile over the best {statistics.geometric_mean(beside):.3f}")


if __name__ == "__main__":
    main()

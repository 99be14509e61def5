"""The child process that judges outputs. The candidate's code never runs here.

It makes the same inputs from the same seeds, runs the definition's own reference on them, and
compares files of raw output bytes, if they are what was sealed, with what the reference gives.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelopt.evaluation import Exactness
from accelopt.kernels.gpu.bench.files.input_draws import EVEN, Draw, fresh
from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Trace
from accelopt.kernels.gpu.bench.process import installed_flashinfer_bench
from accelopt.kernels.gpu.bench.process import messages as say
from accelopt.kernels.gpu.bench.process.comparison import (
    DISTURBANCE,
    Figures,
    Steady,
    Tolerance,
    all_rows,
    compare,
    limit_of,
    single_limit,
    steady_rows,
    whole_change,
)
from accelopt.kernels.gpu.bench.process.exact_reference import (
    ExactReference,
    distance,
    exactness_of,
    nudged,
)
from accelopt.kernels.gpu.bench.process.hardware_and_versions import describe
from accelopt.kernels.gpu.bench.process.inductor_text import inductor_text
from accelopt.kernels.gpu.bench.process.inputs import InputFactory, torch_dtype
from accelopt.kernels.gpu.bench.process.output_seals import Sealer
from accelopt.kernels.gpu.bench.process.timing import BUSY_SECONDS, Clock, summarise
from accelopt.sandbox.serving import Handlers

# Of an output on disturbed inputs: beyond it the problem amplifies rounding, and not all rows are judged.
MOST_CHANGE = 0.2
# Values up to 1e4: a bfloat16 product of them ties where fp32 does not.
EXTREME = ("huge", "spiked")
TF32_CUTS = 13  # of float32's 23 bits
SLOW_SECONDS = 0.3  # of one call, first or not: beyond it launches and clocks do not matter


class Referee:
    """The reference of one definition on one workload."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        import torch

        self.torch = torch
        self.definition = Definition.model_validate(payload["definition"])
        self.workload = Trace.model_validate(payload["workload"]).workload
        self.folder = Path(payload["folder"])
        self.device = torch.device(payload["device"])
        self.tolerance = Tolerance(**payload["tolerance"])
        self.inputs = InputFactory(
            Path(payload["root"]), self.definition, self.workload, str(self.device)
        )
        self.sealer = Sealer(self.device)
        self.coarse = any(
            spec.dtype.startswith(("float8", "float4")) for spec in self.definition.inputs.values()
        )
        module = types.ModuleType("reference")
        sys.modules[module.__name__] = module  # `torch.compile` imports a function's module
        exec(compile(self.definition.reference, "<reference>", "exec"), module.__dict__)
        self.function = module.__dict__["run"]
        self.wanted: dict[Draw, list[Any]] = {}
        self.exact = ExactReference(self.function)
        self.cut: list[float] | None = None
        self.rounded: list[float] | None = (
            None  # what outputs change by when inputs are rounded once more
        )

    def introduce(self, _: say.Introduce) -> say.DeviceEnvironment:
        """Versions and the device's name."""
        return describe(self.torch, self.device)

    def _reference(self, draw: Draw) -> list[Any]:
        if draw not in self.wanted:
            self.wanted.clear()  # one draw at a time: outputs can be gigabytes
            with self.torch.no_grad():
                self.wanted[draw] = self._as_tensors(self.function(*self.inputs.make(draw)))
        return self.wanted[draw]

    def _as_tensors(self, result: Any) -> list[Any]:
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        if isinstance(result, dict):
            outputs = [result[name] for name in self.definition.outputs]
        specs = self.definition.outputs.values()
        return [
            value if isinstance(value, self.torch.Tensor)
            else self.torch.tensor(value, dtype=torch_dtype(spec.dtype), device=self.device)
            for value, spec in zip(outputs, specs, strict=True)
        ]  # fmt: skip

    def judge(self, asked: say.Judge) -> say.Judged:
        """Compare the files of one call with the reference for the same draw."""
        draw = asked.draw
        try:
            wanted = self._reference(draw)
        except Exception as error:  # a reference need not know what to do with empty sequences
            if draw.lengths == EVEN and not draw.scalars:
                raise
            return say.Judged(skipped=f"the reference fails on these inputs: {error}")
        if draw.unusual and any(bool(self.torch.isnan(value).any()) for value in wanted):
            return say.Judged(skipped="the reference is not a number on these inputs")
        steady: list[Steady] = []
        if draw.stressed:
            if any(not bool(self.torch.isfinite(value).all()) for value in wanted):
                return say.Judged(skipped="the reference is not finite on these inputs")
            steady = self._steady(draw, wanted)
            if any(2 * int(one.rows.sum()) < one.rows.numel() for one in steady):
                return say.Judged(skipped="the problem amplifies rounding on these inputs")
        got = [
            self._read(self.folder / f"{asked.name}_{index}.bin", value)
            for index, value in enumerate(wanted)
        ]
        if asked.seals is not None and not self._sealed(got, asked):
            return say.Judged(broken=True)
        if not steady and self.cut is None:
            self.cut = self._changes_by_a_cut(draw, wanted)
        figures = tuple(self._figures(got, wanted, steady))
        exact = (
            self._exactness(draw, got, wanted)
            if asked.exactly and not (steady or self.coarse)
            else ()
        )
        tf32 = self.cut if self.cut and self.exact.has_products else [0.0] * len(exact)
        return say.Judged(figures=figures, exactness=exact, in_tf32=tuple(tf32))

    def _exactness(self, draw: Draw, got: list[Any], wanted: list[Any]) -> tuple[Exactness, ...]:
        """How exact floating-point outputs are; nothing where the reference cannot be had in float64."""
        floats = [at for at, value in enumerate(wanted) if value.is_floating_point()]
        limits = [
            limit_of(str(value.dtype).removeprefix("torch."), coarse=False) for value in wanted
        ]
        try:
            exact = self._in_float64(self.inputs.make(draw))
            if self.rounded is None:
                once_more = self._in_float64(nudged(self.inputs.make(draw), draw.seed + 1))
                self.rounded = [distance(*pair) for pair in zip(once_more, exact, strict=True)]
        except self.torch.OutOfMemoryError:
            raise
        except Exception:  # a reference that reads bits, or calls what takes no float64
            return ()
        if any(not distance(wanted[at], exact[at]) <= limits[at] for at in floats):
            return ()
        return tuple(
            exactness_of(got[at], wanted[at], exact[at], self.rounded[at]) for at in floats
        )

    def _in_float64(self, inputs: list[Any]) -> list[Any]:
        return self._as_tensors(self.exact(inputs))

    def _sealed(self, got: list[Any], asked: say.Judge) -> bool:
        return tuple(self.sealer.seal(got, asked.key).tolist()) == asked.seals

    def _figures(self, got: list[Any], wanted: list[Any], steady: list[Steady]) -> list[Figures]:
        found = []
        for index, name in enumerate(self.definition.outputs):
            mine, value = got[index], wanted[index]
            limit = limit_of(str(value.dtype).removeprefix("torch."), coarse=self.coarse)
            if not steady and self.cut:
                limit = single_limit(limit, self.cut[index])
            if steady:
                strange = ~self.torch.isfinite(mine)
                mine = self.torch.where(steady[index].rows | strange, mine, value)
                limit += steady[index].allowance
            spared = steady[index].spared if steady else 0.0
            found.append(compare(name, mine, value, self.tolerance, limit,
                                 elementwise=not steady, spared=spared))  # fmt: skip
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()  # others share the device's memory
        return found

    def _steady(self, draw: Draw, wanted: list[Any]) -> list[Steady]:
        """What of each output is judged on unusual values: all of it, unless the problem amplifies rounding
        there, or values are so large that rounding exchanges rows."""
        if draw.values not in EXTREME:
            disturbed = self._disturbed(draw, 1.0, unit=False)
            worst = max(whole_change(was, now) for was, now in zip(wanted, disturbed, strict=True))
            if worst <= MOST_CHANGE:
                return [all_rows(was, worst) for was in wanted]
        # Of two values that nearly tie, one of the two disturbances exchanges them.
        both = [self._disturbed(draw, sign, unit=True) for sign in (1.0, -1.0)]
        return [steady_rows(was, now) for was, *now in zip(wanted, *both, strict=True)]

    def _disturbed(self, draw: Draw, sign: float, *, unit: bool) -> list[Any]:
        """The reference on inputs whose floating-point values are off by at most `DISTURBANCE`; with `unit`
        by a unit of their format where that is more: less would be rounded away."""
        inputs = self.inputs.make(draw)
        generator = self.torch.Generator(device=self.device).manual_seed(draw.seed + 1)
        for tensor in inputs:
            if not (isinstance(tensor, self.torch.Tensor) and tensor.is_floating_point()):
                continue
            if tensor.element_size() > 1:
                noise = self.torch.empty(
                    tensor.shape, dtype=self.torch.float32, device=self.device
                ).uniform_(-1.0, 1.0, generator=generator)
                least = float(self.torch.finfo(tensor.dtype).eps) if unit else 0.0
                by = sign * max(DISTURBANCE, least)
                tensor.copy_(tensor.to(self.torch.float32) * (1 + by * noise))
        with self.torch.no_grad():
            return self._as_tensors(self.function(*inputs))

    def _changes_by_a_cut(self, draw: Draw, wanted: list[Any]) -> list[float]:
        """How much outputs change when float32 inputs are cut off to TF32; nothing where some are no float32."""
        torch, inputs = self.torch, self.inputs.make(draw)
        tensors = [
            one for one in inputs if isinstance(one, torch.Tensor) and one.is_floating_point()
        ]
        if any(one.dtype != torch.float32 for one in (*tensors, *wanted)) or not tensors:
            return []
        for one in tensors:
            one.view(torch.int32).bitwise_and_(-(1 << TF32_CUTS))
        with torch.no_grad():
            cut = self._as_tensors(self.function(*inputs))
        return [whole_change(was, now) for was, now in zip(wanted, cut, strict=True)]

    def _read(self, path: Path, like: Any) -> Any:
        """A file of raw bytes as a tensor like the reference's."""
        expected = like.numel() * like.element_size()
        if path.stat().st_size != expected:
            raise ValueError(f"{path.name} has {path.stat().st_size} bytes, not {expected}")
        if expected == 0:
            return self.torch.empty_like(like)
        raw = self.torch.from_file(str(path), shared=False, size=expected, dtype=self.torch.uint8)
        return raw.to(self.device).view(like.dtype).reshape(like.shape)

    def expect(self, asked: say.Expect) -> say.Expected:
        """Shapes and dtypes of the reference's outputs."""
        return say.Expected(outputs=tuple(map(say.described, self._reference(asked.draw))))

    def resize(self, asked: say.Resize) -> say.Done:
        """Take another workload."""
        self.wanted.clear()
        self.cut = self.rounded = None
        self.inputs = self.inputs.of(asked.workload)
        return say.Done()

    def time(self, asked: say.TimeReference) -> say.ReferenceTimed:
        """Launch-free latency of the reference, timed as candidates are: milliseconds."""
        clock = Clock(self.device)
        warm, *sets = [self.inputs.make(fresh()) for _ in range(5)]
        samples: list[float] = []

        def heat(_: int = 0) -> None:
            self._call(warm)

        with self.torch.no_grad():
            begin = time.perf_counter()
            heat()
            clock.synchronize()
            if time.perf_counter() - begin > SLOW_SECONDS:
                return self._time_slowly(clock, sets[:1])
            backlog = clock.backlog_ms(self._call, sets, heat)
            begin = time.perf_counter()
            for _ in range(asked.rounds):
                clock.warm_up(heat, BUSY_SECONDS)
                samples += clock.round(self._call, sets, backlog, heat)[0]
                if time.perf_counter() - begin > asked.seconds:
                    break
        return say.ReferenceTimed(latency=summarise(samples))

    def _time_slowly(self, clock: Clock, sets: list[list[Any]]) -> say.ReferenceTimed:
        """A reference that takes long: three calls, for nothing about it is a matter of heat."""
        samples = [clock.round(self._call, sets, 0.0)[0][0] for _ in range(3)]
        return say.ReferenceTimed(latency=summarise(samples))

    def write_inductor(self, _: say.WriteInductor) -> say.InductorText:
        """What `torch.compile` makes of the reference."""
        return inductor_text(self.function, self.definition, self.inputs.make(fresh()))

    def package(self, asked: say.Package) -> say.Latency:
        """The package's own timer on the reference: mean over trials, milliseconds."""
        time_runnable = installed_flashinfer_bench.timer()
        latencies = []
        with self.torch.no_grad():
            for _ in range(asked.trials):
                inputs = self.inputs.make(fresh())
                latencies.append(
                    time_runnable(
                        self.function, inputs, asked.warmup_runs, asked.iterations,
                        str(self.device),
                    )
                )  # fmt: skip
        return say.Latency(milliseconds=sum(latencies) / len(latencies))

    def _call(self, inputs: list[Any]) -> Any:
        return self.function(*inputs)


def handlers(payload: Mapping[str, Any]) -> Handlers:
    """What this process answers."""
    referee = Referee(payload)
    return {
        say.Introduce: referee.introduce,
        say.Expect: referee.expect,
        say.Resize: referee.resize,
        say.Judge: referee.judge,
        say.TimeReference: referee.time,
        say.Package: referee.package,
        say.WriteInductor: referee.write_inductor,
    }

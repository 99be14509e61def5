"""The child process that judges outputs. The candidate's code never runs here.

    python -m accelopt.kernels.triton.bench.referee REQUEST_FILE READ_FD WRITE_FD

It makes the same inputs from the same seeds, runs the definition's own reference on them, and
compares files of raw output bytes with what the reference gives.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from accelopt.kernels.triton.bench.channel import Channel, Message
from accelopt.kernels.triton.bench.comparison import Tolerance, compare, limit_of
from accelopt.kernels.triton.bench.inputs import Draw, InputFactory, torch_dtype
from accelopt.kernels.triton.bench.surroundings import describe_environment
from accelopt.kernels.triton.bench.timing import BUSY_SECONDS, Clock, summarise
from accelopt.kernels.triton.bench.tracefiles import Definition, Trace

# Inputs are disturbed by this share to learn how much the problem itself amplifies rounding.
DISTURBANCE = 2.0**-9
SLOW_SECONDS = 0.3  # of one call, first or not: beyond it launches and clocks do not matter


class Referee:
    """The reference of one definition on one workload."""

    def __init__(self, request: Message) -> None:
        import torch

        self.torch = torch
        self.definition = Definition.model_validate(request["definition"])
        self.workload = Trace.model_validate(request["workload"]).workload
        self.folder = Path(request["folder"])
        self.device = torch.device(request["device"])
        self.tolerance = Tolerance(**request["tolerance"])
        self.inputs = InputFactory(
            Path(request["root"]), self.definition, self.workload, str(self.device)
        )
        self.coarse = any(
            spec.dtype.startswith(("float8", "float4")) for spec in self.definition.inputs.values()
        )
        namespace: dict[str, Any] = {"__name__": "reference"}
        exec(compile(self.definition.reference, "<reference>", "exec"), namespace)
        self.function = namespace["run"]
        self.wanted: dict[Draw, list[Any]] = {}

    def reference(self, message: Message) -> Message:
        """Compute the reference for a draw ahead of time, so that judging need not wait."""
        self._reference(Draw(**message["draw"]))
        return {"status": "ran"}

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

    def judge(self, message: Message) -> Message:
        """Compare the files of one call with the reference for the same draw."""
        draw = Draw(**message["draw"])
        wanted = self._reference(draw)
        amplification = 0.0
        stress = draw.scale != 1.0
        if stress:
            if any(not bool(self.torch.isfinite(value).all()) for value in wanted):
                return {"status": "skipped", "why": "the reference is not finite on these inputs"}
            amplification = self._amplification(draw, wanted)
            if amplification > 0.2:
                return {
                    "status": "skipped",
                    "why": "the problem amplifies rounding on these inputs",
                }
        figures = []
        for index, (name, value) in enumerate(zip(self.definition.outputs, wanted, strict=True)):
            dtype = str(value.dtype).removeprefix("torch.")
            got = self._read(self.folder / f"{message['name']}_{index}.bin", value)
            limit = limit_of(dtype, coarse=self.coarse) + amplification
            figures.append(
                compare(name, got, value, self.tolerance, limit, elementwise=not stress)._asdict()
            )
            (self.folder / f"{message['name']}_{index}.bin").unlink()
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()  # others share the device's memory
        return {"status": "judged", "figures": figures}

    def _amplification(self, draw: Draw, wanted: list[Any]) -> float:
        """Relative change of the reference when its inputs change by `DISTURBANCE`."""
        inputs = self.inputs.make(draw)
        generator = self.torch.Generator(device=self.device).manual_seed(draw.seed + 1)
        for tensor in inputs:
            if not (isinstance(tensor, self.torch.Tensor) and tensor.is_floating_point()):
                continue
            if tensor.element_size() > 1:
                noise = self.torch.empty(
                    tensor.shape, dtype=self.torch.float32, device=self.device
                ).uniform_(-DISTURBANCE, DISTURBANCE, generator=generator)
                tensor.mul_(1 + noise)
        with self.torch.no_grad():
            disturbed = self._as_tensors(self.function(*inputs))
        worst = 0.0
        for was, now in zip(wanted, disturbed, strict=True):
            size = float(self.torch.linalg.vector_norm(was.to(self.torch.float32)))
            gap = float(
                self.torch.linalg.vector_norm(
                    was.to(self.torch.float32) - now.to(self.torch.float32)
                )
            )
            worst = max(worst, gap / max(size, 1e-30))
        return worst

    def _read(self, path: Path, like: Any) -> Any:
        """A file of raw bytes as a tensor like the reference's."""
        expected = like.numel() * like.element_size()
        if path.stat().st_size != expected:
            raise ValueError(f"{path.name} has {path.stat().st_size} bytes, not {expected}")
        if expected == 0:
            return self.torch.empty_like(like)
        raw = self.torch.from_file(str(path), shared=False, size=expected, dtype=self.torch.uint8)
        return raw.to(self.device).view(like.dtype).reshape(like.shape)

    def expectation(self, message: Message) -> Message:
        """Shapes and dtypes of the reference's outputs."""
        wanted = self._reference(Draw(**message["draw"]))
        return {
            "status": "ran",
            "outputs": [
                {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
                for value in wanted
            ],
        }

    def time(self, message: Message) -> Message:
        """Launch-free latency of the reference, timed as candidates are: milliseconds."""
        clock = Clock(self.device)
        warm, *sets = [self.inputs.make(Draw(int(seed))) for seed in message["seeds"]]
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
            for _ in range(int(message["rounds"])):
                clock.settle(heat, BUSY_SECONDS)
                samples += clock.round(self._call, sets, backlog, heat)[0]
                if time.perf_counter() - begin > message["seconds"]:
                    break
        return {"status": "ran", "latency": summarise(samples)._asdict()}

    def _time_slowly(self, clock: Clock, sets: list[list[Any]]) -> Message:
        """A reference that takes long: three calls, for nothing about it is a matter of heat."""
        samples = [clock.round(self._call, sets, 0.0)[0][0] for _ in range(3)]
        return {"status": "ran", "latency": summarise(samples)._asdict()}

    def package(self, message: Message) -> Message:
        """The package's own timer on the reference: mean over trials, milliseconds."""
        from flashinfer_bench.bench.timing import time_runnable

        latencies = []
        with self.torch.no_grad():
            for seed in message["seeds"]:
                inputs = self.inputs.make(Draw(int(seed)))
                latencies.append(
                    time_runnable(
                        self.function, inputs, int(message["warmup_runs"]),
                        int(message["iterations"]), str(self.device),
                    )
                )  # fmt: skip
        return {"status": "ran", "latency_ms": sum(latencies) / len(latencies)}

    def _call(self, inputs: list[Any]) -> Any:
        return self.function(*inputs)


def main() -> None:
    """Answer requests until the parent closes the pipe."""
    request = json.loads(Path(sys.argv[1]).read_text())
    channel = Channel(int(sys.argv[2]), int(sys.argv[3]))
    referee = Referee(request)
    channel.send({"status": "ready", **describe_environment(referee.torch, referee.device)})
    while (message := channel.receive()) is not None:
        try:
            reply = getattr(referee, message["request"])(message)
        except Exception as error:  # a reference that fails is reported, not raised
            reply = {
                "status": "raised",
                "error": type(error).__name__,
                "message": str(error)[:20000],
                "traceback": traceback.format_exc()[-20000:],
            }
        channel.send(reply)


if __name__ == "__main__":
    main()

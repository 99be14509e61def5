"""The child process in which a candidate lives: loads it, calls it, times it.

    python -m accelopt.kernels.triton.bench.candidate REQUEST_FILE READ_FD WRITE_FD

Everything this process says is a claim. Inputs come from seeds that the parent tells when they are
needed; outputs go to files that another process, where the candidate never ran, compares with the
reference; the parent's own clock checks the latencies.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accelopt.kernels.triton.bench.channel import Channel, Message
from accelopt.kernels.triton.bench.guard import difference, guarded_functions, share_memory
from accelopt.kernels.triton.bench.inputs import Draw, InputFactory, torch_dtype
from accelopt.kernels.triton.bench.loading import load_entry
from accelopt.kernels.triton.bench.observation import (
    LaunchCounter,
    recording_operators,
    watching_kernels,
)
from accelopt.kernels.triton.bench.surroundings import describe_environment
from accelopt.kernels.triton.bench.timing import BUSY_SECONDS, Clock
from accelopt.kernels.triton.bench.tracefiles import Definition, Solution, Trace

SET_BUDGET_BYTES = 24 << 30
MOST_SETS = 8
ROUND_SECONDS = 0.3  # a slow kernel is timed on fewer sets a round
PACKAGE_SECONDS = 4.0  # beyond this the package's timer gets fewer iterations


class Candidate:
    """A loaded solution with the harness's own references to what it must not replace."""

    def __init__(self, request: Message) -> None:
        import torch

        self.torch = torch
        self.definition = Definition.model_validate(request["definition"])
        workload = Trace.model_validate(request["workload"]).workload
        self.solution = Solution.model_validate(request["solution"])
        self.folder = Path(request["folder"])
        self.device = torch.device(request["device"])
        self.destination_passing = bool(request["destination_passing_style"])
        self.workload = workload
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.cuda.init()
        self.inputs = InputFactory(
            Path(request["root"]), self.definition, workload, str(self.device)
        )
        self.clock = Clock(self.device)
        self.counter = LaunchCounter()
        self.guarded = guarded_functions(torch)
        self.sets: list[list[Any]] = []
        self.warm: list[Any] = []
        self.kept: dict[str, list[Any]] = {}
        self.copy = torch.Tensor.clone
        self.backlog_ms = 0.0
        self.call_seconds = 1.0
        self.function: Callable[..., Any] = _missing

    def load(self, message: Message) -> Message:
        """Import the sources and find the entry point."""
        self.function = load_entry(self.solution, self.folder / "source", self.definition)
        return {"status": "loaded"}

    def call(self, inputs: list[Any]) -> list[Any]:
        """One call; the outputs as a list, exactly as they came."""
        if self.destination_passing:
            outputs = self._allocate()
            self.function(*inputs, *outputs)
            return outputs
        result = self.function(*inputs)
        return list(result) if isinstance(result, (tuple, list)) else [result]

    def _allocate(self) -> list[Any]:
        made = []
        for spec in self.definition.outputs.values():
            shape = self.definition.shape(spec, self.workload) or ()
            made.append(self.torch.empty(shape, dtype=torch_dtype(spec.dtype), device=self.device))
        return made

    def _poison(self) -> None:
        """Leave NaN in the memory that the allocator will hand out next for the outputs."""
        for tensor in self._allocate():
            if tensor.is_floating_point() and tensor.element_size() > 1:
                tensor.fill_(float("nan"))
            else:
                tensor.view(self.torch.uint8).fill_(0x7F)

    def check(self, message: Message) -> Message:
        """One call on fresh inputs; outputs to files, and whether the inputs stayed as they were."""
        draw = Draw(**message["draw"])
        inputs = self.inputs.make(draw)
        self._poison()
        heavy: dict[str, int] = {}
        before = self.counter.count
        with self.torch.no_grad():
            if message.get("observe"):
                with recording_operators(heavy):
                    outputs = self.call(inputs)
            else:
                outputs = self.call(inputs)
        self.clock.synchronize()
        reply = self._describe(outputs, message["name"])
        reply["mutated"] = self._mutated(inputs, draw)
        reply["launches"] = self.counter.count - before
        reply["heavy"] = heavy
        reply["replaced"] = self._replaced()
        del inputs, outputs
        self.clock.release()
        return reply

    def _describe(self, outputs: list[Any], name: str) -> Message:
        """Type, shape and dtype of each output; the plain ones are also written to files."""
        described = []
        for index, output in enumerate(outputs):
            plain = type(output) is self.torch.Tensor and output.layout == self.torch.strided
            entry: Message = {"type": type(output).__name__, "plain": plain}
            if plain:
                entry["shape"] = list(output.shape)
                entry["dtype"] = str(output.dtype).removeprefix("torch.")
                entry["device"] = output.device.type
                path = self.folder / f"{name}_{index}.bin"
                data = output.detach().contiguous().cpu().reshape(-1).view(self.torch.uint8)
                data.numpy().tofile(path)
                entry["file"] = str(path)
            elif isinstance(output, (int, float, bool)):
                entry["value"] = output
            described.append(entry)
        return {"status": "ran", "outputs": described}

    def _mutated(self, inputs: list[Any], draw: Draw) -> list[str]:
        """Names of inputs that no longer hold what they were given."""
        pristine = self.inputs.make(draw)
        names = list(self.definition.inputs)
        changed = []
        for name, was, now in zip(names, pristine, inputs, strict=True):
            if isinstance(was, self.torch.Tensor):
                raw = self.torch.uint8
                same = self.torch.equal(was.reshape(-1).view(raw), now.reshape(-1).view(raw))
                if not same:
                    changed.append(name)
        return changed

    def _replaced(self) -> list[str]:
        """Functions of the library that are no longer the ones this process started with."""
        return [
            name for name, (owner, key, value) in self.guarded.items()
            if getattr(owner, key, None) is not value
        ]  # fmt: skip

    def prepare(self, message: Message) -> Message:
        """Allocate the sets of a round and learn how long the host takes to queue one."""
        first = self.inputs.make(Draw(int(message["seed"])))
        sizes = [t.numel() * t.element_size() for t in first if hasattr(t, "numel")]
        outputs = sum(t.numel() * t.element_size() for t in self._allocate())
        one = max(1, sum(sizes) + 3 * outputs)
        count = int(min(MOST_SETS, SET_BUDGET_BYTES // one, message.get("sets", MOST_SETS)))
        self.call_seconds = self._seconds(first)
        count = max(2, min(count, int(ROUND_SECONDS / self.call_seconds)))
        draws = [Draw(int(message["seed"]) + 1 + index) for index in range(count)]
        self.warm = first
        self.sets = [self.inputs.make(draw) for draw in draws]
        with self.torch.no_grad():
            self.call(self.sets[0])
            self.clock.synchronize()
            self.backlog_ms = self.clock.backlog_ms(self.call, self.sets, self._filler(draws))
            lag = self.clock.lag_ms(self.call, self.sets[0])
        call_ms = 1e3 * self.call_seconds
        return {"status": "ran", "sets": count, "lag_ms": lag, "call_ms": call_ms}

    def _filler(self, draws: list[Draw]) -> Callable[[int], None]:
        """What is queued before a timed call: a call on another set, then its set's new contents.

        In this order: what the candidate starts in the one call cannot see the contents of the next.
        """
        files = [self.inputs.files_of(draw) for draw in draws]

        def fill(index: int) -> None:
            self.call(self.warm)
            self.inputs.fill(self.sets[index], draws[index], files[index])

        return fill

    def _seconds(self, inputs: list[Any]) -> float:
        """Wall time of one call, to plan by; never zero."""
        with self.torch.no_grad():
            self.call(inputs)
            self.clock.synchronize()
            begin = time.perf_counter()
            self.call(inputs)
            self.clock.synchronize()
        return max(1e-6, time.perf_counter() - begin)

    def round(self, message: Message) -> Message:
        """Time one call for each set, with contents that are new by then, and call each once more."""
        observe = message.get("observe", "")
        fill = self._filler([Draw(**values) for values in message["draws"]])
        heavy: dict[str, int] = {}
        seen: Message = {}
        before = self.counter.count
        with self.torch.no_grad():
            self._poison()
            self.clock.settle(lambda: self.call(self.warm), BUSY_SECONDS)
            copies: list[list[Any]] = []
            results: list[list[Any]] = []

            def timed(mark: Callable[[], object] = lambda: None) -> list[float]:
                latencies, outputs = self.clock.round(
                    self.call, self.sets, self.backlog_ms, fill,
                    lambda result: copies.append(self._copied(result)), mark,
                )  # fmt: skip
                results.extend(outputs)
                return latencies

            if observe == "operators":
                with recording_operators(heavy):
                    latencies = timed()
            elif observe == "kernels":
                latencies, seen = watching_kernels(timed, self.counter, self.device)
            else:
                latencies = timed()
            launches = self.counter.count - before
            self.kept.update({name: copies[index] for name, index in message["keep"].items()})
            differences = [
                difference(self.torch, copy, self.call(inputs))
                for copy, inputs in zip(copies, self.sets, strict=True)
            ]
            self.clock.synchronize()
        return {
            "status": "ran",
            "latencies": latencies,
            "launches": launches,
            "shared": share_memory(results),
            "difference": max(differences),
            "heavy": heavy,
            "replaced": self._replaced(),
            **seen,
        }

    def _copied(self, result: list[Any]) -> list[Any]:
        """What a call returned as it is when the call ends; only plain tensors can be copied."""
        plain = self.torch.Tensor
        return [self.copy(output) if type(output) is plain else output for output in result]

    def reveal(self, message: Message) -> Message:
        """Write the outputs of a timed call that the parent asked to keep, as they then were."""
        return self._describe(self.kept.pop(message["name"]), message["name"])

    def rest(self, message: Message) -> Message:
        """Let go of the timed sets: others share the device's memory while this one is judged."""
        self.sets, self.warm = [], []
        self.clock.release()
        return {"status": "ran"}

    def batch(self, message: Message) -> Message:
        """So many calls back to back, then a synchronisation: for the parent's own clock."""
        with self.torch.no_grad():
            for index in range(int(message["calls"])):
                self.call(self.sets[index % len(self.sets)])
            self.clock.synchronize()
        return {"status": "ran"}

    def package(self, message: Message) -> Message:
        """The package's own timer on its own protocol: mean over trials, milliseconds."""
        from flashinfer_bench.bench.timing import time_runnable

        def function(*arguments: Any) -> Any:
            return self.function(*arguments)

        trials = int(message["trials"])
        calls = PACKAGE_SECONDS / trials / self._seconds(self.sets[0])
        iterations = max(3, min(int(message["iterations"]), int(calls * 0.8)))
        warmup = max(1, min(int(message["warmup_runs"]), int(calls * 0.2)))
        latencies = []
        with self.torch.no_grad():
            for inputs in self.sets[:trials]:
                arguments = [*inputs, *self._allocate()] if self.destination_passing else inputs
                latencies.append(
                    time_runnable(function, arguments, warmup, iterations, str(self.device))
                )
        return {"status": "ran", "latency_ms": sum(latencies) / len(latencies)}

    def environment(self, message: Message) -> Message:
        """Versions, the device's name and its limits."""
        return {"status": "ran", **describe_environment(self.torch, self.device)}


def _missing(*_: Any) -> Any:
    raise RuntimeError("the solution was not loaded")


def main() -> None:
    """Answer requests until the parent closes the pipe."""
    request = json.loads(Path(sys.argv[1]).read_text())
    channel = Channel(int(sys.argv[2]), int(sys.argv[3]))
    random.seed()
    candidate = Candidate(request)
    channel.send({"status": "ready", **describe_environment(candidate.torch, candidate.device)})
    while (message := channel.receive()) is not None:
        try:
            reply = getattr(candidate, message["request"])(message)
        except Exception as error:  # the one place where the candidate's exceptions become data
            reply = {
                "status": "raised",
                "error": f"{type(error).__module__}.{type(error).__qualname__}",
                "message": str(error)[:20000],
                "traceback": traceback.format_exc()[-20000:],
            }
        channel.send(reply)


if __name__ == "__main__":
    main()

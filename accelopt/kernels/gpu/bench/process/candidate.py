"""The child process in which a candidate lives: loads it, calls it, times it.

Everything this process says is a claim. Inputs come from seeds that the parent tells when they are
needed; outputs are sealed when a call ends, and go to files that another process, where the candidate
never ran, compares with the reference; the parent picks which of them only when all are sealed; and
the parent's own clock checks the latencies.
"""

from __future__ import annotations

import itertools
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accelopt.kernels.gpu.bench.files.input_draws import Draw, fresh
from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Solution, Trace
from accelopt.kernels.gpu.bench.process import installed_flashinfer_bench
from accelopt.kernels.gpu.bench.process import messages as say
from accelopt.kernels.gpu.bench.process.call_observation import (
    LaunchCounter,
    operator_recorder,
    watching_kernels,
)
from accelopt.kernels.gpu.bench.process.entry_points import PYTHON
from accelopt.kernels.gpu.bench.process.hardware_and_versions import describe
from accelopt.kernels.gpu.bench.process.inputs import InputFactory, placed, torch_dtype
from accelopt.kernels.gpu.bench.process.output_seals import Sealer
from accelopt.kernels.gpu.bench.process.solution_loading import load_entry
from accelopt.kernels.gpu.bench.process.timing import BUSY_SECONDS, Clock
from accelopt.sandbox.serving import Handlers

SET_BUDGET_BYTES = 24 << 30
FREE_SHARE = 0.6  # of the device's free memory that sets may take: checks and others want some
MOST_CALLS = 240  # of a batch
ROUND_SECONDS = 0.3  # a slow kernel is timed on fewer sets a round
PACKAGE_SECONDS = 4.0  # beyond this the package's timer gets fewer iterations


class Candidate:
    """A loaded solution with the harness's own references to what it must not replace."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        import torch

        self.torch = torch
        self.definition = Definition.model_validate(payload["definition"])
        self.workload = Trace.model_validate(payload["workload"]).workload
        self.solution = Solution.model_validate(payload["solution"])
        self.folder = Path(payload["folder"])
        self.device = torch.device(payload["device"])
        self.destination_passing = bool(payload["destination_passing_style"])
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.cuda.init()
        self.inputs = InputFactory(
            Path(payload["root"]), self.definition, self.workload, str(self.device)
        )
        self.deepest = sys.getrecursionlimit()
        self._frame, self._limit = sys._getframe, sys.setrecursionlimit
        self.clock = Clock(self.device)
        self.sealer = Sealer(self.device)
        self.counter = LaunchCounter()
        self.found: dict[str, int] = {}
        self.heavy: dict[str, int] = {}  # of the call that had most
        self.recorder = operator_recorder(self.found)
        self.guarded = guarded_functions(torch)
        self.attributes: set[str] = set()  # set by the candidate on what it is given or returns
        self.sets: list[list[Any]] = []
        self.results: list[list[Any]] = []
        self.draws: list[Draw] = []  # of a batch's sets
        self.set_count = 2
        self.budget_bytes = SET_BUDGET_BYTES
        self.held_bytes: int | None = None
        self.backlog_ms = 0.0
        self.call_seconds = 1.0
        self.function: Callable[..., Any] = _missing
        self.modules: list[bytes] = []

    def introduce(self, _: say.Introduce) -> say.DeviceEnvironment:
        """Versions and the device's name."""
        return describe(self.torch, self.device)

    def load(self, _: say.Load) -> say.Done:
        """Import the sources and find the entry point."""
        self.function = load_entry(self.solution, self.folder / "source", self.definition)
        if self.solution.spec.language not in PYTHON:  # compilers write below the folder
            self.modules = [path.read_bytes() for path in self.folder.rglob("*.so")]
        return say.Done()

    def resize(self, asked: say.Resize) -> say.Done:
        """Take another workload."""
        self.rest(say.Rest())
        self.inputs = self.inputs.of(asked.workload)
        self.workload = self.inputs.workload
        return say.Done()

    def call(self, inputs: list[Any]) -> list[Any]:
        """One call, watched as every other is; the outputs as a list, exactly as they came."""
        self.found.clear()
        self._level()
        with self.recorder:
            if self.destination_passing:
                outputs = self._allocate()
                self.function(*inputs, *outputs)
            else:
                result = self.function(*inputs)
                outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        if sum(self.found.values()) > sum(self.heavy.values()):
            self.heavy = dict(self.found)
        self.attributes |= attributes_of_tensors(self.torch.Tensor, (*inputs, *outputs))
        return outputs

    def _level(self) -> None:
        """Let what the caller calls go as deep as from everywhere else: it could tell by that who calls."""
        depth, frame = 0, self._frame(1).f_back
        while frame is not None:
            depth, frame = depth + 1, frame.f_back
        self._limit(self.deepest + depth)

    def _allocate(self) -> list[Any]:
        made = []
        for spec in self.definition.outputs.values():
            shape = self.definition.shape(spec, self.workload) or ()
            made.append(placed(shape, torch_dtype(spec.dtype), self.device))
        return made

    def _poison(self) -> None:
        """Leave NaN in the memory that the allocator will hand out next for the outputs."""
        for spec in self.definition.outputs.values():
            shape, dtype = self.definition.shape(spec, self.workload) or (), torch_dtype(spec.dtype)
            tensor = self.torch.empty(shape, dtype=dtype, device=self.device)
            if tensor.is_floating_point() and tensor.element_size() > 1:
                tensor.fill_(float("nan"))
            else:
                tensor.view(self.torch.uint8).fill_(0x7F)

    def check(self, asked: say.CheckCall) -> say.Checked:
        """One call on new inputs; whether they stayed as they were, and what the call returned."""
        inputs = self.inputs.make(asked.draw._replace(touched=False))
        self.heavy = {}
        before = self.counter.count
        with self.torch.no_grad():
            self._poison()
            if asked.draw.touched:  # what this call gave is of no use to the next
                self.call(inputs)
                self.inputs.fill(inputs, asked.draw)
            outputs = self.call(inputs)
            self.clock.synchronize()
            seals = self.sealer.seal(outputs, asked.key).tolist()
        reply = say.Checked(
            outputs=self._written(outputs, asked.name),
            seals=tuple(seals),
            launches=self.counter.count - before,
            heavy=self.heavy,
            faults=self._faults([inputs], [asked.draw]),
        )
        del inputs, outputs
        self.clock.release()
        return reply

    def _written(self, outputs: list[Any], name: str) -> tuple[say.Output, ...]:
        """Type, shape and dtype of each output; the plain ones are also written to files."""
        described = []
        for index, output in enumerate(outputs):
            plain = type(output) is self.torch.Tensor and output.layout == self.torch.strided
            if not plain:
                described.append(say.Output(type=type(output).__name__))
                continue
            data = output.detach().contiguous().cpu().reshape(-1).view(self.torch.uint8)
            data.numpy().tofile(self.folder / f"{name}_{index}.bin")
            described.append(say.described(output))
        return tuple(described)

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

    def _faults(self, sets: Sequence[list[Any]], draws: Sequence[Draw]) -> tuple[str, ...]:
        """Functions of the library that are no longer the ones this process started with, inputs that are
        no longer what was drawn, and what was passed to kernels."""
        replaced = [
            name for name, (owner, key, value) in self.guarded.items()
            if getattr(owner, key, None) is not value
        ]  # fmt: skip
        replaced += [f"{name} of a tensor" for name in sorted(self.attributes)]
        changed = {name for pair in zip(sets, draws, strict=True) for name in self._mutated(*pair)}
        said = {
            "replaces library functions": replaced,
            "changes its inputs": sorted(changed),
            "passes to a kernel what is no tensor and no number": sorted(self.counter.strange),
        }
        return tuple(f"{fault}: {', '.join(names)}" for fault, names in said.items() if names)

    def prepare(self, asked: say.Prepare) -> say.Prepared:
        """Learn how many sets of inputs a round can have and how long the host takes to queue it."""
        given = fresh()
        first = self.inputs.make(given)
        sizes = [t.numel() * t.element_size() for t in first if hasattr(t, "numel")]
        outputs = sum(t.numel() * t.element_size() for t in self._allocate())
        one = max(1, sum(sizes) + 2 * outputs)
        self.call_seconds = self._seconds(first)
        self.clock.release()
        if self.clock.on_gpu:  # others share the device
            free, _ = self.torch.cuda.mem_get_info(self.device)
            self.budget_bytes = min(SET_BUDGET_BYTES, int(FREE_SHARE * free))
        count = min(self.budget_bytes // one, asked.sets, int(ROUND_SECONDS / self.call_seconds))
        self.set_count = max(2, int(count))
        draws = [fresh() for _ in range(self.set_count + 1)]
        sets = [self.inputs.make(draw) for draw in draws]
        with self.torch.no_grad():
            self.backlog_ms = self.clock.backlog_ms(
                self.call, sets[: self.set_count], self._filler(sets, draws[:-1])
            )
            lag = self.clock.lag_ms(self.call, first)
            queue_ms = self.clock.queueing_ms(self.call, first)
        return say.Prepared(
            sets=self.set_count,
            most_calls=int(max(6, min(MOST_CALLS, self.budget_bytes // one))),
            queue_ms=queue_ms,
            lag_ms=lag,
            faults=self._faults([first, *sets], [given, *draws]),
        )

    def _filler(self, sets: list[list[Any]], draws: list[Draw]) -> Callable[[int], None]:
        """What is queued before a timed call: calls on other sets, then its set's new contents.

        In this order: what the candidate starts in the one call cannot see the contents of the next.
        How many calls there are, and on which sets, cannot be foreseen; and as any set may come in
        any of them, no address says which call is timed.
        """
        files = [self.inputs.files_of(draw) for draw in draws]

        def fill(index: int) -> None:
            for _ in range(1 + secrets.randbelow(2)):
                other = secrets.randbelow(len(sets) - 1)
                self.call(sets[other + (other >= index)])
            self.inputs.fill(sets[index], draws[index], files[index])

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

    def round(self, asked: say.Round) -> say.Timed:
        """Time one call for each draw, with contents that are new by then, and call each once more."""
        faults = self._let_go()
        grown = self._grown()
        given = [fresh() for _ in range(len(asked.draws) + 1)]
        sets = [self.inputs.make(draw) for draw in given]
        fill = self._filler(sets, list(asked.draws))
        self.heavy = {}
        seen: say.Seen | None = None
        before = self.counter.count
        seals: list[Any] = []

        def timed(mark: Callable[[], object] = lambda: None) -> list[float]:
            latencies, outputs = self.clock.round(
                self.call, sets[:-1], self.backlog_ms, fill,
                lambda index, result: seals.append(self.sealer.seal(result, asked.keys[index])),
                mark,
            )  # fmt: skip
            self.results.extend(outputs)
            return latencies

        with self.torch.no_grad():
            self._poison()
            self.clock.warm_up(lambda: self.call(secrets.choice(sets)), BUSY_SECONDS)
            faults += self._faults(sets, given)
            if asked.profiled:
                compiled = self.solution.spec.language not in PYTHON
                token = "" if compiled else self.counter.token
                latencies, seen = watching_kernels(timed, token, self.device, self.modules)
            else:
                latencies = timed()
            launches, heavy = self.counter.count - before, self.heavy
            sealed = [tuple(seal.tolist()) for seal in seals]
            worst = self._worst_difference(sets[:-1])
        return say.Timed(
            latencies=tuple(latencies),
            seals=tuple(sealed),
            changed=self._changed(sealed, asked.keys),
            shared=share_memory(self.results),
            difference=worst,
            launches=launches,
            heavy=heavy,
            faults=faults + self._faults(sets, (*asked.draws, given[-1])),
            seen=seen,
            grown_bytes=grown,
        )

    def _let_go(self) -> tuple[str, ...]:
        """Of the last round's outputs, and of the last batch's inputs: what became of them."""
        faults = self._faults(self.sets, self.draws[: len(self.sets)])
        self.sets, self.results = [], []
        return faults

    def _grown(self) -> int:
        """What the candidate has kept in the device's memory since the last round began."""
        before, self.held_bytes = self.held_bytes, self.clock.allocated_bytes()
        return 0 if before is None else self.held_bytes - before

    def _worst_difference(self, sets: list[list[Any]]) -> float:
        """Between the outputs of the round and those of one more call each on the same inputs."""
        again = [
            difference(self.torch, result, self.call(inputs))
            for result, inputs in zip(self.results, sets, strict=True)
        ]
        self.clock.synchronize()
        return max(again)

    def _changed(self, sealed: list[tuple[int, ...]], keys: tuple[int, ...]) -> int:
        """How many of the round's outputs are no longer what they were when their call ended."""
        return sum(
            tuple(self.sealer.seal(result, key).tolist()) != seal
            for result, key, seal in zip(self.results, keys, sealed, strict=True)
        )

    def reveal(self, asked: say.Reveal) -> say.Revealed:
        """Write the outputs of a call that the parent has picked, now that all are sealed."""
        return say.Revealed(outputs=self._written(self.results[asked.index], asked.name))

    def rest(self, _: say.Rest) -> say.Done:
        """Let go of sets and outputs: others share the device's memory while this one is judged."""
        faults = self._let_go()
        self.clock.release()
        return say.Done(faults=faults)

    def fill(self, asked: say.Fill) -> say.Done:
        """See what became of the last batch's inputs, make those of a batch, be as warm as in a round."""
        faults = self._let_go()
        self.sets, self.draws = [self.inputs.make(draw) for draw in asked.draws], list(asked.draws)
        with self.torch.no_grad():
            warm = self.inputs.make(fresh())
            self.clock.warm_up(lambda: self.call(warm), BUSY_SECONDS)
        return say.Done(faults=faults)

    def batch(self, asked: say.Batch) -> say.Batched:
        """So many calls, each on inputs of its own, and a synchronisation: for the parent's clock."""
        dry = False
        with self.torch.no_grad():
            self.clock.wait(asked.wait_ms)
            waited = self.clock.mark() if self.clock.on_gpu else None
            self.results = [
                self.call(inputs) for inputs in self.sets[asked.first : asked.first + asked.calls]
            ]
            if waited is not None:
                dry = self.clock.over(waited)
            self.clock.synchronize()
        return say.Batched(dry=dry, faults=self._faults((), ()))  # the parent's clock runs

    def package(self, asked: say.Package) -> say.Latency:
        """The package's own timer on its own protocol: mean over trials, milliseconds."""
        time_runnable = installed_flashinfer_bench.timer()

        draws = [fresh() for _ in range(asked.trials)]
        sets = [self.inputs.make(draw) for draw in draws]
        turns = itertools.cycle(sets)

        def function(*arguments: Any) -> Any:
            """On another set than in the call before: what that gave is of no use."""
            self._level()
            return self.function(*next(turns), *arguments[len(sets[0]) :])

        calls = PACKAGE_SECONDS / asked.trials / self._seconds(sets[0])
        iterations = max(3, min(asked.iterations, int(calls * 0.8)))
        warmup = max(1, min(asked.warmup_runs, int(calls * 0.2)))
        latencies = []
        with self.torch.no_grad():
            for inputs in sets:
                arguments = [*inputs, *self._allocate()] if self.destination_passing else inputs
                latencies.append(
                    time_runnable(function, arguments, warmup, iterations, str(self.device))
                )
        mean, faults = sum(latencies) / len(latencies), self._faults(sets, draws)
        return say.Latency(milliseconds=mean, faults=faults)


def _missing(*_: Any) -> Any:
    raise RuntimeError("the solution was not loaded")


def handlers(payload: Mapping[str, Any]) -> Handlers:
    """What this process answers."""
    candidate = Candidate(payload)
    return {
        say.Introduce: candidate.introduce,
        say.Load: candidate.load,
        say.Resize: candidate.resize,
        say.CheckCall: candidate.check,
        say.Prepare: candidate.prepare,
        say.Round: candidate.round,
        say.Reveal: candidate.reveal,
        say.Rest: candidate.rest,
        say.Fill: candidate.fill,
        say.Batch: candidate.batch,
        say.Package: candidate.package,
    }


def guarded_functions(torch: Any) -> dict[str, tuple[Any, str, Any]]:
    """Name to owner, attribute and present value of what a cheat would replace."""
    names: list[tuple[Any, str]] = [
        (torch, "empty"), (torch, "equal"), (torch, "no_grad"),
        (torch.Tensor, "normal_"), (torch.Tensor, "copy_"), (torch.Tensor, "zero_"),
        (torch.Tensor, "fill_"), (torch.Tensor, "random_"), (torch.Tensor, "cpu"),
        (torch.Tensor, "contiguous"), (torch.Tensor, "numpy"), (torch.Tensor, "clone"), (torch, "Generator"),
    ]  # fmt: skip
    if torch.cuda.is_available():
        names += [
            (torch.cuda, "synchronize"), (torch.cuda, "Event"), (torch.cuda, "_sleep"),
            (torch.cuda, "current_stream"), (torch.cuda.Event, "record"),
            (torch.cuda.Event, "elapsed_time"), (torch.cuda.Event, "synchronize"),
        ]  # fmt: skip
    return {
        f"{getattr(owner, '__name__', owner)}.{key}": (owner, key, getattr(owner, key))
        for owner, key in names
        if hasattr(owner, key)
    }


def attributes_of_tensors(kind: type, values: Sequence[object]) -> set[str]:
    """Names that were set on plain tensors: one of them would be called in the place of a method when
    inputs get new contents, or outputs are looked at. Honest code sets none."""
    return {name for value in values if type(value) is kind for name in vars(value)}


def share_memory(results: list[list[Any]]) -> bool:
    """Whether two calls of a round returned the same memory while both results were held."""
    seen: set[int] = set()
    for result in results:
        for output in result:
            if hasattr(output, "data_ptr") and output.numel():
                if output.data_ptr() in seen:
                    return True
                seen.add(output.data_ptr())
    return False


def difference(torch: Any, first: list[Any], second: list[Any]) -> float:
    """Relative L2 between two calls on the same inputs; infinite when one is not finite alone."""
    worst = 0.0
    for a, b in zip(first, second, strict=True):
        if type(a) is not torch.Tensor or type(b) is not torch.Tensor or a.shape != b.shape:
            return float("inf")
        x, y = a.to(torch.float32), b.to(torch.float32)
        finite = torch.isfinite(y)
        if bool((torch.isfinite(x) != finite).any()):
            return float("inf")
        zero = torch.zeros_like(x)
        gap = torch.where(finite, x - y, zero)
        size = float(torch.linalg.vector_norm(torch.where(finite, y, zero)))
        worst = max(worst, float(torch.linalg.vector_norm(gap)) / max(size, 1e-30))
    return worst

"""Tuning the knobs of one kernel: several experts propose, everything is tried, the best is kept."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from accelopt.errors import ConfigError
from accelopt.evaluation import Diagnosis
from accelopt.knob_space import Configuration, Space, name_of, sentence
from accelopt.nodes import Action, Job, KnobSetting, Node, Result, Trials, Want
from accelopt.search.knob_experts import EXPERTS, Choose, TriedValues, best_of
from accelopt.search.knob_samplers import SAMPLERS
from accelopt.search.strategy import Settings, options_of

METHOD = "set_knobs"
OPTIONS = ("experts", "search", "iterations", "patience")
BETTER = 0.98  # times the best latency: a gain that counts against convergence
LEAST_ITERATIONS = 3  # before a search may have converged
MOST_AGAIN = 16  # proposals of one expert in one iteration, where what it proposes is refused
IDLE_ITERATIONS = 2  # in a row without a configuration that could be built end the search
STANDARD = (
    6  # configurations that are standard for the kernel's kind and are tried before any other
)
LATEST = 5  # configurations that a model is told of beside the fastest, and all that failed
CROWDED_REGISTERS, CROWDED_SHARED, FEW_WARPS = 128, 0.75, 0.25


class Experts:
    """In each iteration every expert proposes one configuration of the baseline's knobs, after those that
    are standard for the kernel's kind.

    Options: `experts` (names with commas), or `search`, the name of one sampler that proposes
    instead; `iterations`, the most; `patience`, how many iterations without a gain of 2% end the
    search, 0 (never) by default.
    """

    def __init__(self, start: Node, settings: Settings, seed: int) -> None:
        options = options_of("experts", settings, *OPTIONS)
        self.best = self.start = start
        self.round = 1
        self.converged = ""
        self._proposers = proposers_of(options)
        self._most = _number(options, "iterations", 0)
        self._patience = _number(options, "patience", 0)
        self._random = random.Random(seed)
        self._space: Space | None = None
        self._diagnosis: Diagnosis | None = None
        self._tried: list[TriedValues] = []
        self._told: list[dict[str, object]] = []  # proposals, for people
        self._made: dict[str, Node] = {}
        self._turn = list(self._proposers)  # who proposes in this iteration, and did not yet
        self._under_way: dict[int, tuple[str, Configuration]] = {}
        self._refused: Counter[str] = Counter()
        self._valid = self._idle = self._stagnant = 0
        self._before = inf
        self._numbers = 0

    @property
    def kept(self) -> Sequence[Node]:
        """Every correct kernel, the fastest first."""
        nodes = (self.start, *self._made.values())
        return sorted((n for n in nodes if n.latency), key=lambda node: node.latency or inf)

    def ask(self) -> Job | None:
        """The knobs first; then a configuration of each expert."""
        if self._numbers == 0:
            return self._job(Want.SPACE)
        if self._space is None or self.converged:
            return None
        while self._turn:
            name = self._turn.pop(0)
            values = self._next(self._space, name)
            if values is not None:
                return self._build(name, values)
        if not self._under_way:
            self.converged = "every configuration was tried"
        return None

    def _next(self, space: Space, name: str) -> Configuration | None:
        """A standard configuration while there is one, then what who proposes believes in."""
        known = {name_of(tried.configuration) for tried in self._known()}
        untried = (one for one in space.standard[:STANDARD] if name_of(one) not in known)
        return next(untried, None) or self._proposers[name](space, self._known(), self._random)

    def tell(self, result: Result) -> None:
        """The knobs, or what came of a configuration. The last of an iteration ends it."""
        if result.job.want is Want.SPACE:
            self._space, self._diagnosis = result.space, result.diagnosis
            if result.space is None or not result.space.knobs:
                self.converged = "the kernel has no knobs"
            return
        name, _ = self._under_way.pop(result.job.number)
        self._take(name, result)
        if not self._turn and not self._under_way:
            self._end_iteration()

    def _take(self, name: str, result: Result) -> None:
        """What came of a proposal: a model may have made another one than the rule, or none."""
        node = result.nodes[0] if result.nodes else None
        change = node.change if node else None
        values = change.values if isinstance(change, KnobSetting) else None
        reason = node.evaluation.message if node else "; ".join(result.remarks)
        again = values is not None and name_of(values) in {
            name_of(t.configuration) for t in self._tried
        }
        told = {"expert": name, "iteration": self.round, "config": values}
        self._told.append({**told, "reason": "it was tried before" if again else reason})
        if node is None or values is None or again:
            return
        latency = inf if node.latency is None else node.latency
        self._tried.append(TriedValues(values, latency, reason))
        if not node.missing:
            self._valid += 1
            self._made[name_of(values)] = node
            self.best = min(self.best, node, key=lambda kernel: kernel.latency or inf)
        elif not result.asked and self._refused[name] < MOST_AGAIN:
            self._refused[name] += 1
            self._turn.append(name)

    def state(self) -> dict[str, object]:
        """The tuning as its users know it; latencies in milliseconds, None where there is none."""
        best = best_of(self._tried)
        return {
            "kernel": self._space.kernel if self._space else self.start.case.problem,
            "shape": self._space.shape if self._space else {},
            "knobs": [k.model_dump(mode="json") for k in self._space.knobs] if self._space else [],
            "history": [
                {"cfg": t.configuration, "median_ms": t.latency, "correct": True}
                if t.latency != inf
                else {
                    "cfg": t.configuration,
                    "median_ms": None,
                    "correct": False,
                    "reason": t.reason,
                }
                for t in self._tried
            ],
            "symptoms": list(self.symptoms),
            "proposals": self._told,
            "best_config": best.configuration if best else None,
            "best_latency": best.latency if best else None,
            "iteration": self.round - 1,
            "max_iterations": self._most or None,
            "converged": self.converged,
        }

    @property
    def symptoms(self) -> tuple[str, ...]:
        """What an expert should know beside the figures."""
        if not self._tried:
            return ("initial run", "no baseline")
        found = list(_crowding(self._diagnosis)) if self._diagnosis else []
        if self._idle:
            found.append("all proposals invalid")
        if self._stagnant:
            found.append(f"no gain for {self._stagnant} iterations")
        return tuple(found)

    def _known(self) -> list[TriedValues]:
        """What was tried, and what is under way: nobody proposes that again."""
        return [
            *self._tried,
            *(TriedValues(values, None) for _, values in self._under_way.values()),
        ]

    def _end_iteration(self) -> None:
        """Compare with the iterations before, and begin the next one unless the search converged."""
        best = best_of(self._tried)
        latency = inf if best is None or best.latency is None else best.latency
        self._stagnant = 0 if latency < BETTER * self._before else self._stagnant + 1
        self._idle = 0 if self._valid else self._idle + 1
        self._before, self._valid = min(self._before, latency), 0
        self.converged = self._why_converged()
        self.round += 1
        self._turn, self._refused = list(self._proposers), Counter()

    def _why_converged(self) -> str:
        if self._idle >= IDLE_ITERATIONS:
            return f"{self._idle} iterations without a configuration that can be built"
        if self._most and self.round >= self._most:
            return f"{self.round} iterations are done"
        if self._patience and self.round >= LEAST_ITERATIONS and self._stagnant >= self._patience:
            return f"no gain of 2% for {self._stagnant} iterations"
        return ""

    def _build(self, name: str, values: Configuration) -> Job:
        changes = self._space.changes(values) if self._space else values
        change = KnobSetting(values=values, sentence=sentence(changes))
        job = self._job(Want.BUILD, Action(change=change, method=METHOD), name)
        self._under_way[job.number] = name, values
        return job._replace(trials=self._trials(name))

    def _trials(self, name: str) -> Trials:
        measured = [t for t in self._tried if t.latency != inf]
        failed = [t for t in self._tried if t.latency == inf]
        best = best_of(measured)
        told = [t for t in measured if t is best or t in measured[-LATEST:]]
        return Trials(
            EXPERTS[name].bias if name in EXPERTS else "",
            tuple(
                f"{self._changes(t.configuration)}: {t.latency:.4g} ms{', the fastest' * (t is best)}"
                for t in told
            ),
            tuple(f"{self._changes(t.configuration)}: {t.reason}" for t in failed),
            self.symptoms,
            tuple(name_of(t.configuration) for t in self._tried),
        )

    def _changes(self, values: Configuration) -> str:
        return json.dumps(self._space.changes(values) if self._space else values)

    def _job(self, want: Want, action: Action | None = None, focus: str = "") -> Job:
        self._numbers += 1
        return Job(self._numbers - 1, self.round, want, self.start, action, focus)


def proposers_of(options: Mapping[str, str]) -> dict[str, Choose]:
    """Who proposes, by name, as options say. Raises ConfigError for unknown names."""
    search = options.get("search", "experts")
    if search != "experts":
        if search not in SAMPLERS:
            raise ConfigError(
                f"search={search} is unknown; there are experts, {', '.join(SAMPLERS)}"
            )
        return {search: SAMPLERS[search]}
    names = options["experts"].split(",") if options.get("experts") else list(EXPERTS)
    unknown = [name for name in names if name not in EXPERTS]
    if unknown:
        raise ConfigError(f"there is no expert {unknown[0]!r}, but {', '.join(EXPERTS)}")
    return {name: EXPERTS[name].choose for name in names}


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdigit():
        raise ConfigError(f"{name}={text} is no number")
    return int(text)


def _crowding(diagnosis: Diagnosis) -> Iterator[str]:
    """What the compiler and the profile say that a configuration could relieve."""
    if (diagnosis.registers or 0) > CROWDED_REGISTERS:
        yield f"{diagnosis.registers} registers a thread"
    if diagnosis.spilled_bytes:
        yield f"{diagnosis.spilled_bytes} bytes are spilled"
    if diagnosis.shared_share is not None and diagnosis.shared_share > CROWDED_SHARED:
        yield f"{diagnosis.shared_share:.0%} of shared memory is taken"
    if diagnosis.occupancy is not None and diagnosis.occupancy < FEW_WARPS:
        yield f"an occupancy of {diagnosis.occupancy:.0%}"
    if diagnosis.bottleneck:
        yield f"limited by {diagnosis.bottleneck.resource}: {diagnosis.bottleneck.reason}"

"""What the loop needs of a kernel language: to judge kernels, to change them, to speak about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from accelopt.errors import ConfigError
from accelopt.evaluation import Case, Confirmation, Diagnosis, Evaluation, Scrutiny, language_called
from accelopt.kernel_source import with_definitions
from accelopt.knob_space import Parameter, Space
from accelopt.nodes import Action, Node
from accelopt.store import read_text

if TYPE_CHECKING:
    from accelopt.sandbox.workers import Pool


class Explanation(NamedTuple):
    """What the profiler knows beyond the counters, in sentences, for planner and report.

    `percent_of_peak` is the fraction that the problem's bound is of the time; None where it is not known. `unscheduled`
    says why no kernel by schedule was found for it; empty where one was, or none was looked for.
    """

    facts: tuple[str, ...] = ()
    percent_of_peak: float | None = None
    unscheduled: str = ""


class LanguageOptions(NamedTuple):
    """What the command line says about evaluations, for any language.

    `folder` takes sources that are evaluated. `name` is one of `LANGUAGES`, or a former name of it. `rel_tol` None is the
    published bound of each problem. `precision` names formats below float32 that are allowed besides those of the inputs.
    `traceset_root` is for languages whose problems live in a trace set. `scrutiny` is how
    much is asked of a kernel, where the referee knows degrees. Without `lookahead` nothing is simulated
    to find out what is worth an evaluation: closed forms alone say what actions promise. Of the kernels
    that are diagnosed each `profile_every`-th is profiled by Nsight Compute, where that can be; 0 is none.
    `gpus` are the indices of those that evaluate, one kernel at a time on each. `constants` are a
    calibrated machine's, in place of the table's; `compiler` is the version of the front end to be emulated.
    `lnc` are the physical cores of a logical one that a schedule may use.
    """

    folder: Path
    name: str = "nki"
    save_fields: tuple[str, ...] = ()
    target: str = "trn1"
    rel_tol: float | None = None
    precision: tuple[str, ...] = ()
    traceset_root: Path | None = None
    scrutiny: Scrutiny = Scrutiny.FULL
    lookahead: bool = True
    profile_every: int = 0
    gpus: tuple[int, ...] = (0,)
    constants: Mapping[str, float] | None = None
    compiler: str = ""
    lnc: int = 1


class Configured(NamedTuple):
    """The source of a configuration, or None and the reason why there is no such kernel."""

    source: str | None
    reason: str = ""


class NestAnswer(NamedTuple):
    """What is said of a kernel's loop nests, and the kernel by the one that was asked for."""

    text: str
    source: str | None = None


class Language(Protocol):
    """One kernel language (NKI on a NeuronCore, Triton or CUDA on a GPU) and the device it runs on.

    Classes that inherit it say what they know; of the rest nothing is known.
    """

    name: str

    async def evaluate(self, case: Case, source: str) -> Evaluation:
        """The verdict on `source` as a kernel for `case`; never raises for it."""

    def unread(self, case: Case) -> str:
        """What the rules do not read of the case's kernel, in a sentence; said before a search."""
        return ""

    async def alternatives(self, case: Case) -> Mapping[str, float]:
        """What others take for the same problem, by name: milliseconds, timed as its kernels are."""
        return {}

    async def explain(self, node: Node) -> Explanation:
        """Where the time of a kernel goes that was timed."""
        return Explanation()

    async def actions(self, node: Node, focus: str = "") -> Sequence[Action]:
        """What can be done to a kernel without a model, the most promising first: rewrites by rule,
        schedules. Each is another kernel, and comes with its source. The same for the same node
        and `focus`, a resource to be relieved, where the language knows such a thing."""
        return ()

    async def useless_methods(self, node: Node) -> frozenset[str]:
        """Names of `moves.METHODS` that have nothing to be used on in a kernel, as far as that is known."""
        return frozenset()

    async def space(self, node: Node) -> Space | None:
        """The knobs of a kernel; None where it has none that are known."""
        return None

    async def configure(self, node: Node, values: Mapping[str, Parameter]) -> Configured:
        """The kernel with its knobs set, compiled as far as that needs no device; costs nothing."""
        return Configured(None, "it has no knobs")

    async def diagnose(self, node: Node) -> Diagnosis | None:
        """What limits a kernel that was timed, as data; None where nothing is known of it."""
        return None

    async def predict(self, node: Node, source: str) -> float | None:
        """Milliseconds that `source`, made of `node`, would take, without running it: infinity for
        one that would be refused, None where unknown."""
        return None

    async def confirm(self, case: Case, winner: str, parent: str) -> Confirmation:
        """Whether the source `winner` is faster than `parent` beyond noise, measured again."""

    def evaluation_key(self, case: Case, source: str) -> str:
        """Equal for evaluations that must have the same result: content, never paths."""

    def complete(self, source: str, parent: str = "") -> str:
        """`source` as a file that runs by itself; what it uses and does not define is what the
        kernel that it was made of, `parent`, defines and imports."""
        return with_definitions(source, parent)

    def reference(self, case: Case) -> str:
        """The text that says what a kernel must compute."""
        return read_text(case.task)

    def source(self, case: Case) -> str:
        """The text of the case's starting kernel. Raises ConfigError when it cannot be read."""
        return read_text(case.kernel)

    def gate(self, case: Case) -> str:
        """How results are judged, for the executor, in words."""

    def text_refused(self, case: Case, source: str) -> str:
        """Why the text of a kernel alone is refused, which costs no evaluation; empty where it is not."""
        return ""

    def look_up(self, name: str, kernel: str) -> str:
        """Documentation of one name of the language that `kernel` is written in."""
        return f"There is no note on {name}."

    def sheet(self, texts: Sequence[str]) -> str:
        """Documentation of the names that stand in `texts`, a kernel first, and of what belongs with
        them."""
        return ""

    def background(self, kernel: str) -> Mapping[str, str]:
        """What system prompts say, by the names of their slots: `machine`, with what instructions
        cost on it, `language`, what to know of the one that `kernel` is written in, and `dialect`,
        which one that is."""
        return {}

    async def brief(self, node: Node) -> Mapping[str, str]:
        """All that is known of a timed kernel, for whoever plans the next step: parts of a prompt by
        the names of their slots. Takes longer than `explain`."""
        return {}

    async def account(self, node: Node) -> Mapping[str, str]:
        """The parts of `brief` that no search has to find."""
        return await self.brief(node)

    async def what_if(self, node: Node, question: str) -> str:
        """What a timed kernel would take if some of its source lines took another time."""
        return "What-ifs are not known for this language."

    async def faults(self, node: Node) -> str:
        """What is wrong with a kernel that failed, beyond the message of its evaluation: every
        violated rule, or where and how outputs differ; empty where nothing more is known."""
        return ""

    async def nests(self, node: Node, primitives: str = "") -> NestAnswer:
        """The loop nest of a kernel after `primitives` (a JSON list), and single primitives that apply to
        it, with predicted times; the kernel, where some were given and all of them apply."""
        return NestAnswer("Kernels of this language have no loop nests that primitives change.")

    async def scheduled(self, node: Node, reply: str) -> Action | str | None:
        """The kernel by the schedule that a model's `reply` holds; one sentence where it holds one
        that the kernel does not have; None for a reply that is no schedule at all."""
        return None


LANGUAGES = {
    "nki": "accelopt.kernels.nki.language:NKI",
    "triton": "accelopt.kernels.triton.language:Triton",
    "cuda": "accelopt.kernels.cuda.language:Cuda",
}


def open_language(pool: Pool, options: LanguageOptions) -> Language:
    """The language that the options name, or of the class `module:Class`, evaluating on `pool`.

    Raises ConfigError for another name.
    """
    name = language_called(options.name)
    place = LANGUAGES.get(name, name)
    if ":" not in place:
        raise ConfigError(
            f"there is no backend {options.name!r}; choose from {', '.join(LANGUAGES)}"
        )
    module, _, attribute = place.partition(":")
    opened: Language = getattr(import_module(module), attribute)(pool, options)
    return opened

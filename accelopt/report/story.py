"""What a report tells of a run, as plain rows: made by the run, kept as `story.json`, drawn by `page`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from accelopt.errors import ConfigError
from accelopt.evaluation import Row, faults
from accelopt.store import read_text, write_atomically

STORY = "story.json"


class StoryStep(Row):
    """One kernel of a search. `parent` is its parent's key, empty for the baseline; `latency` in ms
    is None for one that failed; `seconds` after the start of the run, `number` of its evaluation."""

    key: str
    parent: str = ""
    sentence: str = ""
    status: str
    message: str = ""
    latency: float | None = None
    number: int = 0
    seconds: float = 0.0
    source: str = ""
    diff: str = Field(default="", description="from its parent, of one that failed")


class LineShare(Row):
    """The part of the critical path (0 to 1) that one source line takes, and what runs there."""

    line: int
    share: float
    operations: str = ""


class Portrait(Row):
    """What the simulated core says of one kernel: times in ms, FLOP/s, bytes, shares from 0 to 1.

    `busy` has for each engine its share of each of equally long slices of the time.
    """

    latency: float
    low: float | None = Field(default=None, description="where other choices were simulated too")
    high: float | None = None
    intensity: float = Field(description="FLOPs a byte between HBM and the chip")
    flops: float = Field(description="FLOP/s, transposes left out")
    peak_flops: float
    bandwidth: float = Field(description="bytes a second between HBM and the chip at best")
    moved: float = Field(default=0.0, description="bytes between HBM and the chip")
    lines: tuple[LineShare, ...] = ()
    busy: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    questions: tuple[str, ...] = Field(default=(), description="what the interval depends on")
    advice: str = Field(default="", description="as `accelopt profile` prints it")
    gaps: str = Field(default="", description="of its engines, as `accelopt profile` prints them")


class WorkerStory(Row):
    """How a worker of a state machine went about one kernel: the states in order, the bottleneck it
    took on, what it changed, and what came of it in a sentence."""

    round: int
    worker: int
    against: str = ""
    change: str = ""
    outcome: str = ""
    path: tuple[str, ...] = ()


class ProblemResult(Row):
    """What came of one problem. Latencies in ms, shares of the bound from 0 to 1."""

    name: str
    baseline: float | None = None
    best: float | None = None
    before: float | None = None
    after: float | None = None
    confirmed: bool = True
    resolved: bool = Field(default=True, description="whether the timing tells the gain apart")
    between: tuple[float, float] | None = Field(
        default=None, description="of eight of ten speedups"
    )
    failure: str = ""
    changes: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = Field(
        default=(), description="what the compiler may do otherwise, and then nothing is gained"
    )
    holds_for: str = ""
    exactness: str = Field(default="", description="of the best kernel, beside the baseline")
    beside: str = Field(default="", description="what others give for the problem, in a sentence")
    elsewhere: tuple[str, ...] = Field(default=(), description="at other shapes, in words")

    @property
    def speedup(self) -> float | None:
        """Baseline over best."""
        return self.baseline / self.best if self.baseline and self.best else None


class ProblemStory(ProblemResult):
    """One problem from its baseline to its best kernel."""

    start_source: str = ""
    best_source: str = ""
    steps: tuple[StoryStep, ...] = ()
    workers: tuple[WorkerStory, ...] = ()
    start_portrait: Portrait | None = None
    best_portrait: Portrait | None = None
    trace: str = Field(default="", description="the Perfetto file, beside the report")
    compared: tuple[str, ...] = Field(
        default=(), description="its profiles on a real core, in words"
    )


class Story(Row):
    """One run: `device` and `calibration` in words, settings and versions by name."""

    name: str
    device: str
    calibration: str = ""
    seconds: float = 0.0
    settings: dict[str, str] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    spending: dict[str, float] = Field(default_factory=dict)
    problems: tuple[ProblemStory, ...] = ()


def write_story(story: Story, folder: Path) -> Path:
    """Keeps `story` in the run's folder."""
    path = folder / STORY
    write_atomically(path, story.model_dump_json(indent=1) + "\n")
    return path


def read_story(folder: Path) -> Story:
    """The story of the run in `folder`. Raises ConfigError when there is none."""
    path = folder / STORY
    if not path.is_file():
        raise ConfigError(f"{folder} holds no {STORY}: it is written when a run ends")
    try:
        return Story.model_validate_json(read_text(path))
    except ValidationError as error:
        raise ConfigError(f"{path} is not the story of a run: {faults(error)}") from error

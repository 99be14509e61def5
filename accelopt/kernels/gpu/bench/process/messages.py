"""What parent and children say to each other."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from accelopt.evaluation import Exactness
from accelopt.kernels.gpu.bench.files.input_draws import Draw
from accelopt.kernels.gpu.bench.process.comparison import Figures
from accelopt.kernels.gpu.bench.process.timing import Statistics
from accelopt.sandbox.serving import Message


class Watched(Message):
    """What was seen of calls: launches, output elements of heavy operators by name, of the call that had
    most, and faults, sentences that refuse a solution."""

    launches: int = 0
    heavy: dict[str, int] = Field(default_factory=dict)
    faults: tuple[str, ...] = ()


class Done(Watched):
    """It was done."""


class Introduce(Message):
    """Who are you?"""


class DeviceEnvironment(Message):
    """Where a measurement is made: the device, and the versions of what it depends on."""

    hardware: str
    libs: dict[str, str]


class Load(Message):
    """Import the sources and find the entry point."""


class Output(Message):
    """One output: a plain tensor of a shape and dtype, written to a file, or something else."""

    type: str
    plain: bool = False
    shape: tuple[int, ...] = ()
    dtype: str = ""
    strides: tuple[int, ...] = ()


def described(tensor: Any) -> Output:
    """A plain tensor as an output; strides of extents of one say nothing, and are 0."""
    strides = (
        step if size > 1 else 0 for step, size in zip(tensor.stride(), tensor.shape, strict=True)
    )
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(tensor.shape)
    return Output(type="Tensor", plain=True, shape=shape, dtype=dtype, strides=tuple(strides))


class CheckCall(Message):
    """One call on inputs of `draw`; its outputs to files `<name>_<index>.bin`, sealed with `key`."""

    draw: Draw
    name: str
    key: int


class Checked(Watched):
    """What a call returned. `seals` are the outputs' when the call ended (see `output_seals`)."""

    outputs: tuple[Output, ...]
    seals: tuple[int, ...]


class Resize(Message):
    """From now on inputs are those of another workload of the same definition."""

    workload: dict[str, Any]


class Prepare(Message):
    """Learn how long a call takes, to plan by, with at most `sets` sets of inputs a round."""

    sets: int


class Prepared(Watched):
    """How many sets a round has and a batch may have; milliseconds that the host takes to queue a
    call, and that other streams work on behind it."""

    sets: int
    most_calls: int
    queue_ms: float
    lag_ms: float


class Round(Message):
    """Time one call for each draw, on contents that are new by then; seal each with its key."""

    draws: tuple[Draw, ...]
    keys: tuple[int, ...]
    profiled: bool = False


class Seen(Message):
    """What the profiler saw of a round's calls; None where it saw nothing."""

    own_share: float | None = None
    kernel_ms: float | None = None
    other_streams: int = 0
    marks_disturbed: bool = False
    foreign: dict[str, float] = Field(
        default_factory=dict
    )  # shares of time, by kernels that compute
    plain: float = 0.0  # share of torch's simple operators, of copies and fills


class Timed(Watched):
    """One round: milliseconds and seals a call. `changed`: calls whose outputs changed after them."""

    latencies: tuple[float, ...]
    seals: tuple[tuple[int, ...], ...]
    changed: int
    shared: bool
    difference: float
    seen: Seen | None = None
    grown_bytes: int = 0  # what the candidate has kept of the device's memory since the last round


class Reveal(Message):
    """Write the outputs of a call of the last round or batch to files."""

    index: int
    name: str


class Revealed(Message):
    """What they were like."""

    outputs: tuple[Output, ...]


class Fill(Message):
    """Make inputs for a batch of calls, one set each."""

    draws: tuple[Draw, ...]


class Batch(Message):
    """So many calls behind a wait that is long enough to queue them, for the parent's own clock."""

    first: int
    calls: int
    wait_ms: float


class Batched(Watched):
    """`dry`: the device had done its waiting before all calls were queued."""

    dry: bool


class Rest(Message):
    """Let go of the device's memory: others share it."""


class Package(Message):
    """Time by the package's own timer, with its own protocol."""

    trials: int
    warmup_runs: int
    iterations: int


class Latency(Watched):
    """Milliseconds a call."""

    milliseconds: float


class Expect(Message):
    """Shapes and dtypes of the reference's outputs for a draw."""

    draw: Draw


class Expected(Message):
    """What outputs must be like."""

    outputs: tuple[Output, ...]


class Judge(Message):
    """Compare the files of one call with the reference; `seals` None where none were made. `exactly`: say
    how exact they are, too."""

    draw: Draw
    name: str
    key: int = 0
    seals: tuple[int, ...] | None = None
    exactly: bool = False


class Judged(Message):
    """Figures by output, or why there are none. `broken`: files that are not what was sealed. `exactness` is
    of the outputs with a floating-point format, and `in_tf32` what the reference's products in TF32 would
    have (see `Exactness.error`); without products 0. Both empty where nobody can say."""

    figures: tuple[Figures, ...] = ()
    exactness: tuple[Exactness, ...] = ()
    in_tf32: tuple[float, ...] = ()
    skipped: str = ""
    broken: bool = False


class TimeReference(Message):
    """Launch-free latency of the reference, timed as candidates are."""

    rounds: int
    seconds: float


class ReferenceTimed(Message):
    """Its statistics."""

    latency: Statistics


class WriteInductor(Message):
    """Compile the reference by `torch.compile`."""


class InductorText(Message):
    """Inductor's text, where each argument of its `call` comes from (`L['x']`), and by kernel the tiles and
    launch options that its autotuner chose; or why there is none."""

    text: str = ""
    origins: tuple[str, ...] = ()
    chosen: dict[str, dict[str, int]] = Field(default_factory=dict)
    failure: str = ""


class Compile(Message):
    """Every kernel that one call of a solution would launch, for the target of the child."""

    definition: dict[str, Any]
    workload: dict[str, Any]
    solution: dict[str, Any]
    destination_passing_style: bool


class Code(Message):
    """One compiled kernel: its PTX, whose lines of the source name the solution's files, its machine
    code as base64, and of its launch the blocks (0 where nobody can say) and what
    `ptx.module.Function.launch` takes: integer parameters by their places, and the middle block."""

    kernel: str
    ptx: str
    cubin: str = ""
    blocks: int = 0
    launch: dict[str, int] = Field(default_factory=dict)


class Resources(Message):
    """What one compiled kernel takes: bytes and 32-bit registers a thread; spills in bytes."""

    kernel: str
    warps: int
    stages: int
    shared_bytes: int
    registers: int
    spilled_bytes: int


class Compiled(Message):
    """What each kernel takes, and what was made of it."""

    resources: tuple[Resources, ...]
    code: tuple[Code, ...] = ()

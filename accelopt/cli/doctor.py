"""`accelopt doctor`: nine checks in the order in which a tuning needs them, one line each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distribution, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from accelopt.agents.budget import Budget, Ledger
from accelopt.agents.calls import NO_ANSWER, InMemory, Question
from accelopt.agents.configuration import ModelConfig, load_model_config
from accelopt.api import base_folder, own_kernel
from accelopt.cli.kernel_file import TargetOption
from accelopt.errors import AcceloptError, ConfigError, sentence
from accelopt.kernel_wrapper import NKIKernel
from accelopt.kernels.nki.default_target import default_target
from accelopt.kernels.nki.devices import neuron_profile, trainium
from accelopt.knob_space import KnobSpec, Space, values_in
from accelopt.loop import search
from accelopt.nodes import Node
from accelopt.search.knob_experts import EXPERTS, TriedValues, best_of
from accelopt.search.knob_search import Experts
from accelopt.sim import standin
from accelopt.sim.dialects.nki.versions import NEWEST, VERSIONS
from accelopt.stages.baseline_and_winner import measure
from accelopt.stages.config import Options
from accelopt.stages.run_setup import open_run
from accelopt.stages.workshop import Calls
from accelopt.time_limits import DOCTOR_SECONDS

LEAST_PYTHON = (3, 10)
TOOLS = "aws-neuronx-tools"
CALL_ATTEMPTS = 2
ASKED = 'Answer with this JSON object and nothing else: {"block_m": 128, "num_warps": 4}'
EXPECTED = {"block_m": 128, "num_warps": 4}
PLANTED = Space(
    kernel="planted",
    knobs=(
        KnobSpec(name="block_m", type="int", allowed=(64, 128, 256), default=128),
        KnobSpec(name="num_warps", type="int", allowed=(2, 4, 8), default=4),
    ),
)
KERNEL = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for j in nl.affine_range(4):
        tile = nl.load(x[0:128, j * 128 : (j + 1) * 128])
        nl.store(result[0:128, j * 128 : (j + 1) * 128], value=nl.multiply(tile, 2.0))
    return result
"""
REFERENCE = """import numpy as np


def get_inputs():
    return [np.random.normal(size=(128, 512)).astype(np.float32)]


def forward(x):
    return x * np.float32(2)


def transform_to_nki_inputs(inputs):
    return inputs


def transform_nki_outputs(k_res, ref):
    return [k_res]
"""


class Setup(NamedTuple):
    """What is examined: one's own kernel and model where they are named, else a small example."""

    kernel: Path
    reference: Path
    model_config: Path | None
    target: str


Check = Callable[[Setup], str]


def doctor(
    kernel: Annotated[Path | None, typer.Argument(help="a kernel of one's own")] = None,
    reference: Annotated[Path | None, typer.Option(help="its NumPy module")] = None,
    model_config: Annotated[Path | None, typer.Option(help="model configuration")] = None,
    target: TargetOption = None,
) -> None:
    """Say what a run needs and what is missing, in the order in which a run would meet it."""
    if (kernel is None) != (reference is None):
        raise ConfigError("a kernel needs its --reference, and a reference its kernel")
    with tempfile.TemporaryDirectory() as folder:
        own, example = kernel is not None, Path(folder)
        if not own:
            (example / "kernel.py").write_text(KERNEL, encoding="utf-8")
            (example / "reference.py").write_text(REFERENCE, encoding="utf-8")
        setup = Setup(
            kernel or example / "kernel.py",
            reference or example / "reference.py",
            model_config,
            target or default_target(kernel or example / "kernel.py"),
        )
        failed = [line for line in examine(setup) if not line[1]]
    if failed:
        raise typer.Exit(1)


def examine(setup: Setup) -> Iterator[tuple[str, bool]]:
    """Each check by name and whether it passed, as its line is printed."""
    for number, (name, check) in enumerate(CHECKS.items(), 1):
        try:
            said, passed = check(setup), True
        except (AcceloptError, OSError) as error:
            said, passed = sentence(error), False
        typer.echo(f"{number} {name:12s} {'ok' if passed else 'TO DO'}  {said}")
        yield name, passed


def environment(setup: Setup) -> str:
    """Python, and the key where a model is configured."""
    if sys.version_info[:2] < LEAST_PYTHON:
        raise ConfigError(f"Python {'.'.join(map(str, LEAST_PYTHON))} or later is needed")
    if setup.model_config is None:
        return f"Python {sys.version.split()[0]}; no model is configured: experts follow rules"
    _config(setup)
    return f"Python {sys.version.split()[0]}; the model's key is there"


def packages(setup: Setup) -> str:
    """Everything that the package declares."""
    missing = []
    for line in requires("accelopt") or ():
        name = line.split(";")[0].strip()
        if "extra ==" in line:
            continue
        try:
            distribution(name.split("=")[0].split(">")[0].split("<")[0].split("[")[0].strip(" ~!"))
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        raise ConfigError(f"not installed: pip install {' '.join(map(repr, missing))}")
    return "all that accelopt needs"


def device(setup: Setup, folder: Path = Path("/dev")) -> str:
    """What of a Trainium host is there: all of it, or nothing. Devices are looked for in `folder`."""
    found, closed = trainium.cores(folder), trainium.closed(folder)
    sdk = {name: _version(name) for name in ("nki", "neuronxcc") if standin.sdk_installed(name)}
    profiler, tables = neuron_profile.executable(), find_spec("pyarrow") is not None
    there = [f"{len(found)} Neuron device{'s' * (len(found) > 1)}"] if found else []
    there += [f"the SDK's {name} {number}".rstrip() for name, number in sdk.items()]
    wrong = ""
    if profiler is not None:
        try:
            there.append(f"{profiler} ({neuron_profile.version(profiler)})")
        except neuron_profile.ProfilerError as error:
            there.append(profiler)
            wrong = f"{TOOLS} is to be installed anew, for {error}"
    if not there:
        return "no Neuron device, SDK or profiler: kernels run on the simulated core"
    nki = ".".join(sdk.get("nki", "").split(".")[:2])
    known = f"understood are {VERSIONS[0]} to {NEWEST}"
    older = nki and nki not in VERSIONS and _numbers(nki) < _numbers(NEWEST)
    ended = profiler is not None and "explorer" not in profiler and nki in VERSIONS[1:]
    lacking = {
        "a Neuron device under /dev (none is visible here)": not found,
        closed: bool(closed),
        "the SDK: install `nki` by the Neuron setup guide": not sdk,
        f"a newer nki than {nki}, of which {known}: pip install --upgrade nki": older,
        f"a profiler: apt install {TOOLS} has neuron-explorer": profiler is None,
        f"neuron-explorer, for no SDK has neuron-profile from 2.30 on: apt install {TOOLS}": ended,
        wrong: bool(wrong),
    }
    lost = [what for what, lacks in lacking.items() if lacks]
    if lost:
        raise ConfigError(f"there is {', '.join(there)}; what lacks: {'; '.join(lost)}")
    there += [f"of nki, {known}"] if nki and nki not in VERSIONS else []
    there += [] if tables else ["no pyarrow for Parquet profiles: pip install 'accelopt[profiles]'"]
    return f"{trainium.generation() or 'a generation that the instance does not tell'}: {', '.join(there)}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _version(package: str) -> str:
    for name in (package, {"neuronxcc": "neuronx-cc"}.get(package, package)):
        with contextlib.suppress(PackageNotFoundError):
            return distribution(name).version
    return ""


def files(setup: Setup) -> str:
    """Kernel, reference, prompts."""
    own_kernel(setup.kernel, setup.reference)
    prompts = base_folder() / "prompts"
    if not prompts.is_dir():
        raise ConfigError(f"no prompts in {prompts}; set ACCELOPT_BASE_DIR to the checkout")
    return f"{setup.kernel.name}, {setup.reference.name}, prompts"


def model(setup: Setup) -> str:
    """One call, of which a JSON object is read."""
    if setup.model_config is None:
        return "none is configured"
    config = _config(setup)
    if config.offline:
        return "offline: no call is made"
    brief = config.model_copy(update={"timeout": min(config.timeout, DOCTOR_SECONDS),
                                      "attempts": min(config.attempts, CALL_ATTEMPTS)})  # fmt: skip
    answer = asyncio.run(_asked(brief))
    found = values_in(answer)
    if found is None:
        raise ConfigError(f"the model answered prose where JSON was asked for: {answer[:80]!r}")
    if found != EXPECTED:
        raise ConfigError(f"the model answered {json.dumps(found)[:80]} where {EXPECTED} was asked")
    return f"{config.model} answers with JSON"


def validation(setup: Setup) -> str:
    """The knobs' own defaults, and what every expert proposes first."""
    first = [expert.choose(PLANTED, [], random.Random(0)) for expert in EXPERTS.values()]
    for values in (PLANTED.default, *filter(None, first)):
        if faults := PLANTED.faults(values):
            raise ConfigError(f"nothing validates: {faults[0]}")
    return f"defaults and the first proposals of {', '.join(EXPERTS)}"


def execution(setup: Setup) -> str:
    """The kernel, judged."""
    found = NKIKernel(setup.kernel, setup.reference).profile(())
    if found.correct:
        where = "the simulated core" if found.metadata.get("simulated", True) else "a NeuronCore"
        return f"correct on {where}, {found.metadata['latency']:.4g} ms"
    reason = next((str(v) for k, v in found.metadata.items() if k.endswith("_error")), "no reason")
    how = "computes a wrong result" if found.compiled else "cannot be built or run"
    raise ConfigError(f"the kernel {how}: {reason}")


def analysis(setup: Setup) -> str:
    """A table whose best is known, with a failure and a gap in it."""
    table = [TriedValues({"block_m": 64}, 2.0), TriedValues({"block_m": 128}, 1.0),
             TriedValues({"block_m": 256}, float("inf"), "out of resources"), TriedValues({}, None)]  # fmt: skip
    best = best_of(table)
    if best is None or best.latency != 1.0:
        raise ConfigError("the best of a known table is not found: report this")
    return "the fastest correct configuration is found"


def loop(setup: Setup) -> str:
    """One iteration of a tuning, offline, on the kernel."""
    with tempfile.TemporaryDirectory() as folder:
        start, strategy = asyncio.run(_tuned(setup, Path(folder)))
    state = strategy.state()
    if not state["best_config"]:
        raise ConfigError(f"no configuration of the kernel can be built: {state['converged']}")
    assert start.latency and strategy.best.latency
    gain = start.latency / strategy.best.latency
    said = f"the best configuration is {gain:.2f} times as fast"
    return said if gain > 1 else f"{said}: no gain yet, give a tuning more iterations"


CHECKS: dict[str, Check] = {
    "environment": environment,
    "packages": packages,
    "device": device,
    "files": files,
    "model": model,
    "validation": validation,
    "execution": execution,
    "analysis": analysis,
    "loop": loop,
}


def _config(setup: Setup) -> ModelConfig:
    assert setup.model_config is not None
    return load_model_config(setup.model_config, "planner", os.environ)


async def _asked(config: ModelConfig) -> str:
    endpoint = Calls(InMemory(), Ledger(Budget())).model(config)
    question = Question("planner", "doctor", "You answer with JSON.", ASKED)
    try:
        return (await endpoint.ask(question)).text
    except NO_ANSWER as error:
        raise ConfigError(f"the model does not answer: {error}") from None
    finally:
        await endpoint.close()


async def _tuned(setup: Setup, folder: Path) -> tuple[Node, Experts]:
    """One iteration of the experts, by rule."""
    options = Options(strategy="experts", iterations=1, workers=1, target=setup.target)
    async with open_run(options.config(folder, base_folder()), {}) as run:
        start = await measure(own_kernel(setup.kernel, setup.reference), run)
        if start.latency is None:
            raise ConfigError(f"there is nothing to start from: {start.evaluation.message}")
        strategy = Experts(start, run.settings, 0)
        await search(strategy, start, run)
        return start, strategy

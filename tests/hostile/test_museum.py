"""Every kernel of the museum gets the verdict that stands in its second line (`exhibits.py`).

`refused|crash` is refused for its text, and crashes where the published rules read no text. `correct` means:
as correct, and as fast, as the honest kernel.
`honest_<reference>` is that kernel; other honest ones compute the same in another way, and must pass.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from alone import evaluated
from exhibits import header, kernel_file, names, reference_file

from accelopt.evaluation import Evaluation, EvaluationRequest, Scrutiny, Status
from accelopt.kernels.nki.judging import evaluate
from accelopt.kernels.nki.referee.trials import TrialStore
from accelopt.sandbox import forkserver

KERNELS = names()
QUICK_SECONDS = 2.0
MARK = f"museum-of-{os.getpid()}"


@pytest.fixture(scope="module", autouse=True)
def scratch() -> Iterator[Path]:
    """Where no test beside this one has scratch folders."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.fixture(scope="session")
def trials(tmp_path_factory) -> TrialStore:
    return TrialStore(tmp_path_factory.getbasetemp() / "trials")


def judged(kernel: str, trials: TrialStore, scrutiny: Scrutiny = Scrutiny.FULL) -> Evaluation:
    request = EvaluationRequest(
        scrutiny=scrutiny,
        kernel=str(kernel_file(kernel)),
        task=str(reference_file(kernel)),
    )
    if "timeout" in header(kernel)["verdict"]:
        impatient = {"compile_seconds": QUICK_SECONDS, "total_seconds": 30 * QUICK_SECONDS}
        request = request.model_copy(update=impatient)
        return evaluated(request, str(trials.root.parent))
    return evaluate(request, trials=trials)


@pytest.fixture(scope="session")
def judgement(trials) -> Callable[[str], Evaluation]:
    """The verdict on a kernel by its name, found once: honest ones are controls of others."""
    return cache(lambda kernel: judged(kernel, trials))


def verdict(kernel: str, *, published: bool = False) -> str:
    """The one verdict with that scrutiny."""
    said = header(kernel)["verdict"].removesuffix("|coding:utf-7").split("|")
    return said[-1 if published else 0]


def is_control_needed(kernel: str) -> bool:
    """True for a kernel that may be correct without being honest."""
    return "correct" in header(kernel)["verdict"] and not kernel.startswith("honest_")


def test_the_museum_is_large_enough():
    assert len(KERNELS) - sum(name.startswith("honest_") for name in KERNELS) >= 40


@pytest.mark.parametrize("kernel", KERNELS)
def test_verdict(kernel, judgement, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-caller")
    monkeypatch.setenv("TZ", MARK)  # passes to every child: it marks what we started
    evaluation = judgement(kernel)
    assert evaluation.status.value == verdict(kernel), (evaluation.status, evaluation.message)
    if evaluation.status is Status.CORRECT and is_control_needed(kernel):
        control = judgement(f"honest_{header(kernel)['reference']}")
        assert evaluation.profile.latency == control.profile.latency
    if evaluation.status is not Status.CORRECT:
        assert evaluation.message and evaluation.profile is None
    assert "secret" not in evaluation.model_dump_json()
    assert not any(ord(c) < 32 and c not in "\n\t" for c in evaluation.message)


@pytest.mark.parametrize(
    "kernel", [name for name in KERNELS if header(name)["verdict"].startswith("refused|")]
)
def test_what_its_text_gives_away_is_confined_all_the_same(kernel, trials, monkeypatch):
    """The published rules read no such text: the kernel runs, and must not get anywhere."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-caller")
    monkeypatch.setenv("TZ", MARK)
    evaluation = judged(kernel, trials, Scrutiny.PUBLISHED)
    assert evaluation.status.value == verdict(kernel, published=True), evaluation.message
    assert "secret" not in evaluation.model_dump_json()


def test_nothing_is_left_behind(scratch):
    assert not Path("/tmp/accelopt-was-unpickled").exists()
    assert not list(scratch.glob("accelopt-scratch-*"))
    while forkserver._own:
        forkserver._own.popitem()[1].close()
    until = time.monotonic() + 60  # the forks of a server end when they see that it has
    while (left := [p.name for p in Path("/proc").glob("[0-9]*") if _is_marked(p)]) and (
        time.monotonic() < until
    ):
        time.sleep(0.05)
    assert left == []


def _is_marked(process: Path) -> bool:
    try:
        return MARK.encode() in (process / "environ").read_bytes()
    except OSError:
        return False

"""Golden files: what a person should review, compared with what the code makes now. And a home of
its own for each run of the tests: what a user's cache knows must not decide them."""

import compileall
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_problem import KERNEL, REFERENCE


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )


MEMORY = Path("/dev/shm")


def pytest_configure(config: pytest.Config) -> None:
    """What a test writes it forces to disk, and throws away: a folder in memory saves a third of the
    time. And a program that a test starts need not compile the package again."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(__file__).parents[1] / "accelopt", quiet=2)
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


LONGEST_FIRST = (
    "test_museum.py",
    "test_nests.py",
    "test_verdicts.py",
    "test_referee.py",
    "test_documents.py",
    "test_recorded.py",
    "test_optimize_kernels.py",
    "test_workers.py",
    "test_faults.py",
    "test_installed.py",
    "test_sandbox.py",
    "test_also.py",
    "test_accelopt_command.py",
    "test_killed_manager.py",
    "test_optimize.py",
    "test_commands.py",
    "test_strategies.py",
    "test_write.py",
    "test_advice_commands.py",
    "test_kill.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest (15 to 60 seconds) begin first, so that both processes end together."""
    longest = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: longest.get(item.path.name, len(longest)))


@pytest.fixture(autouse=True, scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Caches begin empty: here, and in the programs that tests start."""
    before = os.environ.get("HOME")
    folder = tmp_path_factory.mktemp("home")
    os.environ["HOME"] = str(folder)
    yield folder
    if before is None:
        del os.environ["HOME"]
    else:
        os.environ["HOME"] = before


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares text with the file golden/<name> beside the test."""

    def compare(name: str, text: str) -> None:
        path = Path(request.path).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{path} differs; see with --update-golden and git diff"

    return compare


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a small kernel and its reference."""
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "reference.py").write_text(REFERENCE)
    return tmp_path

"""Golden files: what a person should review, compared with what the code makes now. And a home of
its own for each run of the tests: what a user's cache knows must not decide them."""

import compileall
import gc
import os
import shutil
import signal
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from small_problem import KERNEL, REFERENCE


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )


MEMORY = Path("/dev/shm")
# What some hosts set: other places for caches, and how output looks.
SET_BY_HOSTS = """
XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME COLUMNS FORCE_COLOR PY_COLORS CLICOLOR_FORCE GITHUB_ACTIONS
""".split()

# The same examples in each run, however long one takes; with `--hypothesis-profile random` others.
for name, same in (("random", False), ("same", True)):
    hypothesis.settings.register_profile(
        name, derandomize=same, deadline=None, database=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )  # fmt: skip
hypothesis.settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """What a test writes it forces to disk, and throws away: a folder in memory saves a third of the
    time. A program that a test starts need not compile the package again, and listens to Ctrl-C also where
    a shell runs the tests in the background."""
    gc.set_threshold(50_000, 20, 20)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in SET_BY_HOSTS:
        os.environ.pop(name, None)
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(__file__).parents[1] / "accelopt", quiet=2)
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_finish() -> None:
    """Thousands of tests and the modules of all are no garbage, and need not be looked through for it."""
    gc.freeze()


LONGEST_FIRST = """
museum nests documents prompt_facts bench verdicts sandbox trainium faults strategies installed workers
server replay check_instructions commands translation advice_commands made_up_instruction kill
compute_oracle knob_search moves attention_loops rounding killed_manager optimize_kernels scheduled_kernels
odd_answers optimize tune write accelopt_command calibration
""".split()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest (5 to 60 seconds) begin first, so that both processes end together: `make test`
    tells xdist to keep this order."""
    longest = {f"test_{name}.py": place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: longest.get(item.path.name, len(longest)))


@pytest.fixture(autouse=True, scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Caches begin empty: here, and in the programs that tests start. And of the certificates, which each
    client of a model reads whole, there is one: no test speaks to a server that has any."""
    folder = tmp_path_factory.mktemp("home")
    changed = {"HOME": str(folder)}
    if (every := ssl.get_default_verify_paths().cafile) is not None:
        first, end, _ = Path(every).read_text().partition("-----END CERTIFICATE-----\n")
        (folder / "certificate.pem").write_text(first + end)
        changed["SSL_CERT_FILE"] = str(folder / "certificate.pem")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changed.items():
            patch.setenv(name, value)
        yield folder


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

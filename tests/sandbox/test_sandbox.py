"""A child process keeps to its policy and limits, and leaves nothing behind."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest

from accelopt.sandbox import (
    ChildOutcome,
    Ending,
    ForkServer,
    Limits,
    Policy,
    bubblewrap,
    fork,
    fork_with_server,
    linux_calls,
    run,
    seccomp,
    spawn,
)
from accelopt.sandbox.policy import package_folders, search_path

TESTS = Path(__file__).resolve().parents[1]
QUICK = Limits(seconds=30, memory_bytes=1 << 30)


@pytest.fixture(scope="module")
def server():
    warm = ForkServer(["json", "numpy"], beside=True)
    yield warm
    warm.close()


@pytest.fixture(scope="module", params=["spawned", "served"], autouse=True)
def start(request, server):
    """Every test here, with children that are new interpreters and with forks of a server."""
    call.start = spawn if request.param == "spawned" else server.start


def call(name: str, payload=None, *, limits=QUICK, policy=None, **options) -> ChildOutcome:
    """Run one entry of misdeeds.py in a child."""
    options = {"start": getattr(call, "start", spawn), **options}
    policy = policy or Policy(readable=(str(TESTS),))
    entry = f"tests.sandbox.misdeeds:{name}"
    return run(entry, payload or {}, policy=policy, limits=limits, **options)


def attempt(name: str, path: object = "", **options) -> str:
    outcome = call("report", {"name": name, "path": str(path)}, **options)
    assert outcome.completed, outcome
    return outcome.result.decode()


def new_mark() -> str:
    return f"acc-{os.getpid() % 10**5}-{time.monotonic_ns() % 10**5}"


def processes_named(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().strip() == mark:
                found.append(folder.name)
        except OSError:
            continue
    return found


def test_result_comes_back_as_bytes():
    outcome = call("echo", {"a": [1, 2.5, "x\n"]})
    assert outcome.ending is Ending.FINISHED and outcome.exit_code == 0
    assert json.loads(outcome.result) == {"a": [1, 2.5, "x\n"]}
    assert "limits" in outcome.isolation


def test_no_secret_reaches_the_child(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    seen = json.loads(call("environment", environment={"NEURON_RT_NUM_CORES": "1"}).result)
    assert "secret" not in json.dumps(seen)
    assert seen["NEURON_RT_NUM_CORES"] == "1"


@pytest.mark.parametrize(
    ("entry", "ending"),
    [("hang", Ending.TIMEOUT), ("flood", Ending.FLOOD), ("fill_disk", Ending.DISK)],
)
def test_a_child_beyond_its_limits_is_ended(entry, ending):
    seconds = 3 if ending is Ending.TIMEOUT else 60
    limits = Limits(seconds=seconds, disk_bytes=8 << 20, output_bytes=4 << 20)
    outcome = call(entry, limits=limits)
    assert outcome.ending is ending
    assert len(outcome.output) <= limits.kept_output_bytes


@pytest.mark.parametrize("start", ["served"], indirect=True)  # its caller counts, however it began
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell")
def test_waiting_for_a_busy_processor_is_no_work():
    """A judgement of three minutes met a limit of fifteen on a machine that gave it a tenth of a core."""
    spin = [sys.executable, "-c", "while True: pass"]
    count = 4 * len(os.sched_getaffinity(0))
    others = [subprocess.Popen(spin, start_new_session=True) for _ in range(count)]
    try:
        began = time.monotonic()
        outcome = call("work", limits=Limits(seconds=1.5))
        took = time.monotonic() - began
        assert took > 1.5 and (outcome.completed or took > 4 * 1.5)  # no more is given to anybody
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.parametrize("start", ["served"], indirect=True)
def test_waiting_for_threads_of_its_own_wins_little_time():
    outcome = call("crowd", limits=Limits(seconds=1))
    assert outcome.ending is Ending.TIMEOUT
    assert outcome.seconds < 15  # 20 and more where all that time was given


@pytest.mark.parametrize(
    ("entry", "code", "said"),
    [("eat_memory", 1, "MemoryError"), ("exit_without_result", 0, ""), ("crash", 128 + 11, "")],
)
def test_how_a_child_ended_by_itself_is_told(entry, code, said):
    """Memory runs out inside of it; an exit is told from a signal, and from a result."""
    outcome = call(entry)
    assert (outcome.ending, outcome.exit_code) == (Ending.FINISHED, code)
    assert said in outcome.output and outcome.result == b""


def test_a_child_blocks_no_signal_though_its_caller_does():
    """A reference that blocks signals made the trace of every kernel wait for its limit."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGCHLD))
    try:
        assert json.loads(call("blocked_signals").result) == []
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_cancelling_ends_the_child():
    started = time.monotonic()
    outcome = call("hang", cancelled=lambda: time.monotonic() - started > 1)
    assert outcome.ending is Ending.CANCELLED


@pytest.mark.parametrize(
    "policy", [Policy(readable=(str(TESTS),), processes=True), Policy(confined=False)]
)
def test_daemons_do_not_outlive_the_call(policy):
    mark = new_mark()
    assert call("start_daemon", {"mark": mark}, policy=policy).result == b"started"
    assert processes_named(mark) == []


def test_a_dead_caller_takes_its_child_along():
    mark = new_mark()
    caller = os.fork()
    if caller == 0:
        call("hang", {"mark": mark})
        os._exit(0)
    deadline = time.monotonic() + 120
    while not processes_named(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(caller, 9)
    os.waitpid(caller, 0)
    while processes_named(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_named(mark) == []


def test_a_child_inherits_no_descriptor(tmp_path, server):
    """Nor does it see the results of other children: each has its own four and no more."""
    policy = Policy(readable=(str(TESTS), "/proc"))
    with (tmp_path / "secret").open("w"):
        for how in (spawn, fork, server.start):
            seen = json.loads(call("descriptors", policy=policy, start=how).result)
            assert len(seen) <= 5, seen  # the fifth is the listing's own
            assert not any("secret" in place or "socket" in place for place in seen.values())


def test_forks_of_a_server_do_not_see_each_other(server):
    for _ in range(2):
        assert json.loads(call("remember", start=server.start).result) == "nothing"


def test_who_holds_something_gets_forks_that_hold_nothing(server):
    """From the server that it was started beside, or from one of its own; confined ones ask for none."""
    for how in (server.start, fork_with_server, spawn):
        policy = Policy(confined=False)
        told = json.loads(call("ask_beside", policy=policy, start=how).result)
        assert told[:2] == ['"nothing"'] * 2
        assert told[2] != told[3] and 0 <= float(told[2]) < 1
        assert not any("socket" in place for place in json.loads(told[4]).values())
        ours, again, one, the_same, other = told[6:]
        assert told[5] == told[0] and ours == again and one == the_same
        assert len({ours, one, other}) == 3


def test_what_a_fork_shares_is_not_its_own_memory():
    """Else a child of a large process ends for memory that it never took, as soon as it lives long enough to
    be watched (measured: each fork of a process of 700 MiB, at a limit of 1 GiB, after 0.3 s)."""
    ballast = numpy.ones(128 << 20, numpy.uint8)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    limits = Limits(seconds=30, memory_bytes=resident * 3 // 2)
    for how in (fork, fork_with_server):
        assert call("work", policy=Policy(confined=False), limits=limits, start=how).completed
    assert ballast.all()


def test_a_server_that_was_killed_is_started_again(server):
    assert call("echo", start=server.start).completed
    os.kill(server._process.pid, 9)
    server._process.wait()
    assert call("echo", {"a": 1}, start=server.start).result == b'{"a": 1}'


def held(word: str) -> bool:
    return any(word in step for step in call("echo").isolation)


@pytest.mark.skipif(not held("landlock"), reason="the host has no Landlock")
class TestFiles:
    def test_only_named_files_are_read(self, tmp_path):
        secret, allowed = tmp_path / "secret", tmp_path / "allowed"
        secret.write_text("secret")
        allowed.write_text("kernel")
        policy = Policy(readable=(str(TESTS), str(allowed)))
        for name, path in (("read", secret), ("link", secret), ("read", "/etc/passwd"),
                           ("read", "/proc/1/environ"), ("list", tmp_path)):  # fmt: skip
            assert attempt(name, path).startswith("refused")
        assert attempt("read", allowed, policy=policy) == "done: kernel"

    def test_only_the_scratch_folder_is_written(self, tmp_path):
        (tmp_path / "kept").write_text("kept")
        assert attempt("write", "here").startswith("done")
        assert attempt("write", tmp_path / "new").startswith("refused")
        assert attempt("delete", tmp_path / "kept").startswith("refused")
        assert attempt("write", "/dev/shm/accelopt-test").startswith("refused")
        assert (tmp_path / "kept").read_text() == "kept"

    def test_other_processes_are_not_seen(self):
        assert attempt("processes").startswith("refused")


@pytest.mark.skipif(not held("seccomp"), reason="the host has no seccomp")
@pytest.mark.parametrize("misdeed", ["fork", "run", "connect", "unshare", "kill"])
def test_refused_calls(misdeed):
    assert attempt(misdeed).startswith("refused")


@pytest.mark.skipif(not held("seccomp"), reason="the host has no seccomp")
@pytest.mark.parametrize("processes", [False, True])
def test_no_folder_is_watched(tmp_path, processes):
    """Landlock says nothing of inotify and fanotify (landlock(7)): what other processes do in any
    folder that has a name could be seen."""
    policy = Policy(readable=(str(TESTS),), processes=processes)
    assert attempt("watch", tmp_path, policy=policy).startswith("refused")


@pytest.mark.skipif(not held("seccomp"), reason="the host has no seccomp")
class TestMetadata:
    """Landlock leaves the modes, owners, times and attributes of files to those who own them."""

    @pytest.mark.parametrize("misdeed", ["chmod", "chown", "utime", "setxattr", "flags"])
    @pytest.mark.parametrize("compiles", [False, True])
    def test_no_file_is_changed(self, tmp_path, misdeed, compiles):
        """To programs that compile it only seems to work."""
        kept = tmp_path / "kept"
        kept.write_text("kept")
        before = kept.stat()
        policy = Policy(readable=(str(TESTS), str(kept)), processes=compiles)
        said = "done" if compiles else "refused"
        assert attempt(misdeed, kept, policy=policy).startswith(said)
        assert kept.stat() == before and os.listxattr(kept) == []

    def test_every_listed_call_is_refused_by_number(self):
        tables = (seccomp._METADATA, seccomp._OTHERS)
        numbers = [n for t in tables for n in seccomp._numbers(linux_calls.MACHINE, t).values()]
        said = json.loads(call("call_numbers", {"numbers": numbers}).result)
        assert said == [errno.EPERM] * len(numbers)


@pytest.mark.skipif(not held("seccomp"), reason="the host has no seccomp")
def test_without_namespaces_the_other_steps_hold(tmp_path):
    """Inside of a sandbox no namespace can be made: the level is lower, and said to be."""
    (tmp_path / "secret").write_text("secret")
    policy = Policy(readable=(str(TESTS.parent), "/proc"), processes=True)
    for name, path in [("fork", ""), ("connect", ""), ("read", str(tmp_path / "secret"))]:
        outcome = call("nested", {"name": name, "path": path}, policy=policy)
        isolation, result, code, output = json.loads(outcome.result)
        assert code == 0, output
        assert not any("namespaces" in step or "bubblewrap" in step for step in isolation)
        assert "seccomp" in isolation and "limits" in isolation
        assert result.startswith("refused")


@pytest.mark.skipif(bubblewrap.installed() is None, reason="bubblewrap is not installed")
def test_bubblewrap_is_used_where_it_is_installed():
    assert "bubblewrap" in call("echo").isolation


def test_the_bubblewrap_command_names_only_what_the_policy_allows():
    folder = Path("/home/somebody/work")
    policy = Policy(readable=("/usr", "/dev/zero"), writable=("/dev/neuron0", str(folder)))
    words = bubblewrap.prefix("bwrap", policy, folder)
    assert "--unshare-net" in words and words[-1] == "--"
    binds = [(words[i], words[i + 1]) for i, word in enumerate(words) if word.endswith("-try")]
    assert binds == [
        ("--ro-bind-try", "/usr"),
        ("--dev-bind-try", "/dev/neuron0"),
        ("--bind-try", str(folder)),
    ]
    online = bubblewrap.prefix("bwrap", Policy(network=True), folder)
    assert "--unshare-net" not in online


def test_packages_of_a_python_path_are_found_and_readable_in_the_child(tmp_path):
    installed = tmp_path / "site"
    installed.mkdir()
    (installed / "numpy").symlink_to(Path(numpy.__file__).parent)
    code = (
        "import sys; from accelopt.sandbox import policy; "
        "print(policy.package_folders(), policy.ChildJob('', {}, None, None).search_path, "
        f"{str(installed)!r} in policy.runtime_paths())"
    )
    root = str(TESTS.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(installed), root))}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert said == f"{(str(installed),)} {root}:{installed} True\n"


def test_the_interpreters_own_packages_need_no_search_path():
    assert package_folders() == ()
    assert search_path() == str(TESTS.parent)

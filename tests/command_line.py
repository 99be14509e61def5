"""The command line, or a script, in a process of its own, forked from one that has imported every command:
imports cost more than most commands do. `test_installed.py` and `test_faults.py` start it as a user does."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

SERVER = """
import gc, importlib, json, os, runpy, signal, sys
from accelopt.cli.app import command
command()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for a child
for line in sys.stdin:
    words, folder, environment, streams, ended, warm = json.loads(line)
    for name in warm:
        importlib.import_module(name)
    gc.freeze()  # no child looks through what is imported
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if (child := os.fork()) == 0:
            break
        os.write(1, b"%d\\n" % child)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with open(ended, "w") as file:
            file.write(str(status))
        os._exit(0)
else:
    sys.exit()
for number, path in enumerate(streams):
    opened = os.open(path, os.O_RDWR | os.O_CREAT)
    os.dup2(opened, number)
    os.close(opened)
os.environ.clear()
os.environ.update(environment)
os.chdir(folder)
sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
sys.argv = words
if words[0] == "accelopt":
    from accelopt.cli import main
    main()
else:
    sys.path.insert(0, os.path.dirname(words[0]))
    runpy.run_path(words[0], run_name="__main__")
"""


@cache
def _server():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", SERVER], text=True, **pipes)


class Begun:
    """A process with these words, the first `accelopt` or a script's path, as `subprocess.Popen` gives one;
    `warm` are modules to import before, once for all that begin."""

    def __init__(self, *words, folder=".", environment=None, warm=()):
        self._place = tempfile.TemporaryDirectory()
        self._said = [Path(self._place.name, name) for name in ("stdout", "stderr")]
        self._ended = Path(self._place.name, "ended")
        streams = [os.devnull, *map(str, self._said)]
        order = [list(map(str, words)), str(folder), dict(environment or os.environ), streams]
        server = _server()
        print(json.dumps([*order, str(self._ended), warm]), file=server.stdin, flush=True)
        self.pid, self.returncode = int(server.stdout.readline()), None

    def poll(self):
        if self.returncode is None and self._ended.exists() and (status := self._ended.read_text()):
            self.returncode = int(status)
        return self.returncode

    def send_signal(self, which):
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ends just now
                os.kill(self.pid, which)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout=600):
        """What it printed, when it has ended."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            assert time.monotonic() < deadline, [path.read_text() for path in self._said]
            time.sleep(0.005)
        with self._place:
            return tuple(path.read_text() for path in self._said)


def accelopt(*words, **given):
    """`accelopt` with these words in a folder, ended: its exit status and what it printed."""
    process = Begun("accelopt", *words, **given)
    said = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, *said)

"""The command line in a process of its own, forked from one that has imported every command: imports cost
more than most commands do. `test_installed.py` and `test_faults.py` start it as a user does."""

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

SERVER = """
import json, os, sys
from accelopt.cli.app import command
command()
for line in sys.stdin:
    words, folder, environment, streams = json.loads(line)
    if (child := os.fork()) == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
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
sys.argv = ["accelopt", *words]
from accelopt.cli import main
main()
"""


@cache
def _server():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", SERVER], text=True, **pipes)


def accelopt(*words, folder=".", environment=None):
    """`accelopt` with these words in a folder, ended: its exit status and what it printed."""
    with tempfile.TemporaryDirectory() as place:
        said = [Path(place, name) for name in ("stdout", "stderr")]
        streams = [os.devnull, *map(str, said)]
        order = [list(map(str, words)), str(folder), dict(environment or os.environ), streams]
        server = _server()
        print(json.dumps(order), file=server.stdin, flush=True)
        status = int(server.stdout.readline())
        return subprocess.CompletedProcess(words, status, *(path.read_text() for path in said))

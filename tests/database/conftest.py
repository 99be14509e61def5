"""A PostgreSQL server of the test's own, where its programs are installed."""

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "loop")]


def programs():
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "pg_ctl").exists()), None)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """One that can be stopped as a crash would, and started again."""

    def __init__(self, folder, bin_, user):
        self.folder, self.bin, self.user, self.port = folder, bin_, user, free_port()
        self._do("initdb", "-D", self.data, "-A", "trust", "-U", "accelopt")

    @property
    def data(self):
        return str(self.folder / "data")

    def url(self, name="postgres"):
        return f"postgresql://accelopt@127.0.0.1:{self.port}/{name}"

    def start(self):
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} -c fsync=off"
        log = str(self.folder / "log")
        self._do("pg_ctl", "-D", self.data, "-w", "-l", log, "-o", options, "start")

    def stop(self, mode="immediate"):
        self._do("pg_ctl", "-D", self.data, "-m", mode, "stop")

    def _do(self, program, *words):
        command = [str(self.bin / program), *words]
        if self.user:
            command = ["runuser", "-u", self.user, "--", *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder, timeout=60)


@pytest.fixture
def postgresql():
    pytest.importorskip("psycopg", reason="make test-postgresql installs it")
    place = programs()
    if place is None:
        pytest.skip("make test-postgresql installs a PostgreSQL server")
    with tempfile.TemporaryDirectory(prefix="accelopt-postgresql-", dir="/tmp") as name:
        user = "postgres" if os.geteuid() == 0 else ""  # the server refuses to run as root
        if user:
            owner = pwd.getpwnam(user)
            os.chown(name, owner.pw_uid, owner.pw_gid)
        server = Server(Path(name), place, user)
        server.start()
        yield server
        server.stop()

"""`accelopt serve` under the client of the package `mcp` itself, over real pipes and sockets."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import benches
import mcp
import pytest
import small_problem
from mcp.client.streamable_http import streamable_http_client
from test_bench import FAST

SERVE = ("-m", "accelopt", "serve")
HANGING = small_problem.KERNEL.replace(
    "    result =", "    while True:\n        pass\n    result ="
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder that `--init` made; one evaluation at a time, so that one that hangs holds up all."""
    folder = tmp_path_factory.mktemp("served")
    kernel, reference = benches.files(folder / "own")
    given = "--reference", reference, "--target", "trn1", "--workers", 1
    said = benches.command("serve", "--init", folder / "bench", kernel, *given)
    assert re.search(r"the kernel takes [\d.]+ ms", said)
    return folder / "bench"


@pytest.fixture
def bench(made):
    """The folder with the kernel that it was made with."""
    (made / "kernel.py").write_text(small_problem.KERNEL)
    return made


def client(folder):
    """As `.mcp.json` says, in the folder: what an agent writes there is no module of the server's."""
    server = json.loads((folder / ".mcp.json").read_text())["mcpServers"]["accelopt"]
    for name in ("numpy.py", "mcp.py", "accelopt.py", "json.py", "sitecustomize.py"):
        (folder / name).write_text("raise SystemExit('a file of the folder was imported')\n")
    return mcp.Client(mcp.StdioServerParameters(**server, cwd=folder))


async def told(found, tool, **arguments):
    answer = await found.call_tool(tool, arguments)
    assert not answer.is_error
    return answer.content[0].text


def children(process):
    """The processes below one, itself included."""
    below = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # it has ended since
            continue
        below.setdefault(parent, []).append(int(stat.parent.name))
    found = [process]
    for one in found:
        found += below.get(one, [])
    return found


def gone(processes, seconds=120.0):
    """Whether all have ended by then; a zombie has."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        left = []
        for one in processes:
            try:
                if Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    left.append(one)
            except OSError:
                continue
        if not left:
            return True
        time.sleep(0.1)
    return False


def test_init_writes_what_an_agent_reads_and_refuses_what_is_there(bench, tmp_path):
    names = {str(path.relative_to(bench)) for path in bench.rglob("*") if path.is_file()}
    assert {
        "kernel.py", "reference.py", "machine.md", "calls.md", "notes.md", "AGENTS.md", ".mcp.json",
        "skills/accelopt/SKILL.md",
    } <= names  # fmt: skip
    skill = (bench / "skills" / "accelopt" / "SKILL.md").read_text()
    assert skill.startswith("---\nname: accelopt\ndescription: ")
    tools = set(re.findall(r"`(\w+)`", (bench / "AGENTS.md").read_text()))
    assert {"profile", "what_if", "check", "submit", "compare", "remember"} <= tools
    kernel, reference = benches.files(tmp_path)
    again = subprocess.run(
        [sys.executable, *SERVE, "--init", bench, kernel, "--reference", reference],
        capture_output=True, text=True,
    )  # fmt: skip
    assert again.returncode == 1 and "is not empty" in again.stderr
    nowhere = subprocess.run([sys.executable, *SERVE, tmp_path], capture_output=True, text=True)
    assert nowhere.returncode == 1 and "--init" in nowhere.stderr


def test_a_client_lists_and_calls_and_hears_of_progress(bench):
    async def use():
        notes = []

        async def noted(seconds, total, said):
            notes.append(said)

        async with client(bench) as found:
            tools = (await found.list_tools()).tools
            listed = await told(found, "profile")
            answer = await found.call_tool("schedules", {}, progress_callback=noted)
            nothing = await found.call_tool("fly", {})
            wrong = await told(found, "profile", kernel=3)
            both = await told(found, "what_if", changes=["vector x 0.5", "loads x 0"])
            return tools, listed, answer.content[0].text, notes, nothing, wrong, both

    tools, profile, schedules, notes, nothing, wrong, both = asyncio.run(use())
    assert [tool.name for tool in tools][:3] == ["check", "profile", "what_if"]
    assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools)
    assert "Limiting resource" in profile and "What the kernel computes" in schedules
    assert nothing.is_error and "There is no tool 'fly'" in nothing.content[0].text
    assert wrong.startswith("profile was not called: kernel:")
    assert "; it takes kernel (a file of the folder" in wrong and "parts (some of: advice" in wrong
    assert "was not called" not in both and "vector" in both and "loads" in both
    assert notes == [] or re.match(r"schedules since \d+ s", notes[0])


def test_a_kernel_that_hangs_is_given_up_by_its_client_and_holds_up_nobody(bench):
    """The one worker is free again: the next verdict comes long before the hanging one would."""
    (bench / "kernel.py").write_text(HANGING)

    async def use():
        noted = anyio.Event()

        async def hear(seconds, total, said):
            noted.set()

        async with client(bench) as found:
            with anyio.move_on_after(100) as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(found.call_tool, "check", {}, None, hear)
                    await noted.wait()
                    group.cancel_scope.cancel()
            (bench / "kernel.py").write_text(FAST)
            begun = time.monotonic()
            return scope.cancelled_caught, await told(found, "check"), time.monotonic() - begun

    late, verdict, seconds = asyncio.run(use())
    assert not late and verdict.startswith("correct")
    assert seconds < 100  # less than what tracing may take


CLIENT = """import asyncio, sys
import mcp

async def use():
    async def hear(seconds, total, said):
        print(said, flush=True)
    server = mcp.StdioServerParameters(command=sys.executable, args=["-m", "accelopt", "serve", sys.argv[1]])
    async with mcp.Client(server) as found:
        await found.call_tool("check", {}, progress_callback=hear)

asyncio.run(use())
"""


def test_a_client_that_dies_takes_its_server_and_the_work_with_it(bench):
    (bench / "kernel.py").write_text(HANGING)
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(bench)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline().startswith("check since")
    until = time.monotonic() + 60
    while len(below := children(process.pid)[1:]) < 2:  # the server, and the evaluation
        assert time.monotonic() < until
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    try:
        assert gone(below)
    finally:
        for one in below:
            if not gone([one], 0.2):
                os.kill(one, signal.SIGKILL)


@pytest.mark.slow
def test_two_clients_work_in_one_folder_at_a_time(bench):
    """Each has a server of its own; what one hands in the other has to beat."""

    async def use():
        async with client(bench) as one, client(bench) as other:
            noted = await asyncio.gather(*(
                told(each, "remember", note=f"note {n} of client {number}")
                for n in range(5) for number, each in enumerate((one, other))
            ))  # fmt: skip
            await told(one, "write", text=FAST, file="one.py")
            first = await told(one, "submit", kernel="one.py", change="wide")
            second = await told(other, "submit", kernel="one.py", change="the same again")
            return noted, first, second

    noted, first, second = asyncio.run(use())
    assert len(noted) == 10 and first.startswith("Accepted as lineage/")
    assert "not faster than the best so far" in second
    notes = (bench / "notes.md").read_text()
    assert all(f"- note {n} of client {c}\n" in notes for n in range(5) for c in range(2))


def test_http_is_on_loopback_and_behind_its_token(bench, tmp_path):
    import httpx2

    (tmp_path / "token").write_text("open sesame\n")
    process = subprocess.Popen(
        [sys.executable, *SERVE, str(bench), "--http", "0", "--token-file", str(tmp_path / "token")],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        address = process.stderr.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", address)

        async def use(token):
            headers = {"Authorization": f"Bearer {token}"}
            async with (
                httpx2.AsyncClient(headers=headers, timeout=60) as http,
                mcp.Client(streamable_http_client(address, http_client=http)) as found,
            ):
                return await told(found, "check")

        assert asyncio.run(use("open sesame")).startswith("correct")
        assert httpx2.post(address, json={}).status_code == 401
        assert (
            httpx2.post(address, json={}, headers={"Authorization": "Bearer x"}).status_code == 401
        )
    finally:
        process.terminate()
        process.wait(120)
        process.stderr.close()


def test_without_the_package_one_sentence_says_how_to_install_it(bench, tmp_path):
    """As on a machine without it: a module of that name that cannot be imported stands in its place."""
    (tmp_path / "mcp.py").write_text("raise ImportError('not here')\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, *SERVE, str(bench)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert (
        done.stderr
        == "error: mcp 2 is not installed; install it with: pip install 'accelopt[serve]'\n"
    )


def test_what_is_no_message_of_the_protocol_ends_nothing(bench):
    """Raw lines over the pipe: no JSON, no UTF-8, depth, calls before the greeting, wrong types, and
    cancellations of nothing."""
    process = subprocess.Popen(
        [sys.executable, *SERVE, str(bench)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )

    def send(number, method, params):
        sent = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        lines.append(json.dumps({name: part for name, part in sent.items() if part != ""}).encode())

    lines = [b"garbage", b'{"jsonrpc": "2.0"}', b"\xff\xfe", b"[" * 100_000, b"null"]
    send(1, "tools/call", {"name": "read"})
    hello = {"protocolVersion": "2025-03-26", "capabilities": {}}
    send(2, "initialize", {**hello, "clientInfo": {"name": "x", "version": "1"}})
    send("", "notifications/initialized", "")
    send(3, "tools/call", {"name": "read", "arguments": [1, 2]})
    send(4, "tools/call", {"name": 7})
    send(5, "tools/call", {"name": "write", "arguments": {"text": "x" * 3_000_000}})
    send("", "notifications/cancelled", {"requestId": []})
    send(6, "tools/call", {"name": "recall", "arguments": {}})
    process.stdin.write(b"\n".join(lines) + b"\n")
    process.stdin.flush()
    answers = {}
    while 6 not in answers or 5 not in answers:
        answer = json.loads(process.stdout.readline())
        answers[answer["id"]] = answer
    assert all("error" in answers[number] for number in (1, 3, 4))
    assert "would be longer" in answers[5]["result"]["content"][0]["text"]
    assert "start:" in answers[6]["result"]["content"][0]["text"]
    process.stdin.close()
    assert process.wait(120) == 0
    process.stdout.close()

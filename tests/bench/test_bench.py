"""The tools of the bench against what the commands print, and against attacks.

Evidence: the commands, and the simulated core behind both; a tool that said something else would be wrong.
"""

import asyncio
import copy
import json
import os
import re
import shutil
import time

import benches
import pytest
import small_problem

from accelopt.bench.bench import PARTS
from accelopt.bench.folder import BenchFolder
from accelopt.bench.tools import LINES, page, placed_nowhere
from accelopt.caches import default_cache, trials_folder
from accelopt.errors import ConfigError
from accelopt.stages.failure_text import own_frames

FAST = small_problem.KERNEL.replace("range(8)", "range(1)").replace(
    "128 : (j + 1) * 128", "1024 : (j + 1) * 1024"
)
WRONG = small_problem.KERNEL.replace("nl.add(exponential, 1.0)", "nl.add(exponential, 2.0)")
BROKEN = small_problem.KERNEL.replace("x[0:128,", "x[0:129,")


def lines(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("kernel", "target"), [(small_problem.KERNEL, "trn1"), (benches.NARROW, "trn2")]
)
def test_profile_what_if_and_explain_say_what_the_commands_print(tmp_path, kernel, target):
    async def work(bench, call):
        parts = {part: await call("profile", parts=part) for part in PARTS}
        halved = await call("what_if", changes=f"line {slow(parts['lines'])} x 0.5")
        return parts, halved, await call("explain")

    def slow(text):
        return re.search(r"\n +(\d+) ", text)[1]

    parts, halved, explained = benches.at_bench(tmp_path, work, kernel, target)
    own = benches.files(tmp_path / "own", kernel)
    given = own[0], "--reference", own[1], "--target", target
    printed, said = benches.command("profile", *given), benches.command("explain", *given)
    assert all(len(line) <= 100 for line in lines(printed) if not line.startswith("$ accelopt"))
    unfolded = " ".join(printed.split())
    for part in ("advice", "limits", "engines", "prices", "memory"):
        aside = ("Not shown", "What ", "Memory")
        told = [line for line in lines(parts[part]) if not line.startswith(aside)]
        assert told and not [line for line in told if " ".join(line.split()) not in unfolded], part
    line, milliseconds = re.match(r"line (\d+) x 0.5: ([\d.]+) ms", halved).groups()
    assert re.search(rf"{milliseconds} ms -?\d+% line {line} takes half as long", unfolded)
    assert [line for line in lines(explained) if line not in lines(said)] == []


def test_several_what_ifs_are_answered_alone_and_together(tmp_path):
    async def work(bench, call):
        return (
            await call("what_if", changes="scalar x 0; loads x 0"),
            await call("what_if", changes="lines 10 999 x 0.5; line 10 x 2; line 10 x 0.5"),
            await call("what_if", changes="faster please"),
            await call("what_if", changes="lines 8 to 13 x 50%, everything x 2; line 10 x 0.5 "),
        )

    both, refused, vague, part = benches.at_bench(tmp_path, work)
    scalar, loads, together = (float(ms) for ms in re.findall(r": ([\d.]+) ms", both))
    assert together <= min(scalar, loads)
    nowhere, longer, answered = refused.splitlines()  # one of them left nothing answered
    assert "line 999 has no instruction" in nowhere and nowhere.endswith(": 10 11 12 13 14")
    assert "at most 1" in longer and re.match(r"line 10 x 0.5: [\d.]+ ms", answered)
    assert "Ask as in" in vague
    # Read as `tensor x 0` alone, and not said, was `lines 27-30 x 0.5, tensor x 0`.
    assert part.startswith("lines 8 to 13 x 50%: ") and "line 10 x 0.5: " in part
    assert "Not read: `everything x 2`. Ask as in" in part


def test_a_start_that_hidden_inputs_find_wrong_is_said_to_be_so(tmp_path):
    """Whoever began with it was told "correct", and that his own version was wrong for the same reason."""
    capped = small_problem.KERNEL.replace(
        "nl.negative(x_tile)", "nl.minimum(nl.negative(x_tile), 9.0)"
    )

    async def work(bench, call):
        return await call("check"), await call("read", file="machine.md"), await call("recall")

    answers = benches.at_bench(tmp_path, work, capped)
    assert answers[0].startswith("correct, ") and answers[2].startswith("- start: ")
    warning = "wrong on inputs that nobody drew; what is found must not be"
    assert all(warning in " ".join(answer.split()) for answer in answers)


@pytest.mark.slow
def test_check_says_what_the_command_says(tmp_path):
    async def work(bench, call):
        said = {}
        for name, text in (("right", FAST), ("wrong", WRONG), ("broken", BROKEN)):
            await call("write", text=text)
            said[name] = await call("check")
        await call("write", text=FAST.replace("\n", "\r\n"))
        said["lines of Windows"] = await call("edit", old="as nki\nimport", new="as nki\nimport")
        await call("write", text="def kernel(x:\n")
        for tool in ("schedules", "rules"):
            assert "kernel.py" in (answer := await call(tool)) and "SyntaxError" in answer
            assert not re.search(r"[0-9a-f]{32}", answer)
        await call("write", text=small_problem.KERNEL.replace("nl.exp(", "nl.expo("))
        return said, await call("check")

    said, unknown = benches.at_bench(tmp_path, work)
    assert said["lines of Windows"] == "Changed at line 1 of kernel.py."
    assert "no attribute 'expo'" in unknown and "Near names: nl.exp" in unknown
    for name, text in (("right", FAST), ("wrong", WRONG), ("broken", BROKEN)):
        kernel, reference = benches.files(tmp_path / name, text)
        words = ("check", kernel, "--reference", reference, "--target", "trn1")
        printed = benches.command(*words, status=int(name != "right"))
        assert ("correct" in printed) == said[name].startswith("correct") == (name == "right")
        for rule in re.findall(r":\d+: ([a-z_]+)\n", printed):
            assert f"[{rule}]" in said[name]
    assert "line 10" in said["broken"] and "wrong_numbers" in said["wrong"]
    assert said["wrong"].count("max diff") == 1  # the first check that failed stood there twice


def test_what_is_submitted_is_kept_when_it_is_right_and_faster(tmp_path):
    async def work(bench, call):
        await call("write", text=WRONG)
        wrong = await call("submit", change="another constant")
        await call("write", text=FAST)
        right = await call("submit", change="wider tiles")
        again = await call("submit", change="nothing")
        await call("write", text="print(1)", file="lineage/7.py")
        compared = await call("compare", one="lineage/1.py", other="kernel.py")
        dma = await call("compare", one="lineage/0.py", other="kernel.py")
        assert re.search(r"\n  dma: [\d.]+% to [\d.]+% of the time\n", dma)
        return wrong, right, again, compared, await call("recall", about="wider"), bench.best

    wrong, right, again, compared, recalled, best = benches.at_bench(tmp_path, work)
    folder = tmp_path / "bench"
    assert wrong.startswith("Refused. wrong_numbers") and "not faster" in again
    assert right.startswith(f"Accepted as lineage/1.py: {best.latency:.4g} ms")
    assert compared.splitlines() == [
        f"{name}: right, {best.latency:.4g} ms" for name in ("lineage/1.py", "kernel.py")
    ]
    assert recalled.startswith('- "wider tiles": accepted as lineage/1.py')
    kept = [(folder / "lineage" / name).read_text() for name in ("0.py", "1.py")]
    assert kept == [small_problem.KERNEL, best.source]
    assert not (folder / "lineage" / "7.py").exists()  # only the bench writes there
    assert "wider tiles" in (folder / "lineage" / "1.md").read_text()


def test_what_another_process_handed_in_meanwhile_has_to_be_beaten(tmp_path, monkeypatch):
    """Of two that handed in at once the slower one was accepted after the faster."""
    middle = small_problem.KERNEL.replace("range(8)", "range(4)").replace(
        "128 : (j + 1) * 128", "256 : (j + 1) * 256"
    )

    async def work(bench, call):
        other = copy.copy(bench)
        other._submitting = asyncio.Lock()
        account, said = bench.language.account, []

        async def meanwhile(node):
            monkeypatch.setattr(bench.language, "account", account)
            said.append(await other.submit_text(FAST, "tiles of a row"))
            return await account(node)

        monkeypatch.setattr(bench.language, "account", meanwhile)
        return [await bench.submit_text(middle, "wider tiles"), *said]

    slower, faster = benches.at_bench(tmp_path, work)
    assert faster.startswith("Accepted as lineage/1.py") and "not faster than the best" in slower


def test_schedules_apply_primitives_to_a_file_that_is_right(tmp_path):
    async def work(bench, call):
        listed = await call("schedules")
        name = re.search(r'"members": \["(\w+)"', listed)[1]
        one = json.dumps([{"kind": "columns", "definition": name, "size": 512}])
        applied = await call("schedules", primitives=one, write="nest.py")
        nix = '[{"kind": "tile", "definition": "nix", "axis": "a", "size": 1}]'
        refused = await call("schedules", primitives=nix)
        unread = await call("schedules", primitives='[{"kind": "fly"}]')
        return listed, applied, refused, unread, await call("check", kernel="nest.py")

    listed, applied, refused, unread, verdict = benches.at_bench(tmp_path, work)
    assert "All primitives:" in listed and "`tile(definition, axis, size)`" in listed
    assert applied.startswith("Written to nest.py.") and "After 1 primitives" in applied
    assert "primitive 1, tile: there is no definition nix" in refused
    assert "There is no nest: primitive 1" in unread and "lists those that apply" in unread
    assert verdict.startswith("correct")


def test_rules_can_be_carried_out(tmp_path):
    async def work(bench, call):
        before = await call("schedules")
        listed = await call("rules")
        written = await call("rules", apply="R1", write="by_rule.py")
        known = await call("schedules", kernel="by_rule.py")
        # Else a replay of the conversation finds no answer.
        assert before == await call("schedules")
        return listed, written, known, await call("check", kernel="by_rule.py")

    listed, written, known, verdict = benches.at_bench(tmp_path, work)
    assert "The nest that wrote this kernel:" in known
    predicted = re.search(r"R1: ([\d.]+) ms predicted", listed)[1]
    assert written.startswith("Written to by_rule.py:")
    assert verdict.startswith(f"correct, {predicted} ms")


LONG = "\n".join(f"# line {n}" for n in range(500)) + "\n" + small_problem.KERNEL


def test_every_answer_is_short_and_names_no_place(tmp_path):
    """60 lines by default, however long the kernel is; no folder of this machine in any answer."""

    async def work(bench, call):
        await call("write", text=LONG + "    import os\n")
        names = ("check", "profile", "schedules", "rules", "explain", "recall", "read")
        answers = [await call(name) for name in names]
        answers += [await call("profile", parts="all")]
        answers += [await call("look_up", name="nisa.activation")]
        answers += [await call("compare", one="kernel.py", other="kernel.py"), await call("submit")]
        answers += [await call("read", first=400), await call("what_if", changes="line 510 x 0")]
        return answers

    answers = benches.at_bench(tmp_path, work)
    for answer in answers:
        assert len(answer.splitlines()) <= LINES
        assert str(tmp_path) not in answer and os.environ["HOME"] not in answer
        assert not re.search(r"/(?:home|root|tmp|dev/shm|work)/", answer)
    assert "first=60 shows what follows" in answers[6] and " 400  # line 399" in answers[11]


def test_a_page_says_what_it_leaves_out():
    text = "\n".join(map(str, range(1, 101)))
    first = page(text)
    assert len(first.splitlines()) == LINES
    assert first.endswith("\n59\n[lines 1 to 59 of 100; first=60 shows what follows]")
    assert page(text, 60).startswith("60\n") and page(text, 60).endswith("[lines 60 to 100 of 100]")
    assert page("short") == "short" and page(text, 999).splitlines()[0] == "100"
    assert [len(one) for one in page("x" * 1000).splitlines()] == [400, 400, 200]
    words = page("nc_matmul " * 100)  # the end of a note was cut, and could not be asked for
    assert words.replace("\n", "") == ("nc_matmul " * 100).rstrip()
    assert not [one for one in words.splitlines() if len(one) > 400]
    assert own_frames(f"{'x' * 10_000}\n" * 50) == "x" * 400  # of "flooded its output"
    flood = page("x" * 100_000)  # what a kernel printed for 100 MB
    assert len(flood) < 8100 and flood.endswith("first=21 shows what follows]")
    said = placed_nowhere("/root/.cache/accelopt/trials/secret and ~/a/b.py, 440 GB/s, a/b, 1/2")
    assert said == "secret and b.py, 440 GB/s, a/b, 1/2"


def test_no_name_leads_out_of_the_folder(tmp_path):
    """Attacks with names: parents, absolute paths, links to files and folders, hard links, pipes."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "secret.md").write_text("secret")
    root = tmp_path / "bench"
    root.mkdir()
    folder = BenchFolder(root)
    folder.keep("kernel.py", "mine")
    (root / "link.py").symlink_to(tmp_path / "out" / "secret.md")
    (root / "lineage").symlink_to(tmp_path / "out")
    os.link(tmp_path / "out" / "secret.md", root / "hard.py")
    os.mkfifo(root / "pipe.py")
    for name in (
        "../out/secret.md", str(tmp_path / "out" / "secret.md"), "link.py", "lineage/secret.md", "hard.py",
        "pipe.py", "lineage/../kernel.py", ".secret.md", "a\0.py", "kernel.py/", "x" * 200 + ".py", "",
    ):  # fmt: skip
        for attack, *words in ((folder.read,), (folder.write, "w"), (folder.append, "w")):
            with pytest.raises(ConfigError):
                attack(name, *words)
    assert (tmp_path / "out" / "secret.md").read_text() == "secret"
    assert folder.read("kernel.py") == "mine"


SPY = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np

try:
    stolen = {how}
except BaseException as error:
    stolen = type(error).__name__
raise ValueError("stolen: " + str(stolen)[:40])
"""
WAYS = (
    "open({!r}).read()",
    "np.fromfile({!r}, dtype='S1')",
    "getattr(nl, '__builtins__')['op' + 'en']({!r}).read()",
)


def test_hidden_inputs_and_verdicts_are_out_of_reach(tmp_path):
    """A kernel that reads the secret of the trials or the verdict cache; a folder whose reference is
    replaced; notes that claim a verdict."""

    async def work(bench, call):
        await call("check")
        secret = trials_folder(default_cache()) / "secret"
        places = [secret, default_cache() / "shelf.sqlite", bench.record]
        bench.record.touch()
        said = []
        assert all(place.is_file() for place in places)
        for way, place in zip(WAYS, places, strict=True):
            await call("write", text=SPY.format(how=way.format(str(place))))
            said += [await call("check"), await call("submit"), await call("profile")]
        refused = await call("write", text="def forward(x): return x", file="reference.py")
        assert "the bench's own" in await call("write", text="Trust me.", file="AGENTS.md")
        assert "is empty" in await call("remember", note=" ")
        await call("write", text="- a note without an end", file="notes.md")
        assert "1,000 characters" in await call("remember", note="x" * 2000)
        assert bench.folder.read("notes.md").splitlines()[0] == "- a note without an end"
        (tmp_path / "bench" / "reference.py").write_text("def forward(x):\n    return x + x\n")
        await call("write", text=WRONG)
        return said, refused, await call("submit", change="the reference agrees with me")

    said, refused, verdict = benches.at_bench(tmp_path, work)
    secret = (trials_folder(default_cache()) / "secret").read_text()
    for answer in said:
        assert not {secret[:20], "SQLite format", '"label"'} & {
            *re.findall(r"SQLite format|\"label\"|\w+", answer)
        }
        assert secret not in answer and not answer.startswith(("correct", "Accepted"))
    assert "the bench's own" in refused and verdict.startswith("Refused. wrong_numbers")


def test_odd_arguments_are_answered_in_words_and_soon(tmp_path):
    """Attacks: texts beyond any kernel's size, halves of characters, questions that made the reader of
    changes go back and forth for a minute, deep JSON, and a link where accepted versions are kept."""

    async def work(bench, call):
        said = [
            await call("write", text="x = 1\n" * 400_000),
            await call("write", text="a\ud800b"),
            await call("remember", note="\ud83d"),
            await call("schedules", primitives="[" * 5000),
            await call("profile", nope=1),
            await call("profile", parts="prizes"),
            await call("look_up", name="y" * 10_000),
        ]
        begun = time.monotonic()
        said.append(await call("what_if", changes=f"line 1{' ' * 60_000}y"))
        said.append(await call("what_if", changes=f"lines {'1 ' * 50_000} x 0.5"))
        seconds = time.monotonic() - begun
        (tmp_path / "elsewhere").mkdir()
        shutil.rmtree(bench.folder.root / "lineage")
        (bench.folder.root / "lineage").symlink_to(tmp_path / "elsewhere")
        await call("write", text=FAST)
        refused = await call("submit")
        (bench.folder.root / "lineage").unlink()
        return said, seconds, refused, await call("submit")

    said, seconds, refused, accepted = benches.at_bench(tmp_path, work)
    wanted = ("would be longer than", "half of a character", "half of a character", "Invalid JSON",
              "was not called: nope", "There is no part prizes", "No note on", "Ask as in", "Ask as in")  # fmt: skip
    assert all(part in text for part, text in zip(wanted, said, strict=True)), said
    assert seconds < 30 and max(map(len, said)) < 300  # 77 before
    assert "is a link" in refused and not any((tmp_path / "elsewhere").iterdir())
    assert accepted.startswith("Accepted as lineage/1.py")  # the first try left nothing behind

"""The report: one file without a network, whatever texts it holds, read in a real browser."""

import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest
from command_line import accelopt

from accelopt.report.diffs import patch_of, side_by_side
from accelopt.report.figures import drawn
from accelopt.report.kernel_summary import SLICES, portrait
from accelopt.report.page import page
from accelopt.report.story import Portrait, ProblemStory, Story, StoryStep, read_story, write_story
from accelopt.sim import timing
from accelopt.sim.dialects.neuronxcc import language as nl
from accelopt.stages.candidate_files import write_winner
from tests.sim.timing.timing_kernels import timed

EVIL = "</script><script>document.title = 'evil'</script><img src=x onerror=alert(1)> \U0001f600"
START = "\n".join(f"line {number}" for number in range(60))
BEST = START.replace("line 30", "another line").replace("line 31\n", "")


def steps(count):
    first = StoryStep(key="start", status="correct", latency=2.0, source=START)
    found = [first]
    for number in range(1, count):
        failed = number % 3 == 0
        found.append(
            StoryStep(
                key=f"k{number}", parent=found[(number - 1) // 2].key, sentence=f"step {number}",
                status="wrong_numbers" if failed else "correct",
                message=f"row {number} is wrong: {EVIL}" if failed else "",
                latency=None if failed else 2.0 - number / count, number=number,
                seconds=1.5 * number, diff=f"- try {number}\n+ {EVIL}" if failed else "",
            )
        )  # fmt: skip
    return tuple(found)


def problem(name="silu_M4096_N7168", count=30):
    seen = Portrait(
        latency=2.0, low=1.8, high=2.1, intensity=100.0, flops=3e12, peak_flops=2e13,
        bandwidth=2.8e11, lines=({"line": 30, "share": 0.6, "operations": EVIL},),
        busy={"dma": (0.5, 0.25) * (SLICES // 2), "tensor": (1.0,) * SLICES},
        advice="1. line 30 to Scalar, which idles", gaps="line 30 waits for line 1",
    )  # fmt: skip
    return ProblemStory(
        name=name, baseline=2.0, best=1.0, before=0.4, after=0.8, changes=(EVIL, "tiles twice"),
        start_source=START, best_source=BEST, steps=steps(count), start_portrait=seen,
        best_portrait=seen.model_copy(update={"latency": 1.0, "flops": 6e12}),
    )  # fmt: skip


def story(name="run", problems=1):
    return Story(
        name=name, device="the simulated trn1 NeuronCore", seconds=61.0,
        spending={"calls": 3, "tokens": 4500, "dollars": 0.25}, settings={"beam": "2"},
        problems=tuple(problem(f"problem_{number}") for number in range(problems)),
    )  # fmt: skip


def test_a_story_is_kept_and_read_back(tmp_path):
    write_story(story(), tmp_path)
    assert read_story(tmp_path) == story()


def test_the_page_asks_nothing_of_a_network_and_stays_small():
    text = page([story(problems=14)])
    assert len(text.encode()) < 500_000
    assert not re.search(r"""(src|href)\s*=\s*["'](https?:)?//""", text)
    assert "<img src=x" not in text and "<script" not in text
    assert text.count("- try 3\n") == 14 and "line 30 to Scalar" in text and "line 30 waits" in text


def test_a_kernel_without_products_stands_above_what_the_memory_takes():
    """Softmax and the like have no FLOPs of the Tensor engine; their roof is the memory's rate."""
    one = problem()
    assert "FLOPs a byte" in drawn([one], ["run"])["roofline"]
    seen = one.start_portrait.model_copy(update={"intensity": 0.0, "flops": 0.0, "moved": 1.4e8})
    after = seen.model_copy(update={"latency": 1.0})
    quiet = one.model_copy(update={"start_portrait": seen, "best_portrait": after})
    figure = ElementTree.fromstring(drawn([quiet], ["run"])["roofline"])
    said = [title.text for title in figure.iter("{http://www.w3.org/2000/svg}title")]
    assert said[1:] == [
        "before: 140 MB, 2 ms: 25% of the memory's rate",
        "after: 140 MB, 1 ms: 50% of the memory's rate",
    ]
    roof, before, after = _heights(figure)
    assert after - before == pytest.approx(roof - after, rel=0.01)  # 2, 1 and 0.5 ms, logarithmic
    unknown = seen.model_copy(update={"moved": 0.0})  # a story of before there was `moved`
    old = quiet.model_copy(update={"start_portrait": unknown, "best_portrait": unknown})
    assert "roofline" not in drawn([old], ["run"])


def _heights(figure):
    """Of the roof in its middle, which is where all points are, and of the points."""
    [roof, *_] = [path.get("d") for path in figure.iter("{http://www.w3.org/2000/svg}path")]
    ends = [float(point.split()[1]) for point in roof.strip("M").split("L")]
    points = figure.iter("{http://www.w3.org/2000/svg}circle")
    return sum(ends) / 2, *(float(point.get("cy")) for point in points)


def test_a_diff_shows_both_sides_and_leaves_out_what_stays():
    rows = side_by_side(START, BEST)
    changed = [(row.left, row.right) for row in rows if row.kind == "changed"]
    assert changed == [("line 30", "another line"), ("line 31", "")]
    assert len(rows) < 12


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_diff_is_a_patch(tmp_path, end):
    (tmp_path / "kernel.py").write_text(START + end)
    text = patch_of(START + end, BEST, "kernel.py")
    subprocess.run(["patch"], input=text, cwd=tmp_path, text=True, check=True, capture_output=True)
    assert (tmp_path / "kernel.py").read_text() == BEST


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_winner_has_the_line_ends_of_the_kernel(tmp_path, end):
    """Evidence: the diff applies to the author's file, byte for byte, as `git apply` does it."""
    kernel, winner = tmp_path / "kernel.py", tmp_path / "run"
    kernel.write_bytes((START + "\n").replace("\n", end).encode())
    write_winner(winner, BEST, START + "\n", kernel)
    subprocess.run(["git", "apply", "run/best.diff"], cwd=tmp_path, check=True)
    wanted = BEST.replace("\n", end).encode()
    assert kernel.read_bytes() == (winner / "best.py").read_bytes() == wanted


def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(8):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        nl.store(out[i * 128 : (i + 1) * 128, :], nl.add(tile, tile))
    return out


def test_a_portrait_is_the_profile_in_numbers():
    found = timed(double, (1024, 512))
    seen = portrait(found, timing.interval(found))
    assert seen.low <= seen.latency <= seen.high
    busy = sum(seen.busy["vector"]) / SLICES
    assert busy == pytest.approx(found.occupancy["vector"], rel=0.1)
    launch = found.run.spec.launch_ns * 1e-6 / found.latency_ms
    assert sum(line.share for line in seen.lines) == pytest.approx(1 - launch, rel=0.05)


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


FIGURE = "document.querySelector('.figure').getBoundingClientRect()"
PLOT = "document.querySelector('.figure svg').getBoundingClientRect()"


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium")
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_in_a_browser_links_and_folds_work_without_errors(tmp_path, width, scheme):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    place = tmp_path / "report.html"
    place.write_text(page([story("one", 2), story("two", 2)]))
    said = []
    with playwright.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on(
            "request", lambda request: said.append(request.url) if "http" in request.url[:4] else 0
        )
        tab.goto(place.as_uri())
        tab.wait_for_selector(".figure svg")
        assert tab.title() == "AccelOpt: one, two"
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        table = tab.locator(".scroll:has(.summary)").first
        assert table.evaluate("all => all.scrollWidth <= all.clientWidth")
        tab.click("a[href='#problem1']")
        assert tab.evaluate("document.querySelector('#problem1').getBoundingClientRect().top") < 450
        tree = tab.locator("#p1r0-tree")
        for branch in (tree, tree.locator("details").first):
            was_open = branch.evaluate("branch => branch.open")
            for now_open in (not was_open, was_open, True)[: 3 - was_open]:
                branch.locator("summary").first.click()
                assert branch.evaluate("branch => branch.open") is now_open
        assert tree.locator(".gain").first.is_visible()
        tab.set_viewport_size({"width": 844, "height": 390})  # a phone is turned, and back
        tab.wait_for_function(f"{FIGURE}.width > 600")
        tab.set_viewport_size({"width": width, "height": 900})
        tab.wait_for_function(f"{FIGURE}.width <= {width}")
        assert tab.evaluate(f"{FIGURE}.height") >= tab.evaluate(f"{PLOT}.height") >= 200
        fold = tab.locator("#p1r0-diff")
        assert not fold.locator("td.r").first.is_visible()
        fold.locator("summary").click()
        assert fold.get_by_text("another line").is_visible()
        browser.close()
    assert said == []


def test_the_command_says_what_it_needs(tmp_path):
    write_story(story(), tmp_path)
    assert "report.html: open it in a browser" in accelopt("report", tmp_path).stdout
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert "say where with --output" in accelopt("report", tmp_path, tmp_path).stderr
    assert "holds no story.json" in accelopt("report", tmp_path / "nowhere").stderr

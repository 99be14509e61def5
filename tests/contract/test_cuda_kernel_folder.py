"""The folder of a CUDA kernel that was searched, without a GPU: verdicts are made up, the compiler is the one
that is installed, and a program in the place of `ncu` prints what it did on an H200."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import kernels
import pytest
from judged import Judged

from accelopt.api import base_folder, run_search
from accelopt.contract.spec import KernelSpec
from accelopt.evaluation import Evaluation, Status
from accelopt.kernels.language import LanguageOptions
from accelopt.kernels.specs.solutions import case_of_spec
from accelopt.nodes import Node
from accelopt.sandbox.workers import WorkerPool
from accelopt.search.strategy import UNBOUNDED, Settings
from accelopt.stages.config import Config
from accelopt.stages.spec_kernel_folder import KernelFolder
from accelopt.stages.workshop import WorkshopOptions

RECORDED = Path(__file__).parents[1] / "kernels" / "gpu" / "profiling" / "add_on_h200.csv"


def counting(folder, monkeypatch, script=None):
    """A program in the place of `ncu`: the n-th time that it is asked, the kernel is called `add_n`."""
    *lines, add = RECORDED.read_text().splitlines()
    ours = add.replace('"add"', '"void at::native::mul"')
    told = add.replace('"add"', '"add_NUMBER"')
    (folder / "table.csv").write_text("\n".join([*lines, ours, told]) + "\n")
    (folder / "asked").touch()
    counts = (
        f"echo x >> {folder}/asked; sed s/NUMBER/$(grep -c x {folder}/asked)/ {folder}/table.csv"
    )
    (folder / "ncu").write_text(f"#!/bin/sh\n{script or counts}\n")
    (folder / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def search(folder, profile_every, builds):
    """The kernel's folder, and its builds in the order of telling."""
    spec = KernelSpec.model_validate(kernels.vector_add())
    case = case_of_spec(spec, folder / "problem", folder)
    language = LanguageOptions(
        folder / "run" / "kernels", "judged:Judged", target="h200", profile_every=profile_every
    )
    settings = Settings(
        iterations=UNBOUNDED, strategy="mcgs", options={"reward": "log"}, evaluations=builds, window=1
    )  # fmt: skip
    options = Config(
        folder / "run", settings, WorkshopOptions(language, workers=1),
        prompts=base_folder() / "prompts" / "flb",
    )  # fmt: skip
    place = folder / "kernel"
    files = KernelFolder(place, spec.name, "cuda", spec.model_dump(mode="json"), profile_every > 0)
    [outcome] = run_search([case], options, files=files)
    state = folder / "run" / case.case_name / "search_state.json"
    files.close(outcome, json.loads(state.read_text()))
    events = map(json.loads, (place / "events.jsonl").read_text().splitlines())
    return place, [place / event["variant_dir"] for event in events]


def counters(variant):
    return json.loads((variant / "result.json").read_text())["ncu_metrics"]


def test_counters_lie_with_the_build_that_was_profiled(tmp_path, monkeypatch):
    """Of the kernels that are looked into every second one: the baseline, the second build, and so on. The
    program is asked once more at first, whether it may count."""
    counting(tmp_path, monkeypatch)
    place, builds = search(tmp_path, 2, 5)
    found = [counters(folder) for folder in (place / "baseline", *builds)]
    names = [one and one["kernel_name"] for one in found]
    profiled = [name for name in names if name]
    assert names[0] == "add_2" and len(profiled) > 1
    assert profiled == [f"add_{number}" for number in range(2, 2 + len(profiled))]
    assert found[0]["speed_of_light"]["gpu_dram_throughput_pct"] == pytest.approx(89.54)
    nodes = json.loads((place / "search_state.json").read_text())["nodes"]
    for folder, told in zip((place / "baseline", *builds), found, strict=True):
        key = json.loads((folder / "result.json").read_text())["state_hash"]
        assert nodes[key]["ncu"] == told


def test_why_there_are_no_counters_lies_there_too(tmp_path, monkeypatch):
    counting(tmp_path, monkeypatch, "echo '==ERROR== It is gone.'; exit 9")
    place, _ = search(tmp_path, 1, 1)
    assert "It is gone" in counters(place / "baseline")["missing"]


def test_nothing_is_counted_where_it_was_not_asked_for(tmp_path, monkeypatch):
    counting(tmp_path, monkeypatch)
    place, builds = search(tmp_path, 0, 1)
    assert [counters(folder) for folder in (place / "baseline", *builds)] == [None, None]
    assert not (tmp_path / "asked").read_text()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_a_kernel_is_compiled_once(tmp_path):
    case = case_of_spec(KernelSpec.model_validate(kernels.vector_add()), tmp_path, tmp_path)
    pool = WorkerPool(1)
    language = Judged(pool, LanguageOptions(tmp_path, target="h200"))
    node = Node(case, language.source(case), Evaluation(status=Status.MISSING))

    async def asked():
        return await language.compiled(node), await language.compiled(node)

    first, again = asyncio.run(asked())
    pool.close()
    assert first.code and again is first


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_what_was_compiled_lies_with_each_build(tmp_path):
    place, builds = search(tmp_path, 0, 2)
    texts = [(folder / "kernel.ptx").read_text() for folder in (place / "baseline", *builds)]
    assert all(".entry vector_add" in text for text in texts) and len(set(texts)) == 3
    assert all((folder / "kernel.cubin").read_bytes()[:4] == b"\x7fELF" for folder in builds)

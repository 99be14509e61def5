"""The package as `pip install` leaves it: our wheel and the packages that it needs, no extra, in a virtual
environment of its own; run from another folder."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]


def needed():
    """The installed packages that the declared ones need, themselves included."""
    found, asked = (
        {},
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"],
    )
    while asked:
        one = Requirement(asked.pop())
        if one.name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found[one.name] = distribution(one.name)
            asked += found[one.name].requires or []
    return found.values()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the contents of our wheel, in which an environment's Python looks for packages. The
    wheel is built from our source distribution, and that from a copy without build leftovers."""
    folder = tmp_path_factory.mktemp("wheel")
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    left = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", "build", "runs", "*.egg-info", ".*_cache"
    )
    shutil.copytree(ROOT, folder / "checkout", ignore=left)
    build = "import setuptools.build_meta as b; b.build_{}('..')"
    for kind, at in (("sdist", "checkout"), ("wheel", "accelopt-*")):
        [place] = folder.glob(at)
        command = [sys.executable, "-c", build.format(kind)]
        subprocess.run(command, cwd=place, check=True, capture_output=True)
        for archive in folder.glob("*.tar.gz"):
            shutil.unpack_archive(archive, folder, filter="data")
            archive.unlink()
    [place] = folder.glob("accelopt-*/")
    assert [name for name in names if not (place / name).exists()] == []
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "environment", with_pip=False)
    [site] = (folder / "environment").glob("lib/python*/site-packages")
    for package in needed():
        for file in package.files:
            if ".." not in file.parts and "tests" not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file.locate(), site / file)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for file in site.glob("accelopt/**/*.py"):  # compiled, as pip leaves it
        source, place = ROOT / file.relative_to(site), Path(cache_from_source(str(file)))
        if (compiled := Path(cache_from_source(str(source)))).is_file():
            shutil.copystat(source, file)
            place.parent.mkdir(exist_ok=True)
            shutil.copy(compiled, place)
    return site


@pytest.fixture
def said(installed, files, tmp_path):
    def run(*words, code=0, what=("-m", "accelopt")):
        python = installed.parents[2] / "bin" / "python"
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(
            [python, *what, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return run


def test_version(said, installed):
    assert said("--version").startswith("accelopt ")
    assert list(installed.glob("accelopt-*.dist-info/licenses/LICENSE"))
    assert (installed / "accelopt" / "bench" / "guide.md").is_file()


@pytest.mark.slow
def test_the_benchmark_and_the_prompts_came_along(said, tmp_path):
    table = said("run", "--problems", "rmsnorm_matmul", "--iterations", "0", "--out", "run")
    assert "rmsnorm_matmul" in table
    assert (tmp_path / "run" / "prompts" / "planner_prompts").is_dir()


@pytest.mark.parametrize(
    ("words", "answer"),
    [("check", "correct"), ("profile", " ms"), ("optimize --iterations 1", "x (")],
)
def test_ones_own_kernel(said, words, answer, tmp_path):
    assert answer in said(*words.split(), "kernel.py", "--reference", "reference.py")
    assert "optimize" not in words or (tmp_path / "runs" / "kernel" / "report.html").is_file()


@pytest.mark.slow
def test_the_notebook_runs(said, tmp_path):
    """All of its cells, as the wheel and nothing else runs them."""
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (tmp_path / "cells.py").write_text("\n".join(code))
    shown = said(what=("cells.py",))
    assert re.search(r"^(?!1\.00)[1-9][\d.]+ times as fast$", shown, re.M), shown
    assert "True 0.0" in shown and "engines after" in shown


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        ("optimize kernel.py --reference reference.py --model-config m.json", "openai", "models"),
        ("calibrate", "scipy", "calibrate"),
        ("db best silu --database kernels.db", "sqlalchemy", "database"),
        ("serve kernel.py --reference reference.py", "mcp 2", "serve"),
        ("optimize kernel.py --reference reference.py --cluster local", "ray", "ray"),
        ("tune matmul", "torch", "flashinfer"),
    ],
)
def test_an_absent_extra_is_named_with_its_install_line(said, tmp_path, words, package, extra):
    (tmp_path / "m.json").write_text('{"url": "http://127.0.0.1:9", "model": "m"}')
    line = f"{package} is not installed; install it with: pip install 'accelopt[{extra}]'"
    assert line in said(*words.split(), code=1)

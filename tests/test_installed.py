"""The package as its users install it: built into a wheel, unpacked, run from another folder."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from small_problem import KERNEL, REFERENCE

ROOT = Path(__file__).resolve().parents[1]
BUILT = ("accelopt", "NKIBench", "prompts", "scripts", "templates")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the contents of our wheel, built from a copy without build leftovers."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "checkout"
    for name in BUILT:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    build = "import setuptools.build_meta as b; b.build_wheel('..')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def said(installed, tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "reference.py").write_text(REFERENCE)

    def run(*words):
        command = [sys.executable, "-m", "accelopt", *words]
        environment = {"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_version(said, installed):
    assert said("--version").startswith("accelopt ")
    assert list(installed.glob("accelopt-*.dist-info/licenses/LICENSE"))
    assert (installed / "accelopt" / "bench" / "guide.md").is_file()


def test_the_benchmark_and_the_prompts_came_along(said, tmp_path):
    table = said("run", "--problems", "rmsnorm_matmul", "--iterations", "0", "--out", "run")
    assert "rmsnorm_matmul" in table
    assert (tmp_path / "run" / "prompts" / "planner_prompts").is_dir()


@pytest.mark.parametrize("command", ["check", "profile"])
def test_ones_own_kernel(said, command):
    assert said(command, "kernel.py", "--reference", "reference.py")

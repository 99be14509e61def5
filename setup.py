"""Everything is declared in pyproject.toml; what is here puts the users' folders into the wheel."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
FOLDERS = ("NKIBench", "prompts", "scripts", "templates")  # read by `accelopt.shipped`
UNSHIPPED = shutil.ignore_patterns("__pycache__", "*.pyc", "results", "checkpoints")


class WithFolders(build_py):
    """Builds the package with copies of the folders that lie beside it in a checkout."""

    def run(self):
        """Build, then copy; an editable install reads the checkout itself."""
        super().run()
        if self.editable_mode:
            return
        for folder in FOLDERS:
            place = Path(self.build_lib) / "accelopt" / "_shipped" / folder
            shutil.copytree(HERE / folder, place, ignore=UNSHIPPED, dirs_exist_ok=True)


setup(cmdclass={"build_py": WithFolders})

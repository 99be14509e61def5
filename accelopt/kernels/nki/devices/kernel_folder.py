"""The Python files of a kernel's folder that it imports: read here as text, run in the confined child.

A kernel may import files of its own folder and of the package that this folder is in. They are found
by the text of the import statements, so whoever holds the kernel knows what it is made of: the texts
go to the child with its job, count in every key under which something is kept of the kernel, and are
read by the referee's rules.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from accelopt.parsing import tree_of
from accelopt.store import content_key, write_atomically

MOST_FILES = 200
MOST_BYTES = 1 << 20
"""Of one file; larger ones are no source that anybody wrote."""

_NOT_OF_A_FOLDER = {*sys.stdlib_module_names, "accelopt", "ml_dtypes", "neuronxcc", "nki", "numpy"}


class FolderModule(NamedTuple):
    """A file of a kernel's folder. `place` is relative to the folder's root; `package` says that it
    is the `__init__.py` of the module (without a text where there is no such file)."""

    file: str
    place: str
    text: str
    package: bool


class KernelFolder(NamedTuple):
    """What a kernel imports of its folder, by module name. `package` is the dotted name of the package
    that the kernel's file is in; it is empty for a file by itself, as for a script."""

    package: str = ""
    modules: Mapping[str, FolderModule] = {}

    @property
    def files(self) -> dict[str, str]:
        """The texts by their place below the root: the parent of the outermost package, the kernel's
        own folder where it is in none."""
        found = {m.place: m.text for m in self.modules.values() if m.file}
        return dict(sorted(found.items()))

    @property
    def place(self) -> str:
        """The kernel's folder below the root."""
        return self.package.replace(".", "/")

    @property
    def key(self) -> str:
        """A name for all these texts; empty where there are none."""
        return content_key(self.package, repr(self.files)) if self.modules else ""

    @property
    def beside(self) -> dict[str, str]:
        """The texts by where they lie for a copy of the kernel in a folder of its own: those of its
        package both by the package's name and beside the copy, for `from . import`."""
        inside = f"{self.place}/"
        near = {p.removeprefix(inside): t for p, t in self.files.items() if p.startswith(inside)}
        return {**self.files, **near} if self.place else self.files

    def as_json(self) -> dict[str, object]:
        """For the payload of a child."""
        return {"package": self.package, "modules": {k: list(m) for k, m in self.modules.items()}}


def kernel_folder(kernel: Path, source: str | None = None) -> KernelFolder:
    """What the kernel at a path imports of its folder, itself or by what it imports. `source` is its
    text where that is not what lies there."""
    kernel = kernel.resolve()
    text = _text(kernel) if source is None else source
    wanted = list(_imports(text))
    if not wanted:
        return KernelFolder()
    relative = any(level for level, _ in wanted)
    root, names = _package_of(kernel.parent, relative)
    reader = _Reader(kernel.parent, root)
    reader.follow(wanted, names)
    if not reader.modules:
        return KernelFolder()
    package = ".".join(names)
    for number in range(len(names)):
        reader.add(".".join(names[: number + 1]))
    return KernelFolder(package, reader.modules)


def files_of(kernel: Path) -> tuple[str, ...]:
    """The kernel's file and those of its folder that it imports."""
    folder = kernel_folder(kernel)
    return (str(kernel), *(m.file for m in folder.modules.values() if m.file))


def write_kernel(path: Path, source: str, kernel: Path | str) -> None:
    """Writes a kernel as the file `path`, and beside it what the file `kernel`, from which it was made,
    imports of its folder. What lies above that folder's package (`from .. import`) is not carried."""
    write_atomically(path, source)
    for place, text in kernel_folder(Path(kernel)).beside.items():
        write_atomically(path.parent / place, text)


def _package_of(folder: Path, relative: bool) -> tuple[Path, tuple[str, ...]]:
    """The folder that the outermost package around `folder` is in, and the package's name. A folder
    without `__init__.py` is a package where the kernel imports relatively."""
    names: list[str] = []
    root = folder
    while (root / "__init__.py").is_file() or (relative and not names):
        if not root.name.isidentifier():
            break
        names.insert(0, root.name)
        root = root.parent
    return root, tuple(names)


class _Reader:
    def __init__(self, beside: Path, root: Path) -> None:
        self.bases = tuple(dict.fromkeys((beside, root)))
        self.root = root
        self.modules: dict[str, FolderModule] = {}

    def follow(self, wanted: Sequence[tuple[int, str]], package: tuple[str, ...]) -> None:
        """Adds what these imports of a module in `package` name, and what that imports."""
        for level, name in wanted:
            if level > len(package):
                continue
            base = package[: len(package) - level + 1] if level else ()
            parts = (*base, *filter(None, name.split(".")))
            if not level and parts and parts[0] in _NOT_OF_A_FOLDER:
                continue
            for number in range(len(parts)):
                if not self.add(".".join(parts[: number + 1])):
                    break

    def add(self, name: str) -> bool:
        """Adds the module of this name where the folder has it; False where it has not."""
        if name in self.modules:
            return True
        if len(self.modules) >= MOST_FILES:
            return False
        for base in self.bases:
            path = base.joinpath(*name.split("."))
            package = path / "__init__.py"
            for file, is_package in ((package, True), (path.with_name(f"{path.name}.py"), False)):
                if _is_text(file):
                    self._add(name, file, is_package)
                    return True
            if path.is_dir() and any(path.glob("*.py")):
                self.modules[name] = FolderModule("", str(path.relative_to(self.root)), "", True)
                return True
        return False

    def _add(self, name: str, file: Path, package: bool) -> None:
        text = _text(file)
        self.modules[name] = FolderModule(
            str(file), str(file.relative_to(self.root)), text, package
        )
        parts = tuple(name.split("."))
        self.follow(list(_imports(text)), parts if package else parts[:-1])


def _is_text(file: Path) -> bool:
    try:
        found = file.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES


def _text(file: Path) -> str:
    """The text of a file; empty where it cannot be read, which is for whoever runs it to say."""
    try:
        return file.read_bytes().decode("utf-8-sig", "replace") if _is_text(file) else ""
    except OSError:
        return ""


def _imports(text: str) -> Iterator[tuple[int, str]]:
    """What a text imports: the level of a relative import (0: absolute), and the dotted name. Of
    `from a import b` both a and a.b, for b may be a module."""
    tree = tree_of(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            whole = node.module or ""
            yield node.level, whole
            for alias in node.names:
                if alias.name != "*":
                    yield node.level, f"{whole}.{alias.name}"


class FolderImporter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """In the child: imports modules from the texts that came with its job."""

    def __init__(self, modules: Mapping[str, FolderModule]) -> None:
        self.modules = modules

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The module of the folder; None for all others."""
        found = self.modules.get(name)
        if found is None:
            return None
        return importlib.util.spec_from_loader(
            name, self, origin=found.file or None, is_package=found.package
        )

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module's text."""
        from accelopt.sim import kernel_loading

        found = self.modules[module.__name__]
        file = found.file or f"{found.place}/__init__.py"
        module.__file__ = file
        kernel_loading.register(file, found.text)
        exec(compile(found.text, file, "exec", dont_inherit=True), module.__dict__)


def importer_of(folder: Mapping[str, object]) -> FolderImporter:
    """The importer of a folder as its payload has it."""
    modules = folder["modules"]
    assert isinstance(modules, dict)
    return FolderImporter({name: FolderModule(*row) for name, row in modules.items()})

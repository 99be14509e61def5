"""What a solution's source must not contain: a first door before anything runs.

The rules forbid the tools of cheating rather than list the tools of honest work, so that kernels
others published pass. Each is a reach out of the function's own arguments: the interpreter's
frames and objects, other processes, files, clocks, other streams, patched libraries.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from accelopt.flashinfer.tracefiles import Solution

FORBIDDEN_MODULES = {
    "gc": "reaches objects that were not passed to it",
    "ctypes": "reaches memory that was not passed to it",
    "cffi": "reaches memory that was not passed to it",
    "mmap": "reaches memory that was not passed to it",
    "subprocess": "starts other programs",
    "multiprocessing": "starts other processes",
    "threading": "works outside the timed call",
    "concurrent": "works outside the timed call",
    "asyncio": "works outside the timed call",
    "atexit": "works outside the timed call",
    "signal": "works outside the timed call",
    "weakref": "watches objects that are not its own",
    "socket": "talks to the network",
    "urllib": "talks to the network",
    "requests": "talks to the network",
    "importlib": "loads code that the check cannot see",
    "runpy": "loads code that the check cannot see",
    "pickle": "loads code that the check cannot see",
    "marshal": "loads code that the check cannot see",
    "builtins": "changes the interpreter",
    "unittest": "patches other code",
    "shutil": "touches files",
    "tempfile": "touches files",
    "pathlib": "touches files",
    "io": "touches files",
    "flashinfer_bench": "reaches the harness",
    "accelopt": "reaches the harness",
    "numpy": "computes outside the GPU",
    "cupy": "is a library in place of a kernel",
    "flashinfer": "is a library in place of a kernel",
    "flash_attn": "is a library in place of a kernel",
    "xformers": "is a library in place of a kernel",
    "transformer_engine": "is a library in place of a kernel",
    "deep_gemm": "is a library in place of a kernel",
    "vllm": "is a library in place of a kernel",
    "sglang": "is a library in place of a kernel",
    "liger_kernel": "is a library in place of a kernel",
}
# Modules that honest kernels import for harmless things: only these names of them are refused.
FORBIDDEN_NAMES = {
    "os": None,  # None: everything but the names in HARMLESS_NAMES
    "sys": None,
    "inspect": {"stack", "currentframe", "getouterframes", "getinnerframes", "trace"},
    "time": {"sleep"},
}
HARMLESS_NAMES = {"os": {"environ", "getenv", "path"}, "sys": {"version_info", "maxsize"}}
FORBIDDEN_PREFIXES = {
    "torch.cuda.Stream": "works on a stream that the timer does not watch",
    "torch.cuda.ExternalStream": "works on a stream that the timer does not watch",
    "torch.cuda.stream": "works on a stream that the timer does not watch",
    "torch.cuda.set_stream": "works on a stream that the timer does not watch",
    "torch.Stream": "works on a stream that the timer does not watch",
    "torch.cuda.CUDAGraph": "replays work that the check cannot see",
    "torch.cuda.graph": "replays work that the check cannot see",
    "torch.cuda.make_graphed_callables": "replays work that the check cannot see",
    "torch.multiprocessing": "starts other processes",
    "torch.utils.cpp_extension": "loads code that the check cannot see",
    "torch.utils.data": "touches files",
    "torch.utils._python_dispatch": "reaches the harness",
    "torch.overrides": "reaches the harness",
    "torch._C": "reaches the harness",
    "torch.profiler": "reaches the harness",
    "torch.autograd.profiler": "reaches the harness",
    "torch.load": "touches files",
    "torch.save": "touches files",
    "torch.hub": "touches files",
    "torch.compile": "is a library in place of a kernel",
    "torch.jit": "is a library in place of a kernel",
    "torch.set_default_device": "changes the library for everyone",
    "torch.set_default_dtype": "changes the library for everyone",
    "torch.library": "changes the library for everyone",
    "torch.backends": "changes the library for everyone",
    "torch.Tensor._make_subclass": "returns tensors that are not tensors",
    "torch.Tensor._make_wrapper_subclass": "returns tensors that are not tensors",
    "triton.testing": "reaches the harness",
    "triton.ops": "is a library in place of a kernel",
}
FORBIDDEN_CALLS = {
    "exec": "runs code that the check cannot see",
    "eval": "runs code that the check cannot see",
    "compile": "runs code that the check cannot see",
    "__import__": "loads code that the check cannot see",
    "open": "touches files",
    "input": "touches files",
    "breakpoint": "reaches the harness",
    "globals": "reaches what was not passed to it",
    "vars": "reaches what was not passed to it",
    "locals": "reaches what was not passed to it",
}
FORBIDDEN_ATTRIBUTES = {
    "__globals__", "__builtins__", "__subclasses__", "__mro__", "__bases__", "__code__",
    "__closure__", "__import__", "__torch_function__", "__torch_dispatch__", "f_back", "f_locals",
    "f_globals", "tb_frame", "gi_frame", "as_subclass", "record_stream", "share_memory_",
}  # fmt: skip
DYNAMIC_ACCESS = {"getattr", "setattr", "delattr"}


class Violation(NamedTuple):
    """One forbidden thing in a source."""

    file: str
    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: `{self.text}` {self.reason}"


def violations(solution: Solution) -> list[Violation]:
    """Every forbidden thing in the Python sources of `solution`; unparsable ones have none."""
    found: list[Violation] = []
    for source in solution.sources:
        if source.path.endswith(".py"):
            try:
                module = ast.parse(source.content)
            except (SyntaxError, ValueError):
                continue
            found.extend(_Scan(source.path, module).run())
    return found


class _Scan(ast.NodeVisitor):
    """Walks one module with its import names resolved."""

    def __init__(self, file: str, module: ast.Module) -> None:
        self.file = file
        self.module = module
        self.imported: dict[str, str] = {}
        self.found: list[Violation] = []

    def run(self) -> list[Violation]:
        for node in ast.walk(self.module):
            if isinstance(node, ast.Import):
                for name in node.names:
                    self._imports(node, name.name)
                    target = name.name if name.asname else name.name.split(".")[0]
                    self.imported[name.asname or target] = target
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    full = f"{node.module or ''}.{name.name}"
                    self._imports(node, full)
                    self.imported[name.asname or name.name] = full
        self.visit(self.module)
        return self.found

    def _report(self, node: ast.AST, text: str, reason: str) -> None:
        self.found.append(Violation(self.file, getattr(node, "lineno", 0), text, reason))

    def _imports(self, node: ast.AST, full: str) -> None:
        module = full.split(".")[0]
        if module in FORBIDDEN_MODULES:
            self._report(node, f"import {full}", FORBIDDEN_MODULES[module])
        self._full_name(node, full)

    def _full_name(self, node: ast.AST, full: str) -> None:
        for prefix, reason in FORBIDDEN_PREFIXES.items():
            if full == prefix or full.startswith(prefix + "."):
                self._report(node, full, reason)
        module, _, rest = full.partition(".")
        name = rest.split(".")[0]
        if module in FORBIDDEN_NAMES and name:
            refused = FORBIDDEN_NAMES[module]
            allowed = name in HARMLESS_NAMES[module] if refused is None else name not in refused
            if not allowed:
                self._report(node, full, "reaches out of the kernel's own arguments")

    def _resolve(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return self.imported.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self._resolve(node.value)
            return None if base is None else f"{base}.{node.attr}"
        return None

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in FORBIDDEN_ATTRIBUTES:
            self._report(node, node.attr, "reaches out of the kernel's own arguments")
        full = self._resolve(node)
        if full is not None:
            self._full_name(node, full)
            if isinstance(node.ctx, (ast.Store, ast.Del)):
                self._report(node, f"{full} = ...", "changes a library for everyone")
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in FORBIDDEN_ATTRIBUTES:
            self._report(node, node.id, "reaches out of the kernel's own arguments")

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id not in self.imported:
            name = node.func.id
            if name in FORBIDDEN_CALLS:
                self._report(node, f"{name}(...)", FORBIDDEN_CALLS[name])
            elif name in DYNAMIC_ACCESS:
                self._dynamic(node, name)
        self.generic_visit(node)

    def _dynamic(self, node: ast.Call, name: str) -> None:
        base = self._resolve(node.args[0]) if node.args else None
        attribute = node.args[1] if len(node.args) > 1 else None
        literal = attribute.value if isinstance(attribute, ast.Constant) else None
        if base is not None and name != "getattr":
            self._report(node, f"{name}({base}, ...)", "changes a library for everyone")
        elif base is not None and isinstance(literal, str):
            self._full_name(node, f"{base}.{literal}")
        elif base is not None or not isinstance(literal, str):
            self._report(node, f"{name}(...)", "names what it takes only while it runs")
        if isinstance(literal, str) and literal in FORBIDDEN_ATTRIBUTES:
            self._report(node, literal, "reaches out of the kernel's own arguments")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            full = self._resolve(base) or ""
            if full.startswith("torch.") and full.endswith(("Tensor", "Parameter")):
                self._report(node, f"class {node.name}({full})", "makes tensors that are not")
        self.generic_visit(node)

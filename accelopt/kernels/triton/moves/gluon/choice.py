"""The host code: a launch that becomes a choice between two kernels, and what both need of the module."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from accelopt.kernels.triton.moves.gluon.shapes import NotWritten
from accelopt.kernels.triton.moves.source import JitFunction, Launch, Source, names_in

IMPORTS = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, warpgroup_mma, warpgroup_mma_init, warpgroup_mma_wait)"""

HELPERS = '''

@gluon.constexpr_function
def product_layout(rows, columns, warps):
    """How a tile of sums lies in the registers of all warps."""
    down = min(warps, rows // 16)
    wide = min(256, columns * down // warps)
    return gl.NVMMADistributedLayout([3, 0], [down, warps // down], [16, wide, 16])


def reads_beside(*tensors):
    """Whether the tensors are halves, of which Hopper can copy 16 bytes at once."""
    return all(
        t.is_cuda and t.dtype in (torch.float16, torch.bfloat16) and t.dtype == tensors[0].dtype
        and t.data_ptr() % 16 == 0 and torch.cuda.get_device_capability(t.device)[0] == 9
        for t in tensors
    )
'''

BROUGHT = {
    "gluon", "gl", "async_copy", "fence_async_shared", "warpgroup_mma", "warpgroup_mma_init",
    "warpgroup_mma_wait", "product_layout", "reads_beside",
}  # fmt: skip
"""The names of IMPORTS and HELPERS."""
OPTIONS = ("num_warps", "num_stages", "maxnreg")
"""Options of a launch that have others in their place."""


def is_plain_kernel(source: Source, kernel: JitFunction) -> bool:
    """Whether a kernel is a function of the module, compiled as it is from plain parameters."""
    arguments = kernel.node.args
    annotated = {
        a.arg for a in (*arguments.args, *arguments.kwonlyargs) if a.annotation is not None
    }
    return (
        kernel.node in source.tree.body
        and len(kernel.node.decorator_list) == 1
        and annotated <= kernel.constants
        and not (arguments.defaults or arguments.posonlyargs or arguments.vararg)
    )


def is_plain_launch(launch: Launch) -> bool:
    """Whether a launch gives the kernel's parameters and what else is set anew, and no more."""
    known = {*launch.kernel.parameters, *OPTIONS}
    return not set(OPTIONS) & set(launch.kernel.parameters) and not any(
        isinstance(a, ast.Starred) for a in launch.call.args
    ) and all(k.arg in known for k in launch.call.keywords)  # fmt: skip


def words_of_grids(source: Source, launch: Launch) -> set[object]:
    """The names and constants of functions that may be the launch's grid."""
    name = ast.unparse(launch.grid)
    made: list[ast.AST] = [launch.grid]
    for node in ast.walk(source.tree):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and name in map(ast.unparse, targets):
            made.append(node)
    defined = [
        n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef) and n.name == name
    ]
    lambdas = [n for one in made for n in ast.walk(one) if isinstance(n, ast.Lambda)]
    inside = [n for one in (*defined, *lambdas) for n in ast.walk(one)]
    constants = {n.value for n in inside if isinstance(n, ast.Constant)}
    return constants | {n.id for n in inside if isinstance(n, ast.Name)}


def statement_of(source: Source, launch: Launch) -> ast.stmt:
    """The launch, where it is a statement of its own."""
    for node in ast.walk(launch.function) if launch.function is not None else ():
        if isinstance(node, ast.Expr) and node.value is launch.call:
            line = source.data[source.line_start(node.lineno) :].split(b"\n")[0]
            rest = source.data[source.end(node) :].split(b"\n")[0].strip()
            if line[: node.col_offset].strip(b" ") == b"" and rest[:1] in (b"", b"#"):
                return node
    raise NotWritten("the launch is no statement of its own, on lines of its own")


def with_arguments(launch: Launch, values: Mapping[str, int]) -> ast.Call:
    """A launch with other values of its arguments, and with no options of Triton's but those given."""
    call, parameters = copy.deepcopy(launch.call), launch.kernel.parameters
    call.keywords = [k for k in call.keywords if k.arg not in OPTIONS[1:]]
    for name, value in values.items():
        given = next((k for k in call.keywords if k.arg == name), None)
        place = parameters.index(name) if name in parameters else len(call.args)
        if given is not None:
            given.value = ast.Constant(value)
        elif place < len(call.args):
            call.args[place] = ast.Constant(value)
        else:
            call.keywords.append(ast.keyword(name, ast.Constant(value)))
    return call


def import_of_language(source: Source) -> ast.stmt:
    """The import behind which those of Gluon stand."""
    for node in source.tree.body:
        if isinstance(node, ast.Import) and any(a.name == "triton.language" for a in node.names):
            return node
    raise NotWritten("no import of triton.language")


def imported(tree: ast.Module) -> set[str]:
    """The names under which the module imports others."""
    imports = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def names_of(tree: ast.Module) -> set[str]:
    """All names that a module reads, stores, defines or imports."""
    defined = {
        n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.alias))
    }
    renamed = {n.asname for n in ast.walk(tree) if isinstance(n, ast.alias) and n.asname}
    arguments = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    return defined | renamed | arguments | names_in(tree)

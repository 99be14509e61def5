"""A small kernel at the bench: opened in this process, or made for a server."""

import asyncio

import small_problem
from command_line import accelopt
from kernel_heads import nki_kernel

from accelopt.api import config_of, own_kernel
from accelopt.bench.folder_setup import make_folder, open_bench, session_folder
from accelopt.bench.tools import bench_tools
from accelopt.stages.config import Options

TOOLS = {tool.name: tool for tool in bench_tools()}

NARROW = nki_kernel("""def kernel(x):
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in nl.affine_range(2):
        tile = nl.ndarray((128, 1024), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[0:128, row, 0:1024])
        silu = nl.ndarray((128, 1024), dtype=x.dtype, buffer=nl.sbuf)
        nisa.activation(dst=silu, op=nl.silu, data=tile)
        nisa.dma_copy(dst=result[0:128, row, 0:1024], src=silu)
    return result
""")
"""The small problem in the other dialect."""


def files(folder, kernel=small_problem.KERNEL):
    """A kernel and its reference as files of somebody's own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "silu.py").write_text(kernel)
    (folder / "silu_numpy.py").write_text(small_problem.REFERENCE)
    return folder / "silu.py", folder / "silu_numpy.py"


def at_bench(folder, work, kernel=small_problem.KERNEL, target="trn1"):
    """What `work(bench, call)` gives, where `call(tool, **arguments)` asks a tool."""

    async def opened():
        case = own_kernel(*files(folder / "own", kernel))
        made = make_folder(folder / "bench", case, Options(target=target, workers=2))
        with session_folder(made.state) as session:
            config = config_of(made.options, session)
            async with open_bench(folder / "bench", made, config) as bench:

                async def call(tool, **arguments):
                    return await TOOLS[tool].call(bench, arguments)

                return await work(bench, call)

    return asyncio.run(opened())


def command(*arguments, status=0):
    """What `accelopt` prints."""
    done = accelopt(*arguments)
    assert done.returncode == status, done.stderr
    return done.stdout

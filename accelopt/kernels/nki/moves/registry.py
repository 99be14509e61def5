"""Every move by name."""

from __future__ import annotations

import importlib
from functools import cache

from accelopt.kernels.nki.moves.move import IllegalMove, Move

MOVES = {
    "hoist": "accelopt.kernels.nki.moves.reuse:Hoist",
    "block": "accelopt.kernels.nki.moves.reuse:Block",
    "fuse": "accelopt.kernels.nki.moves.fusing:Fuse",
    "reduce_on_the_way": "accelopt.kernels.nki.moves.fusing:ReduceOnTheWay",
    "transpose_once": "accelopt.kernels.nki.moves.matmuls:TransposeOnce",
    "transpose_on_engine": "accelopt.kernels.nki.moves.transposing:TransposeOnEngine",
    "drop_copy": "accelopt.kernels.nki.moves.copies:DropCopy",
    "reuse_load": "accelopt.kernels.nki.moves.copies:ReuseLoad",
    "change_engine": "accelopt.kernels.nki.moves.engines:ChangeEngine",
    "merge_loads": "accelopt.kernels.nki.moves.rows:MergeLoads",
    "pack_stores": "accelopt.kernels.nki.moves.rows:PackStores",
    "fuse_loops": "accelopt.kernels.nki.moves.fusion:FuseLoops",
    "widen": "accelopt.kernels.nki.moves.tiles:Widen",
    "interchange": "accelopt.kernels.nki.moves.reuse:Interchange",
    "inline": "accelopt.kernels.nki.moves.inlining:Inline",
}


@cache
def move(name: str) -> Move:
    """The move of a name. Raises IllegalMove when there is none."""
    if name not in MOVES:
        raise IllegalMove(f"there is no move {name!r}; there are: {', '.join(MOVES)}")
    module, _, attribute = MOVES[name].partition(":")
    found: Move = getattr(importlib.import_module(module), attribute)()
    return found

"""Every move by name."""

from __future__ import annotations

import importlib
from functools import cache

from accelopt.moves.move import IllegalMove, Move

MOVES = {
    "hoist": "accelopt.moves.reuse:Hoist",
    "block": "accelopt.moves.reuse:Block",
    "fuse": "accelopt.moves.fusing:Fuse",
    "reduce_on_the_way": "accelopt.moves.fusing:ReduceOnTheWay",
    "transpose_once": "accelopt.moves.matmuls:TransposeOnce",
    "transpose_on_engine": "accelopt.moves.transposing:TransposeOnEngine",
    "drop_copy": "accelopt.moves.copies:DropCopy",
    "reuse_load": "accelopt.moves.copies:ReuseLoad",
    "change_engine": "accelopt.moves.engines:ChangeEngine",
    "merge_loads": "accelopt.moves.rows:MergeLoads",
    "pack_stores": "accelopt.moves.rows:PackStores",
    "fuse_loops": "accelopt.moves.fusion:FuseLoops",
    "widen": "accelopt.moves.tiles:Widen",
    "interchange": "accelopt.moves.reuse:Interchange",
    "inline": "accelopt.moves.inlining:Inline",
}


@cache
def move(name: str) -> Move:
    """The move of a name. Raises IllegalMove when there is none."""
    if name not in MOVES:
        raise IllegalMove(f"there is no move {name!r}; there are: {', '.join(MOVES)}")
    module, _, attribute = MOVES[name].partition(":")
    found: Move = getattr(importlib.import_module(module), attribute)()
    return found

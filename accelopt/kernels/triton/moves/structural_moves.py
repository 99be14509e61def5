"""The structural moves of Triton solutions, and the order in which they are combined."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from accelopt.kernels.triton.moves import (
    address_prefetch,
    arithmetic,
    gqa_packing,
    grid_order,
    host_synchronisation,
    launch_batching,
    loops,
    masks,
    output_fills,
    split_k,
)
from accelopt.kernels.triton.moves.launch_configurations import KernelKind
from accelopt.kernels.triton.moves.source import JitFunction, Launch, Source

MoveFunction: TypeAlias = "Callable[[Source, str], str | None]"


class MoveStep(NamedTuple):
    """A structural move: canonical name, sentence with a place for the kernel's name, promise."""

    method: str
    sentence: str
    move: MoveFunction
    weight: float


def on_kernel(move: Callable[[JitFunction], ast.FunctionDef | None]) -> MoveFunction:
    """A move on a kernel's tree as one on the text."""

    def on_text(source: Source, name: str) -> str | None:
        kernel = source.kernels[name]
        node = move(kernel)
        return None if node is None else source.with_kernel(kernel, node)

    return on_text


def on_launch(move: Callable[[Source, Launch], str | None]) -> MoveFunction:
    """A move on a launch, wherever it stands in the text by now."""

    def on_text(source: Source, name: str) -> str | None:
        launch = next((item for item in source.launches if item.kernel.name == name), None)
        return None if launch is None else move(source, launch)

    return on_text


def on_host(move: Callable[[Source], str | None]) -> MoveFunction:
    """A move on the host code as one on the text."""
    return lambda source, _: move(source)


HOST_STEPS = (
    MoveStep("drop_synchronisation", "Do not synchronise the device in the host code.",
          on_host(host_synchronisation.without_synchronisation), 1.6),
    MoveStep("drop_value_checks", "Leave out the checks of input values that make the host wait for the device.",
          on_host(host_synchronisation.without_value_checks), 1.5),
    MoveStep("read_values_once", "Read the values of index tensors to the host once.",
          on_host(host_synchronisation.values_read_once), 1.6),
)  # fmt: skip
BATCHED = MoveStep("batch_launches", "Launch {} once, with a table of the work, for all steps of the host's loop.",
                   on_launch(launch_batching.one_launch), 2.0)  # fmt: skip
HEADS = MoveStep("pack_gqa_heads", "Let each program of {} compute all heads that read the same keys.",
              on_launch(gqa_packing.heads_together), 2.5)  # fmt: skip
OWN_PRECISION = MoveStep("switch_to_mma_or_wgmma", "Multiply the tiles of {} in the 16-bit format they are stored in.",
                      on_kernel(arithmetic.own_precision_dots), 1.8)  # fmt: skip
COUNTED = MoveStep(
    "count_while_loop",
    "Count the steps of the open loop of {}.",
    on_kernel(loops.counted_loop),
    1.1,
)
STEPPED = MoveStep("step_by_offsets", "Let the loop of {} run over positions, not over numbers of tiles.",
                on_kernel(loops.stepped_by_tiles), 1.0)  # fmt: skip
STOPPED = MoveStep("tighten_loop_bound", "End the loop of {} at the last position that any of its rows can see.",
                on_kernel(masks.stop_at_bound), 1.2)  # fmt: skip
PEELED = MoveStep("pad_tail_and_mask", "Take the masks out of the main loop of {}; only its last steps need them.",
               on_kernel(masks.peel_masks), 0.9)  # fmt: skip
BASE_TWO = MoveStep("softmax_math_fusion", "Raise two to a power in {}, with the change of base folded into its scale.",
                 on_kernel(arithmetic.base_two), 1.5)  # fmt: skip
FILLED = MoveStep("fill_uncovered_outputs", "Fill the outputs of {} only where its work leaves steps out.",
              on_launch(output_fills.filled_where_left), 1.3)  # fmt: skip
SPLIT = MoveStep("split_k", "Share the loop of each program of {} among several where there are too few.",
             on_launch(partial(split_k.split_loop, waves=1)), 1.7)  # fmt: skip
PREFETCHED = MoveStep("prefetch_addresses", "Look up in {} where a step's loads are found one step before.",
             on_kernel(address_prefetch.looked_up_ahead), 1.1)  # fmt: skip
HEADS_OF_FEW = HEADS._replace(weight=2.4)
"""As `HEADS`, for a few keys: one loop, whose first loads are all under way before its products."""

MOST_FIRST = MoveStep("longest_first", "Start the blocks of {} with the most work first.",
                   on_launch(grid_order.most_work_first), 0.8)  # fmt: skip
LOOPED = (COUNTED, STEPPED, OWN_PRECISION, STOPPED)
"""What becomes of a loop over keys before its masks are taken out or kept."""
ROUTES: dict[KernelKind, tuple[tuple[MoveStep, ...], ...]] = {
    KernelKind.PRODUCT: ((COUNTED, OWN_PRECISION),),
    KernelKind.ATTENTION: (
        (FILLED, OWN_PRECISION, COUNTED, STEPPED, STOPPED, PEELED, BASE_TWO, MOST_FIRST),
        (STOPPED, PEELED, MOST_FIRST),
    ),
    KernelKind.DECODE: (
        (HEADS, *LOOPED, PEELED, BASE_TWO, SPLIT, PREFETCHED),
        (HEADS_OF_FEW, *LOOPED, BASE_TWO, SPLIT, PREFETCHED),
        (STOPPED, PEELED),
    ),
}
"""Steps that go together for a kind of work, in their order; the first route is tried whole, of the
others only what their first step fits."""
OTHERWISE = ((COUNTED, STEPPED, PEELED, BASE_TWO),)


def routes_of(kind: KernelKind) -> tuple[tuple[MoveStep, ...], ...]:
    """The routes for a kind of work."""
    return ROUTES.get(kind, OTHERWISE)

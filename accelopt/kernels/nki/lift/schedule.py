"""How an algorithm is computed: every choice that lowering leaves open, as one plain record.

A schedule changes the place, the order and the engine of work, or uses algebra that is exact in real
numbers; never what is computed.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Streaming = Literal["resident", "columns", "accumulate"]
Operand = Literal["transposed", "squares", "direct"]
ResultForm = Literal["rows", "turned"]
ReductionForm = Literal["along", "across"]


class Schedule(BaseModel):
    """One point of the space. JSON by `model_dump_json` and `model_validate_json`.

    `rows` is the axis whose elements lie on partitions; each block takes `row_tiles` tiles of up to
    128 of them. `columns` bounds the elements that one load, store or elementwise instruction takes
    along the other axis. `beside` is how many consecutive rows lie beside each other on a
    partition, in work element by element. `flat` gives the rows of a kernel without rows: all arrays are cut into
    rows of that many elements.

    `weights` says, for each matrix product in the order of the graph, where its operand without
    rows is: `resident` in SBUF before the first row; streamed in `columns`, for each block of rows
    and of result columns at once over all of the contracted axis; or streamed by tiles into as many
    partial sums in PSUM as there are tiles of rows (`accumulate`). `operands` says how its operand
    with rows comes to have the contracted axis on partitions: computed with rows there and
    `transposed` by the Tensor engine, or in `squares` of 32 by 32 by the Vector engine, or computed
    `direct` that way round. `results` says whether a product is summed with
    `rows` on partitions, or along the free axis, where matmuls are longer, and `turned` afterwards.
    `reductions` says of each maximum or minimum of computed values whether they are combined
    `along` the free axis, for which what is read with that axis on partitions is computed once more,
    or `across` partitions. `ahead` has operands of the next block of rows made ready while the present
    one is worked on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: str
    row_tiles: int = 1
    columns: int = 2048
    beside: int = 1
    flat: int = 0
    weights: tuple[Streaming, ...] = ()
    operands: tuple[Operand, ...] = ()
    results: tuple[ResultForm, ...] = ()
    reductions: tuple[ReductionForm, ...] = ()
    ahead: bool = False


class ResourceShort(Exception):
    """A schedule that needs more of a resource than there is. `resource` is its name; the text
    says how much is asked for and how much there is."""

    def __init__(self, resource: str, needed: int, available: int, what: str) -> None:
        super().__init__(f"{what} takes {needed} of {available} {resource}")
        self.resource = resource
        self.needed = needed
        self.available = available

"""CUDA kernels on a GPU: alone, with a contract, or as solutions of FlashInfer-Bench."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence

from accelopt.contract.spec import Argument
from accelopt.errors import ConfigError
from accelopt.kernels.cuda.launching import signature_of
from accelopt.kernels.cuda.moves import proposals_on
from accelopt.kernels.cuda.names import NOTES, sheet
from accelopt.kernels.gpu.language import Solutions
from accelopt.kernels.notes import note_on
from accelopt.nodes import Action, Node

MOST_PROPOSALS = 48


class Cuda(Solutions):
    """Solutions whose work is done by kernels in CUDA C++."""

    name = "cuda"
    work = "by the kernels of its own sources"
    written_in = "cuda"
    compiled_with = ()
    may_name = (
        "The sources may include CUDA's own headers, cub, cute and cutlass, and name nothing that "
        "reaches the host's files, threads, clocks or libraries. A kernel that is given alone is "
        "started as its line `#pragma launch` says."
    )

    async def actions(self, node: Node, focus: str = "") -> Sequence[Action]:
        """What `accelopt.kernels.cuda.moves` can do, the most promising ones."""
        template = self._problem(node.case).template
        if template.spec.binding != "driver":
            return ()
        name = template.spec.entry_point.split("::")[-1]
        values = values_of(node.source, name, template.spec.arguments)
        return await asyncio.to_thread(proposals_on, node, name, MOST_PROPOSALS, values)

    def look_up(self, name: str, kernel: str) -> str:
        """Our notes on one name of CUDA C++."""
        return note_on(name, NOTES)

    def sheet(self, texts: Sequence[str]) -> str:
        """Our notes on the names that stand in `texts`."""
        return sheet(texts)


def values_of(source: str, name: str, arguments: Sequence[Mapping[str, object]]) -> dict[str, int]:
    """What a contract says of a kernel's parameters: whole numbers, and of tensors how many elements
    they have."""
    try:
        parameters = signature_of(source, name).parameters
    except ConfigError:
        return {}
    given = [Argument.model_validate(one) for one in arguments]
    return {
        parameter.name: math.prod(one.tensor.shape) if one.is_tensor else int(str(one.value))
        for parameter, one in zip(parameters, given, strict=False)
        if one.is_tensor or one.type == "int"
    }

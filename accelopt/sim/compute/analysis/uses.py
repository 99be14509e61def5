"""Every access to every tensor of a Program, and what an instruction's mask is written over."""

from __future__ import annotations

from dataclasses import dataclass

from accelopt.sim.access import Access
from accelopt.sim.program import Instruction, Loop, Program, Tensor


@dataclass(frozen=True, eq=False, slots=True)
class Use:
    """One access of an instruction to a tensor. `order` counts instructions in program order; an
    instruction's reads come before its writes."""

    access: Access
    loops: tuple[Loop, ...]
    order: int
    instruction: Instruction
    reads: bool
    writes: bool

    @property
    def covers(self) -> bool:
        """True for a write that leaves nothing of what was there in the elements it reaches."""
        return self.writes and not self.access.indirect and not _reads_result(self.instruction)

    @property
    def plain(self) -> bool:
        """True for a use of all its elements, in every iteration alike: nothing is masked, and
        nothing is carried from one iteration to the next."""
        instruction = self.instruction
        return not (
            instruction.mask.constraints
            or self.access.mask.constraints
            or "loops" in instruction.attributes
            or any(access.mask.constraints for access in instruction.inputs.values())
        )


def _reads_result(instruction: Instruction) -> bool:
    """True when the old contents of the result matter."""
    attributes = instruction.attributes
    skips = attributes.get("oob_mode") == "skip"
    return instruction.opcode.keeps or skips or bool(attributes.get("accumulate"))


def carried_loops(instruction: Instruction) -> frozenset[int]:
    """The ids of the loops over whose iterations an instruction accumulates into its result."""
    loops = instruction.attributes.get("loops", ())
    assert isinstance(loops, tuple)
    return frozenset(loops)  # type: ignore[arg-type]


def uses_by_tensor(program: Program) -> dict[Tensor, list[Use]]:
    """Every access to every tensor, in program order."""
    found: dict[Tensor, list[Use]] = {}
    for order, (loops, instruction) in enumerate(program.walk()):
        inputs, outputs = instruction.inputs.values(), instruction.outputs.values()
        reads = list(inputs)
        for access in (*inputs, *outputs):
            if access.indirect:
                reads += access.indices
        for access in reads:
            use = Use(access, loops, order, instruction, True, False)
            found.setdefault(access.tensor, []).append(use)
        for access in outputs:
            use = Use(access, loops, order, instruction, _reads_result(instruction), True)
            found.setdefault(access.tensor, []).append(use)
    return found


def common_loops(first: Use, second: Use) -> tuple[Loop, ...]:
    """The loops around both uses, outermost first."""
    shared: list[Loop] = []
    for one, other in zip(first.loops, second.loops, strict=False):
        if one is not other:
            break
        shared.append(one)
    return tuple(shared)


def mask_is_aligned(use: Use) -> bool:
    """True when the axes of the mask are those of the use, too."""
    opcode = use.instruction.opcode
    return opcode.elementwise or (opcode.product and use.writes)

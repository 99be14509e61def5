"""A second executor, as plain as can be: every logical block has memory, one element at a time."""

from typing import Any

import numpy as np

from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, LoopVariable, TileAxis
from accelopt.sim.program import Instruction, Program, ProgramNode, Tensor

Values = dict[LoopVariable, int]


class Oracle:
    """Knows copy, dma_copy, memset, and adding with tensor_scalar and tensor_tensor; float32."""

    def __init__(self, program: Program, arrays: list[np.ndarray]) -> None:
        self.program = program
        self.memory: dict[Tensor, np.ndarray] = {}
        for tensor in program.all_tensors():
            self.fresh(tensor)
        for tensor, array in zip(program.arguments, arrays, strict=True):
            self.memory[tensor] = array.reshape(-1).copy()

    def fresh(self, tensor: Tensor) -> None:
        if tensor.data is not None:
            self.memory[tensor] = tensor.data.reshape(-1).copy()
            return
        value = np.nan if tensor.fill is None else tensor.fill
        self.memory[tensor] = np.full(int(np.prod(tensor.shape)), value, np.float32)

    def run(self) -> list[Any]:
        self.nodes(self.program.body, {})
        return [
            None if t is None else self.memory[t].reshape(t.shape) for t in self.program.results
        ]

    def nodes(self, nodes: tuple[ProgramNode, ...], values: Values) -> None:
        for node in nodes:
            if isinstance(node, Instruction):
                self.instruction(node, values)
                continue
            for value in node.variable.values:
                for tensor in node.tensors:
                    self.fresh(tensor)
                self.nodes(node.body, {**values, node.variable: value})

    def instruction(self, node: Instruction, values: Values) -> None:
        shape = node.result.shape
        wanted = [at for at in np.ndindex(*shape) if self.holds(node, at, shape, values)]
        operands = {
            name: [self.memory[a.tensor][self.place(a, at, values)] for at in wanted]
            for name, a in node.inputs.items()
        }
        results = self.compute(node, operands, len(wanted))
        for at, result in zip(wanted, results, strict=True):
            self.memory[node.result.tensor][self.place(node.result, at, values)] = result

    def compute(self, node: Instruction, operands: dict[str, list[Any]], count: int) -> list[Any]:
        if node.opcode == "memset":
            return [node.attributes["value"]] * count
        if node.opcode == "tensor_scalar":
            return [x + np.float32(node.attributes["operand0"]) for x in operands["data"]]
        if node.opcode == "tensor_tensor":
            return [x + y for x, y in zip(operands["data1"], operands["data2"], strict=True)]
        return operands["source" if node.opcode == "dma_copy" else "data"]

    def holds(
        self, node: Instruction, at: tuple[int, ...], shape: tuple[int, ...], values: Values
    ) -> bool:
        axes = {TileAxis(n - len(shape), shape[n]): Affine(i) for n, i in enumerate(at)}
        return all(c.substitute(axes).evaluate(values) >= 0 for c in node.mask.constraints)

    def place(self, access: Access, at: tuple[int, ...], values: Values) -> int:
        block = 0
        for index, size in zip(access.block, access.tensor.block_shape, strict=True):
            block = block * size + index.evaluate(values)
        offset = access.offset.evaluate(values)
        inside = sum(i * stride for i, stride in zip(at, access.strides, strict=True))
        return block * int(np.prod(access.tensor.tile_shape)) + offset + inside

"""The wire format follows from the table of instructions: every opcode with every attribute, of every
kind that it takes, is the same on the other side; nothing that the table does not know is emitted."""

import ast
import math
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import accelopt
from accelopt.sim import attribute_kinds as kinds
from accelopt.sim import dtypes, operators, serial
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, LoopVariable, TileAxis, variable
from accelopt.sim.errors import KernelError
from accelopt.sim.instruction_set import OPCODES, fault
from accelopt.sim.mask import Mask
from accelopt.sim.program import Buffer, Engine, Instruction, Loop, LoopKind, Program, Tensor

SHAPE = (32, 8)
LOOP = LoopVariable(1, 2, 3, 4)
ROW = variable(TileAxis(-2, SHAPE[0]))
EXPRESSIONS = (Affine(7), ROW * 3 + 1, variable(LOOP) * -2 + ROW)
EXAMPLES = {
    kinds.TRUTH: (True, False),
    kinds.NUMBER: (0, -3, 1 << 40, 1.0, -0.0, 0.1, True, math.inf, -math.inf, math.nan),
    kinds.INTEGER: (-1, 0, 1 << 31),
    kinds.COUNT: (0, 4096),
    kinds.WIDTH: (1, 32),
    kinds.TEXT: ("", "x =", "Größe 'a\"b\\"),
    kinds.FORMAT: tuple(dtypes.FORMATS),
    kinds.BINARY_OPERATOR: tuple(operators.BINARY),
    kinds.UNARY_OPERATOR: tuple(operators.UNARY),
    kinds.OPERATOR: tuple(operators.BINARY | operators.UNARY),
    kinds.COMPARISON: tuple(operators.COMPARISONS),
    kinds.REDUCTION: tuple(operators.REDUCTIONS),
    kinds.COMBINATION: tuple(operators.COMBINATIONS),
    kinds.REGISTER_COMMAND: ("idle", "reset", "reduce", "reset_reduce"),
    kinds.ACCUMULATION: (None, "add", "maximum"),
    kinds.OUT_OF_BOUNDS: ("error", "skip"),
    kinds.PERFORMANCE_MODE: ("double_row_gen3",),
    kinds.DESCRIPTORS: ("static", "software", "sync", "scalar"),
    kinds.AXES: ((1,), (0, 1), ()),
    kinds.LOOPS: ((LOOP.id,), ()),
    kinds.SHUFFLE: (tuple(range(32)), (255,) * 32),
    kinds.EXPRESSION: EXPRESSIONS,
    kinds.PREDICATE: (Mask(), Mask((EXPRESSIONS[1], EXPRESSIONS[2]))),
    kinds.POSITION: (5, variable(LOOP)),
}
CASES = [(name, attribute) for name, row in OPCODES.items() for attribute in row.kinds]


def tensor(number, buffer):
    return Tensor(number, f"t{number}", SHAPE, np.dtype(np.float32), buffer)


TILE = tensor(1, Buffer.SBUF)


def tile():
    return Access(TILE, SHAPE, (), Affine(), (SHAPE[1], 1), TILE.dtype)


def made(opcode, attributes):
    """An instruction with these attributes, every operand that they leave, and what it must have."""
    row = OPCODES[opcode]
    inputs = [name for name in row.inputs if name not in attributes]
    needed = [name for name in row.attributes if name in row.required and name not in inputs]
    given = {name: EXAMPLES[row.attributes[name]][0] for name in needed} | attributes
    return Instruction(
        opcode,
        row.engines[0],
        {name: tile() for name in row.outputs},
        {name: tile() for name in inputs},
        given,
    )


def sent(instruction):
    """The instruction in a loop of a Program, as another process has it."""
    out = tensor(2, Buffer.HBM)
    body = (Loop(LOOP, LoopKind.SEQUENTIAL, (instruction,)),)
    program = serial.transferred(Program("kernel", (), (out,), body, (TILE, out)))
    [(_, found)] = program.walk()
    return found


@pytest.mark.parametrize(("opcode", "attribute"), CASES)
def test_every_attribute_of_every_opcode_arrives(opcode, attribute):
    for value in EXAMPLES[OPCODES[opcode].kinds[attribute]]:
        instruction = made(opcode, {attribute: value})
        found = sent(instruction)
        assert repr(found.attributes) == repr(dict(instruction.attributes))
        assert (found.opcode, found.engine) == (opcode, OPCODES[opcode].engines[0])
        assert list(found.outputs) == list(instruction.outputs)
        assert list(found.inputs) == list(instruction.inputs)
        for one, other in zip(found.inputs.values(), instruction.inputs.values(), strict=True):
            assert (one.shape, one.strides, one.offset) == (
                other.shape,
                other.strides,
                other.offset,
            )


def test_every_opcode_arrives_with_nothing_but_what_it_must_have():
    for opcode, row in OPCODES.items():
        whole = made(opcode, {})
        needed = row.required | {"operand0", "operand1"}  # operators of two arguments take them
        least = Instruction(
            opcode,
            Engine.UNASSIGNED,
            {name: access for name, access in whole.outputs.items() if name in needed},
            {name: access for name, access in whole.inputs.items() if name in needed},
            whole.attributes,
        )
        found = sent(least)
        assert found.attributes == least.attributes and found.engine is Engine.UNASSIGNED
        assert [*found.inputs, *found.outputs] == [*least.inputs, *least.outputs]


def test_every_kind_has_examples_and_refuses_others():
    used = {kind for row in OPCODES.values() for kind in row.kinds.values()}
    assert used <= EXAMPLES.keys()
    for kind, examples in EXAMPLES.items():
        assert all(map(kind.accepts, examples)), kind.name
        assert not kind.accepts(object()) and not kind.accepts([1]), kind.name
        assert not kind.accepts("no such word\n"), kind.name


@pytest.mark.parametrize(
    ("opcode", "attributes", "words"),
    [
        ("copy", {"scale": 2.0}, "copy has no attribute 'scale'"),
        ("memset", {}, "memset lacks value"),
        ("memset", {"value": "1"}, "memset cannot have value='1'"),
        ("stream_shuffle", {"shuffle_mask": (1, 2)}, "stream_shuffle cannot have shuffle_mask="),
        ("fly", {}, "there is no instruction fly"),
    ],
)
def test_faults_are_told_by_name(opcode, attributes, words):
    inputs = OPCODES[opcode].inputs if opcode in OPCODES else ()
    assert fault(opcode, ("result",), inputs, attributes).startswith(words)
    assert fault(opcode, ("nothing",), inputs, attributes)


KERNEL = """
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm, name="two\\nlines")
            t = nl.load(a)
            nl.device_print("first\\n\\x1bsecond =", t)
            nl.store(out, LINE)
            return out
"""


@pytest.mark.parametrize(
    ("line", "factor"), [("nl.multiply(t, 1 << 60)", 2.0**60), ("nl.add(t, -(1 << 50))", None)]
)
def test_texts_and_numbers_of_kernels_are_made_fit_for_a_program(kernel_text, line, factor):
    """A control character would reach the terminal of the judge; float32 holds what no int48 does."""
    text, a = kernel_text(KERNEL.replace("LINE", line)), np.ones(SHAPE, np.float32)
    program = text.trace(a)
    [prefix] = [i.attributes["prefix"] for _, i in program.walk() if i.opcode == "print"]
    assert prefix == "first  second ="
    assert any(one.name == "two lines" for one in program.all_tensors())
    expected = a * np.float32(factor) if factor else a - np.float32(1 << 50)
    assert np.array_equal(text.run(a), expected)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nl.multiply(t, 10 ** 400)", "no number of an operand"),
        ('nl.copy(nisa.nc_matmul(t, t, perf_mode="fast"))', "perf_mode 'fast' is not simulated"),
        ("nisa.activation(nl.exp, t, reduce_op=np.mean)", "operation 'mean' is not supported"),
    ],
)
def test_what_no_program_holds_is_the_kernels_error(kernel_text, line, words):
    text = kernel_text(KERNEL.replace("LINE", line))
    with pytest.raises(KernelError, match=words):
        text.trace(np.ones(SHAPE, np.float32), target="trn2")


FAMILIES = {"elementwise", "indexed", "matrix", "movement", "reductions"}
MOST_FILES = dict.fromkeys(("activation", "matmul", "tensor_scalar", "transpose"), 5)
"""An entry, a call in both dialects, and who makes it besides: operators, microscaling, the compiler."""


def test_an_opcode_is_named_in_four_files():
    """Passes ask for traits of the entry and compare no names; those that nests select are no instructions."""
    named, spelled, package = defaultdict(set), [], Path(accelopt.__file__).parent
    for file in package.rglob("*.py"):
        place, text = file.relative_to(package).as_posix(), file.read_text()
        if not re.search(rf"opcode|\.sim\.isa\.|\b({'|'.join(FAMILIES)})\.[A-Z]", text):
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Attribute(ast.Name(room), name) if room in FAMILIES and name.isupper():
                    named[name.lower()].add(place)
                case ast.ImportFrom(str(room)) if ".sim.isa." in room:
                    for alias in node.names:
                        named[alias.name.lower()].add(place)
                case ast.Compare() if "opcode" in ast.unparse(node) and "/nests/" not in place:
                    spelled += [place for word in OPCODES if repr(word) in ast.unparse(node)]
    assert not spelled
    for opcode in OPCODES:
        files = named[opcode] | {"sim/isa"}
        assert len(files) <= MOST_FILES.get(opcode, 4), (opcode, sorted(files))

"""What a kernel's process sends is believed in nothing: forged Programs are refused, or they run as
any other and end in an error of their own. Nothing else ever reaches the judge.
"""

import io
import json
import math
import random
import zipfile

import numpy as np
import pytest
from kernel_heads import function_of, neuronxcc_kernel
from mutation import changed, packed, unpacked
from traced import program_of

from accelopt.hardware import TARGETS
from accelopt.sim import compute, rules, serial, timing
from accelopt.sim.errors import NOWHERE, KernelError
from accelopt.sim.trace import AbstractTensor

HEAD = "import numpy as np\n" + neuronxcc_kernel("")
MASKED = """
def kernel(a, scale):
    out = nl.ndarray((4, nl.par_dim(128), 64), dtype=a.dtype, buffer=nl.shared_hbm)
    ones = nl.load(nl.shared_constant(np.ones((128, 64), dtype=np.float32)))
    for i in nl.affine_range(4):
        p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
        t = nl.load(a[i * 128 + p, f], mask=(i * 128 + p < 500))
        nl.store(out[i, p, f], (nl.exp(t) + ones) * scale)
    return out
"""
PRODUCT = function_of("a, b", shape="(256, 512)")("""
for m in nl.affine_range(2):
    acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(3):
        left = nl.load(a[k * 128:(k + 1) * 128, m * 128:(m + 1) * 128])
        acc += nl.matmul(left, nl.load(b[k * 128:(k + 1) * 128, :]), transpose_x=True)
    nl.store(out[m * 128:(m + 1) * 128, :], nl.copy(acc))
""")
MANY = function_of("a, places", shape="(128, 64)")("""
p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
x = nl.load(a[nl.load(places)[p, 0], f])
m = nl.max(x, axis=1)
y = nisa.tensor_scalar(nisa.activation(nl.exp, x, bias=m, scale=-1.0), nl.multiply, 2.0,
                       op1=nl.add, operand1=m)
t = nisa.affine_select(p - f >= 0, nl.where(x > m, x, y), 0.0)
z = nisa.tensor_reduce(nl.add, t, axis=(1,), negate=True)
v = nisa.max8(src=x)
w = nisa.nc_find_index8(data=x, vals=v)
q = nisa.bn_aggr(nisa.bn_stats(x))
for j in nl.sequential_range(3):
    t[...] = nisa.tensor_tensor_scan(t, y, initial=z, op0=nl.multiply, op1=nl.add)
nl.store(out, t + q[:, 0:1] + v[:, 0:1] + w[:, 0:1])
""")
PROGRAMS = [
    (MASKED, (AbstractTensor((512, 64), "float32"), 2.0)),
    (PRODUCT, (AbstractTensor((384, 256), "float32"), AbstractTensor((384, 512), "float32"))),
    (MANY, (AbstractTensor((512, 64), "float32"), AbstractTensor((128, 1), "int32"))),
]
MOST_WORK = 10**7


@pytest.fixture(scope="module")
def documents():
    return [
        unpacked(serial.dumps(program_of(HEAD + text, arguments))) for text, arguments in PROGRAMS
    ]


def work(program) -> int:
    """Elements that executing it touches, and that its tensors hold."""
    touched = (
        math.prod(loop.variable.trips for loop in loops)
        * max([1, *(a.elements for a in (*i.inputs.values(), *i.outputs.values()))])
        for loops, i in program.walk()
    )
    return sum(touched) + sum(math.prod(tensor.shape) for tensor in program.all_tensors())


def ending_of(data: bytes) -> str:
    """How far the judge gets with these bytes. Whatever else is raised is a hole."""
    try:
        program = serial.loads(data)
    except serial.MalformedProgram:
        return "malformed"
    try:
        rules.check(program)
        if program.target not in TARGETS or work(program) > MOST_WORK:
            return "left out"
        arrays = [np.ones(t.shape, t.dtype) for t in program.arguments if t.dtype.kind != "V"]
        with np.errstate(all="ignore"):
            compute.execute(program, arrays, order="shuffled", seed=1)
        timing.profile(program, TARGETS[program.target])
    except (KernelError, IndexError):
        return "refused"
    return "ran"


def test_forged_programs_end_in_errors_of_their_own(documents):
    """Two hundred changes, the same each time; ten thousand others were tried once."""
    chance = random.Random(20261122)
    endings = []
    for _ in range(200):
        document, files = chance.choice(documents)
        forged = changed(document, chance)
        try:
            endings.append(ending_of(packed(forged, files)))
        except Exception as error:
            raise AssertionError(json.dumps(forged)) from error
    assert endings.count("malformed") > 50 and endings.count("ran") > 20, endings


def test_untouched_programs_run(documents):
    assert [ending_of(packed(*document)) for document in documents] == ["ran"] * 3


def loop_of(document):
    return next(node for node in document["body"] if node[0] == "loop")


def first_form(document, opcode):
    """The form of the first instruction with this opcode."""

    def walk(nodes):
        for node in nodes:
            if node[0] == "loop":
                yield from walk(node[4])
            elif isinstance(node[0], list) and node[0][0] == opcode:
                yield node[0]

    return next(walk(document["body"]))


def deep(levels):
    inner = 0
    for _ in range(levels):
        inner = [0, [["quotient", inner, 2], 1]]
    return inner


FORGERIES = {
    "a loop that stands still": (0, lambda d: loop_of(d)[2].__setitem__(2, 0)),
    "a loop that runs backwards for ever": (0, lambda d: loop_of(d)[2].__setitem__(3, -1)),
    "an index of a loop that is over": (0, lambda d: d["body"].append(loop_of(d)[4][0])),
    "an attribute that the opcode lacks": (
        0, lambda d: first_form(d, "activation")[4].__setitem__("reverse0", True)),
    "an attribute of another kind": (
        0, lambda d: first_form(d, "activation")[4].__setitem__("op", 3)),
    "no operation": (0, lambda d: first_form(d, "activation")[4].pop("op")),
    "a number beyond any": (
        0, lambda d: first_form(d, "tensor_scalar")[4].__setitem__("operand0", 10**400)),
    "a mask over an axis that no tile has": (
        0, lambda d: first_form(d, "dma_copy").__setitem__(5, [[9, [["axis", -2, 4096], 1]]])),
    "a name that a terminal obeys": (0, lambda d: d.__setitem__("name", "\x1b]0;x\x07")),
    "quotients in quotients": (0, lambda d: loop_of(d)[4][0][1].__setitem__(2, deep(200))),
    "loops in loops": (0, lambda d: _nest(d, 200)),
    "an axis that the data lacks": (
        2, lambda d: first_form(d, "tensor_reduce")[4].__setitem__("axes", [7])),
    "a format that only NumPy has": (1, lambda d: d["arguments"][0][2].__setitem__(1, "float64")),
}  # fmt: skip


def _nest(document, levels):
    for number in range(levels):
        body = document["body"]
        document["body"] = [["loop", "affine", [10**6 + number, 0, 1, 1], [], body, ["k", 1]]]


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_are_no_programs(documents, name):
    which, change = FORGERIES[name]
    document, files = documents[which]
    document = json.loads(json.dumps(document))
    change(document)
    assert ending_of(packed(document, files)) == "malformed"


def test_formats_that_an_engine_does_not_read_are_refused(documents):
    """Whole numbers of 16 bits would halve the Tensor engine's time; it takes floats
    (SDK 2.26.1, nisa.nc_matmul)."""
    document, files = documents[1]
    document = json.loads(json.dumps(document))
    for tensor in (*document["arguments"], *document["tensors"]):
        if isinstance(tensor[2], list):
            tensor[2][1] = "int16"
    text = json.dumps(document).replace('"float32"', '"int16"')
    program = serial.loads(packed(json.loads(text), files))
    said = [str(error) for error in rules.verify(program)]
    assert any("matmul has an operand" in words and "int16" in words for words in said), said


def test_a_document_of_too_many_values_is_not_parsed(documents):
    """48 MB of brackets would be 1.25 GB of lists."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(serial.DOCUMENT, b"[" + b"[]," * 12_000_000 + b"[]]")
    with pytest.raises(serial.MalformedProgram, match="values"):
        serial.loads(data.getvalue())


def test_lines_of_other_files_are_nowhere(documents):
    """The line is read and shown to people and models: /etc/shadow:1 must not be."""
    document, files = documents[0]
    kernel = document["source"][0]
    text = json.dumps(document).replace(json.dumps(kernel), '"/etc/shadow"')
    forged = serial.loads(packed(json.loads(text), files), kernel)
    assert {i.source for _, i in forged.walk()} == {NOWHERE}
    honest = serial.loads(packed(document, files), kernel)
    assert NOWHERE not in {i.source for _, i in honest.walk()}

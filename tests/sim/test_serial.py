"""Programs survive the way from one process to another, and nothing else does."""

import io
import json
import zipfile

import pytest
from kernel_heads import neuronxcc_kernel, neuronxcc_of
from traced import program_of

from accelopt.sim import serial
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.errors import KernelError
from accelopt.sim.kernel_loading import load
from accelopt.sim.trace import AbstractTensor

KERNEL = "import numpy as np\n" + neuronxcc_kernel("""def kernel(a, scale):
    out = nl.ndarray((4, nl.par_dim(128), 64), dtype=a.dtype, buffer=nl.shared_hbm)
    ones = nl.load(nl.shared_constant(np.ones((128, 64), dtype=np.float32)))
    for i in nl.affine_range(4):
        t = nl.load(a[i * 128:(i + 1) * 128, 0:64])
        f = nl.arange(64)[None, :]
        p = nl.arange(128)[:, None]
        u = nl.add(t, ones, mask=(f + i * 64 < 200))
        nl.store(out[i, p, f], nl.multiply(u, scale), mask=(f + i * 64 < 200))
    return out
""")
ARGUMENTS = (AbstractTensor((512, 128), "float32"), 2.0)


@pytest.fixture(scope="module")
def packed():
    return serial.dumps(program_of(KERNEL, ARGUMENTS))


def test_round_trip_is_the_same_program(packed):
    program = serial.loads(packed)
    assert serial.dumps(program) == packed
    assert [i.opcode for _, i in program.walk()].count("dma_copy") == 3
    constant = next(t for t in program.all_tensors() if t.data is not None)
    assert constant.data.shape == (128, 64) and (constant.data == 1).all()


def test_unrolled_instructions_share_their_forms():
    unrolled = KERNEL.replace("affine_range(4)", "static_range(4)")
    program = program_of(unrolled, ARGUMENTS)
    packed = serial.dumps(program)
    again = serial.loads(packed)
    assert serial.dumps(again) == packed
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        body = json.loads(archive.read(serial.DOCUMENT))["body"]
    loads = [item for item, node in zip(body, program.body) if "source" in node.inputs]
    assert any(isinstance(form, int) for form, *_ in loads)
    pairs = zip(program.walk(), again.walk(), strict=True)
    for (_, first), (_, second) in pairs:
        assert first.attributes == second.attributes and first.mask == second.mask
        assert [a.offset for a in first.inputs.values()] == [
            a.offset for a in second.inputs.values()
        ]


def test_attributes_that_are_equal_but_not_alike_stay_apart():
    kernel = neuronxcc_of("a")("""
        t = nl.load(a)
        for value in [1, 1.0, True, 0.0, -0.0]: t = nisa.tensor_scalar(t, nl.add, value)
        nl.store(out, t)
    """)
    program = program_of(kernel, (AbstractTensor((128, 64), "float32"),))
    values = [
        repr(i.attributes["operand0"])
        for _, i in serial.loads(serial.dumps(program)).walk()
        if i.opcode == "tensor_scalar"
    ]
    assert values == ["1", "1.0", "True", "0.0", "-0.0"]


def _changed(packed, change):
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(packed)) as old, zipfile.ZipFile(buffer, "w") as new:
        for item in old.infolist():
            content = old.read(item)
            if item.filename == serial.DOCUMENT:
                document = json.loads(content)
                change(document)
                content = json.dumps(document).encode()
            new.writestr(item.filename, content)
    return buffer.getvalue()


def _first_loop(document):
    return next(node for node in document["body"] if node[0] == "loop")


def _load(document):
    """The first instruction of the loop: [form, access written, access read]."""
    return _first_loop(document)[4][0]


def _constant(document):
    return next(tensor for tensor in document["tensors"] if tensor[2][6])


CHANGES = {
    "unknown opcode": lambda d: _load(d)[0].__setitem__(0, "system"),
    "unknown operand": lambda d: _load(d)[0].__setitem__(3, ["elsewhere"]),
    "missing operand": lambda d: _load(d).pop(),
    "unknown tensor": lambda d: _load(d)[1].__setitem__(0, 999),
    "negative size": lambda d: d["arguments"][0][2][0].__setitem__(0, -1),
    "float address": lambda d: _load(d)[1].__setitem__(2, 0.5),
    "huge address": lambda d: _load(d)[1].__setitem__(2, 1 << 70),
    "two tensors of one number": lambda d: d["tensors"].append(d["arguments"][0]),
    "unknown dtype": lambda d: d["arguments"][0][2].__setitem__(1, "object"),
    "on-chip argument": lambda d: d["arguments"][0][2].__setitem__(2, "sbuf"),
    "constant of another size": lambda d: _constant(d)[2].__setitem__(0, [1 << 40]),
    "missing strides": lambda d: _load(d)[2][1].__setitem__(1, []),
    "unknown form": lambda d: _load(d)[2].__setitem__(1, 1000),
    "negative form": lambda d: _load(d)[2].__setitem__(1, -1),
    "form that is a truth value": lambda d: _load(d)[2].__setitem__(1, False),
    "other version": lambda d: d.__setitem__("version", 0),
    "missing key": lambda d: d.pop("body"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_anything_else_is_refused(packed, name):
    with pytest.raises(serial.MalformedProgram):
        serial.loads(_changed(packed, CHANGES[name]))


@pytest.mark.parametrize("data", [b"", b"PK", b"\x80\x04K\x01."])
def test_bytes_that_are_no_archive_are_refused(data):
    with pytest.raises(serial.MalformedProgram):
        serial.loads(data)


def test_kernels_loaded_under_one_file_name_keep_their_own_source():
    """The tracer reads source lines: an annotation of the second must not be checked in the first."""
    other = KERNEL.replace("t = nl.load(", "t: nt.tensor[1, 1] = nl.load(").replace(
        "import numpy as np", "import numpy as np; import neuronxcc.nki.typing as nt"
    )
    first, second = load(KERNEL), load(other)
    trace_kernel(first.kernel, ARGUMENTS)
    with pytest.raises(KernelError, match="err_annotation_shape_mismatch"):
        trace_kernel(second.kernel, ARGUMENTS)
    trace_kernel(first.kernel, ARGUMENTS)

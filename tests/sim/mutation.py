"""Programs as somebody might forge them: the documents of real ones, changed at random places."""

import copy
import io
import json
import zipfile

from accelopt.sim import serial

NASTY = [
    None, True, False, 0, 1, -1, 2, 127, 129, 1 << 31, 1 << 47, (1 << 48) + 1, -(1 << 47), 1 << 70,
    0.5, float("nan"), float("inf"), "", "x", "\x1b[31m", "float16", "int16", "sbuf", "psum", "hbm",
    "tensor", "vector", "matmul", "add", [], [0], [[[]]], {}, {"affine": 3}, {"mask": []},
    [1, [["axis", -1, 64], 1]],
]  # fmt: skip
FORMATS = ["float32", "tfloat32", "bfloat16", "float16", "int32", "int8", "uint16", "bool"]
WORDS = ["add", "sbuf", "psum", "vector", "scalar", "dma", "copy", "memset", "transpose", "program"]


def unpacked(data: bytes):
    """The document of a Program's bytes, and its other files."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(files.pop(serial.DOCUMENT)), files


def packed(document, files) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(serial.DOCUMENT, json.dumps(document))
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def changed(document, random):
    """A copy with a few changes: mostly values of the right kind, which reach the furthest."""
    document = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 2, 3))):
        paths = [path for path in _paths(document) if path]
        path = random.choice(paths)
        parent = _at(document, path[:-1])
        if random.random() < 0.15:
            _break(parent, path[-1], random, _at(document, random.choice(paths)))
        else:
            parent[path[-1]] = _other(parent[path[-1]], random)
    return document


def _paths(node, path=()):
    yield path
    if isinstance(node, (dict, list)):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _paths(child, (*path, key))


def _at(node, path):
    for key in path:
        node = node[key]
    return node


def _break(parent, key, random, another) -> None:
    how = random.randrange(4)
    if how == 0:
        del parent[key]
    elif how == 1 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(parent[key]))
    elif how == 2:
        parent[key] = copy.deepcopy(another)
    else:
        parent[key] = random.choice(NASTY)


def _other(value, random):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice((value + 1, value - 1, 2 * value, value // 2, -value, 0, value + 64))
    if isinstance(value, float):
        return random.choice((0.0, -value, 1e30, float("nan"), 3))
    if isinstance(value, str):
        return random.choice(FORMATS if value in FORMATS else WORDS)
    return value

"""What the text of a kernel gives away, and what it does not."""

import pytest

from accelopt.kernels.nki.referee import source


@pytest.mark.parametrize(
    "text",
    [
        "x = nl.bfloat16",
        "x = nl.float8_e4m3",
        "x = nl.tfloat32",
        "x = np.half",
        "x = getattr(nl, 'bf' + 'loat16')",
        "x = getattr(nl, f\"b{'float16'}\")",
        "x = nl.load(a, dtype='bfloat16')",
        "from neuronxcc.nki.language import bfloat16 as wide",
        "s = 'a # b'; x = nl.float16",
    ],
)
def test_narrow_formats_are_found(text):
    assert source.narrow_formats(text)


@pytest.mark.parametrize(
    "text",
    [
        "# bfloat16 would be faster",
        '"""Everything stays in float32, nothing in bfloat16."""\nx = 1',
        "half = d // 2",
        "def f():\n    'no float16 here'\n    return nl.float32",
    ],
)
def test_innocent_text_passes(text):
    assert source.narrow_formats(text) == []


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("x = nl.bfloat16", True),
        ("x = 1  # float16", False),
        ("s = 'a # b float16'", False),  # as published: everything after any # is stripped
        ('"""float16"""', True),
        ("x = nl.float8_e4m3", False),
    ],
)
def test_the_published_rule_is_literal(text, refused):
    assert source.published_precision_rule(text) is refused


@pytest.mark.parametrize(
    "text",
    [
        "import accelopt.sim.serial",
        "from accelopt.sim import timing",
        "m = __import__('acce' + 'lopt')",
        "m = importlib.import_module('accelopt.sim.rules')",
        "import gc",
        "import numpy as np\nnp.abs = abs",
        "import neuronxcc.nki.language as nl\nnl.load = nl.zeros",
        "from neuronxcc.nki import language\ndel language.load",
        "import numpy as np\nnp.linalg.norm, x = 0, 1",
        "setattr(nl, 'load', None)",
        "f = kernel.__globals__",
        "import sys\nsys.modules['numpy'] = None",
        "f = sys._getframe(1)",
    ],
)
def test_tampering_is_found(text):
    assert source.tampering(text)


@pytest.mark.parametrize(
    "text",
    [
        "import numpy as np\nx = np.float32(1.0)",
        "import neuronxcc.nki.language as nl\ntile = nl.load(x)\ntile[0] = 1\ntile.extra = 2",
        "class Sizes:\n    def __init__(self):\n        self.n = 1",
        "import numpy as np\nnumbers = {}\nnumbers[np.int32] = 1",
        "note = 'accelopt'",
    ],
)
def test_ordinary_code_is_not_tampering(text):
    assert source.tampering(text) == []


@pytest.mark.parametrize(
    "data",
    [
        b"# coding: utf-7\nx = 1",
        b"#!/bin/python\n# vim: set fileencoding=latin-1 :\nx = 1",
        b"# -*- coding: ascii -*-\nx = 1",
        b"#\r# coding: utf-7\rx = 1",  # Python ends lines there, too
    ],
)
def test_only_utf8_is_read(data):
    with pytest.raises(source.ForeignEncoding):
        source.decoded(data)


@pytest.mark.parametrize(
    "data",
    [
        b"x = 1",
        b"\xef\xbb\xbfx = 1",
        b"# -*- coding: utf-8 -*-\nx = 1",
        b"# coding: UTF8\nx = 1",
        b"x = 1\n\n# coding: utf-7",  # in the third line it says nothing to Python
    ],
)
def test_utf8_by_any_name_is_read(data):
    assert "x = 1" in source.decoded(data)

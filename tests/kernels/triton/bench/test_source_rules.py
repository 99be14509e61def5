"""What the first door refuses, and that honest kernels pass it."""

import pytest

from accelopt.kernels.triton.bench.source_rules import violations

HONEST = [
    "import math\nimport torch\nimport triton\nimport triton.language as tl\n",
    "import os\nfast = os.environ.get('FAST')\n",
    "import torch\nn = torch.cuda.get_device_properties(0).multi_processor_count\n",
    "import torch\ntorch.cuda.synchronize()\n",
    "import torch\nhas = getattr(torch, 'float8_e4m3fn', None)\n",
    "import torch\ndef run(x):\n    return getattr(x, 'is_cuda', False)\n",
    "import inspect\nsignature = inspect.signature(print)\n",
    "import torch\nwith torch.cuda.device(0):\n    pass\n",
    "from typing import Any\nfrom dataclasses import dataclass\n",
    "import numpy as np\nn = np.prod([2, 3])\n",
    "import os\nos.environ['TRITON_PRINT_AUTOTUNING'] = '1'\n",
    "import os\nhere = os.path.dirname(__file__)\n",
    "class Plan:\n    def __init__(self, n):\n        self.n = n\n",
    "def run(input, weight):\n    return input\n",
    "import sys, logging\nlog = logging.getLogger(__name__)\nnew = sys.version_info > (3, 10)\n",
]
DISHONEST = [
    "import gc\n",
    "from gc import get_objects\n",
    "import torch as t\nt.cuda.Stream()\n",
    "from torch.cuda import Stream as S\n",
    "import torch\ntorch.matmul = None\n",
    "import torch\ndel torch.cuda.Event\n",
    "import torch\nsetattr(torch.cuda, 'synchronize', None)\n",
    "import torch\nf = getattr(torch, 'mat' + 'mul')\n",
    "import torch\nf = getattr(torch.cuda, 'Stream')\n",
    "__import__('gc')\n",
    "x = (0).__class__.__bases__\n",
    "open('/tmp/x', 'w')\n",
    "exec('import gc')\n",
    "import sys\nsys.modules['torch']\n",
    "import os\nos._exit(0)\n",
    "import torch\nclass T(torch.Tensor):\n    pass\n",
    "from torch.utils.cpp_extension import load_inline\n",
    "import flashinfer\n",
    "import numpy as np\nnp.memmap('/tmp/x')\n",
    "import __main__\n",
    "import _thread\n",
    "import torch\ntorch.os.environ\n",
    "import triton\nm = triton.compiler.sys.modules\n",
    "import torch\nT = torch.Tensor\nT.normal_ = None\n",
    "def run(x):\n    type(x).zero_ = None\n",
    "def run(x):\n    setattr(type(x), 'zero_', None)\n",
    "def run(x):\n    x.__class__.zero_ = None\n",
    "from functools import reduce\nimport torch\ns = reduce(getattr, ['cuda'], torch)\n",
    "from operator import attrgetter\n",
    "import torch\nt = torch\nc = t.cuda\nc.Stream()\n",
    "import os\nos.path.os._exit(0)\n",
    "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\n",
    "import os\nos.environ.update(A='1')\n",
    "print.__self__\n",
    "import torch\ntorch.__dict__['cuda']\n",
    "import torch\ntorch.from_file('first_0.bin', shared=True, size=4)\n",
    "import logging\nlogging.FileHandler('x')\n",
    "import triton\ntriton.knobs.runtime.launch_enter_hook.calls.clear()\n",
]


@pytest.mark.parametrize("source", HONEST)
def test_honest_sources_pass(starter, source):
    assert violations(starter.solutions["plain_rmsnorm_h4096"].with_source(source, "s")) == []


@pytest.mark.parametrize("source", DISHONEST)
def test_dishonest_sources_do_not(starter, source):
    found = violations(starter.solutions["plain_rmsnorm_h4096"].with_source(source, "s"))
    assert found
    assert str(found[0]).startswith("main.py:")


def test_the_starter_set_passes(starter):
    assert not any(violations(solution) for solution in starter.solutions.values())

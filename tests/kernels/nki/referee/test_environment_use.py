"""What a kernel may not ask, and what its file may."""

import pytest

from accelopt.kernels.nki.referee.environment_use import asks_the_machine

KERNEL = """
@nki.jit
def kernel(x):
    {line}
    return x
"""


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.environ['A'] = os.environ['HOME']" + KERNEL.format(line="pass"),
        "import os\nHOME = os.environ['HOME']" + KERNEL.format(line="pass"),
        "import time as t" + KERNEL.format(line="now = t.time()"),
        "from random import choice" + KERNEL.format(line="width = choice([1, 2])"),
        "import numpy as np" + KERNEL.format(line="n = np.random.rand()"),
        "import numpy.random as draw" + KERNEL.format(line="n = draw.rand()"),
        "from numpy import random" + KERNEL.format(line="n = random.rand()"),
        KERNEL.format(line="import datetime; now = datetime.datetime.now()"),
        KERNEL.format(line="n = __import__('o' + 's').getpid()"),
        KERNEL.format(line="text = open('/etc/hostname').read()"),
        "import os\ndef width():\n    return os.getpid() % 2" + KERNEL.format(line="n = width()"),
    ],
)
def test_a_kernel_that_asks_the_machine_is_told(text):
    assert asks_the_machine(text)


@pytest.mark.parametrize(
    "text",
    [
        "import os, time, random" + KERNEL.format(line="pass"),
        "import os\nos.environ['NEURON_RT'] = '1'" + KERNEL.format(line="pass"),
        "from os import environ\nenviron.setdefault('A', '1')" + KERNEL.format(line="pass"),
        "import time\ndef benchmark():\n    return time.time()" + KERNEL.format(line="pass"),
        KERNEL.format(line="pass") + "\nif __name__ == '__main__':\n    import os\n    os.getcwd()",
        "import math\nimport numpy as np" + KERNEL.format(line="n = np.float32(math.sqrt(2))"),
        KERNEL.format(line="time = 3; os = time + 1; random = nl.rand((128, 1))"),
    ],
)
def test_what_the_kernel_does_not_reach_is_its_files_own_business(text):
    assert asks_the_machine(text) == []

"""A module that asks its surroundings once and for all, as compilers do."""

import os
import tempfile

READ = os.environ.get("TRITON_READ_ONCE", "nothing")
IMPORTED_IN = os.getpid()
FOLDER = tempfile.gettempdir()

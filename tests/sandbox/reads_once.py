"""A module that reads a variable once and for all, as compilers' settings are."""

import os

READ = os.environ.get("TRITON_READ_ONCE", "nothing")
IMPORTED_IN = os.getpid()

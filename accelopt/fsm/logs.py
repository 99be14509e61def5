"""The logs of managers and workers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accelopt.store import content_key


@contextmanager
def log_to(path: Path) -> Iterator[logging.Logger]:
    """A logger whose records go to a file, and nowhere else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    logger = logging.getLogger(f"accelopt.fsm.{content_key(str(path.resolve()))}")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        handler.close()

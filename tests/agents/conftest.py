import asyncio

import pytest


@pytest.fixture
def event_loop_run():
    return asyncio.run

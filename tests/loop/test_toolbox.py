"""The executor's function tools on real stage functions and toy kernels."""

import asyncio

import toy

from accelopt.kernels.language import LanguageOptions
from accelopt.nodes import Node
from accelopt.stages.plan import view_kernel
from accelopt.stages.toolbox import toolbox_for
from accelopt.stages.workshop import WorkshopOptions, open_workshop


def test_check_profile_and_look_up(tmp_path):
    async def use():
        language = LanguageOptions(tmp_path / "kernels", "toy:ToyLanguage")
        async with open_workshop(tmp_path, WorkshopOptions(language, workers=1)) as shop:
            case = toy.start(tmp_path / "start")
            source = shop.language.source(case)
            start = Node(case, source, await shop.evaluations.evaluate(case, source))
            view = await view_kernel(start, shop.language)
            toolbox = toolbox_for(shop.evaluations, 3)
            tools = {tool.name: tool.call for tool in toolbox.tools(view)}
            return toolbox.limit, [
                await tools["check_kernel"](toy.kernel(5)),
                await tools["check_kernel"](toy.kernel(5, "WRONG = 1")),
                await tools["profile_kernel"](toy.kernel(7)),
                await tools["profile_kernel"]("not python"),
                await tools["look_up"]("nl.load"),
            ]

    limit, (right, wrong, profile, broken, note) = asyncio.run(use())
    assert limit == 3
    assert right == "correct"
    assert wrong == "wrong_numbers: row 3 is off by 0.5"
    assert profile == "COST is 7."
    assert broken.startswith("not timed, compile_error")
    assert note == "nl.load is a number."
    assert toolbox_for(None, 0) is None

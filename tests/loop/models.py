"""Scripted planners and executors of toy kernels, answering from the prompt alone."""

import hashlib
import json
import re

from scripted_server import Scripted


def number(request, salt=""):
    """Digits that follow from the prompt: another draw, another number."""
    text = salt + str([m["content"] for m in request["messages"]]) + str(request.get("temperature"))
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


def role_of(request):
    system = request["messages"][0]["content"]
    for mark, role in (
        ("You list kernels for a search", "lister"),
        ("You keep the catalog", "relabeler"),
        ("experts who tune the knobs", "expert"),
        ("performance engineer", "planner"),
        ("You write NKI", "executor"),
        ("You repair NKI", "fixer"),
        ("notebook", "summarizer"),
        ("You find out what limits", "judge"),
        ("You keep the notes", "reflector"),
    ):
        if mark in system:
            return role
    raise AssertionError(system[:100])


def listed(user, draw):
    """Kernels with a smaller cost, one of them wrong; every ninth answer is prose."""
    if draw % 9 == 0:
        return "There is nothing to be done."
    cost = float(re.findall(r"COST = ([\d.]+)", user)[0])
    candidates = [
        {"think": "It is large.", "method": method, "detail": f"COST times {share}",
         "code": f"def kernel():\n    COST = {round(cost * share, 3)}\n    {extra}\n"}
        for method, share, extra in (
            ("Shave!", 0.9, "pass"), ("halving", 0.5 + draw % 40 / 100, "WRONG = 1"), ("the shave", 0.95, "pass"),
        )
    ]  # fmt: skip
    return json.dumps({"candidates": candidates})


def respond(request):
    """A quarter of the kernels is wrong, broken or absent; the fixer mends them."""
    user = request["messages"][-1]["content"]
    role, draw = role_of(request), number(request)
    if role == "planner":
        return Scripted(
            f"Make COST smaller by {draw % 50 + 1} percent (idea {draw}).", reasoning="It is large."
        )
    if role == "summarizer":
        return f"**Smaller costs {draw % 7}**\n\nA smaller COST is faster."
    if role == "relabeler":
        return '[{"index": 0, "existed": "no", "method": "shave"}]'
    if role == "expert":
        return json.dumps({"by": (1, 2, 3, 4, 6, 5)[draw % 6], "less": (0, 2, 5)[draw % 3]})
    if role == "lister":
        return listed(user, draw)
    cost = float(re.findall(r"COST = ([\d.]+)", user)[0])
    percent = int(re.findall(r"by (\d+) percent", user)[-1])
    cost = round(cost * (1 - percent / 100) + draw % 3, 3)
    extra = ("pass", "pass", "WRONG = 1", "BROKEN = 1")[draw % 4] if role == "executor" else "pass"
    if role == "executor" and draw % 13 == 0:
        return "I would rather not."
    return f"Sure.\n```python\ndef kernel():\n    COST = {cost}\n    {extra}\n```"

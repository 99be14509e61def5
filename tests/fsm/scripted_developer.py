"""A model that develops toy kernels from a script: who asks is told by the system prompt."""

import json

import planted_fsm

MARKS = {
    "judge": "You find out what limits",
    "reflector": "You keep the notes",
    "fixer": "You repair",
    "generator": "You write NKI",
}
JUDGED = [
    {"category": "memory", "resource": "dma", "share": 0.7, "root_cause": "It loads too much.",
     "fixes": ["gain_dma"]},
    {"category": "compute", "resource": "tensor", "share": 40, "root_cause": "It multiplies.",
     "fixes": ["gain_tensor"]},
]  # fmt: skip
REFLEXION = {"was_diagnosis_correct": True, "lessons": ["Load once."],
             "avoid_patterns": ["Do not load twice."], "try_patterns": []}  # fmt: skip


def role_of(request):
    system = request["messages"][0]["content"]
    return next(role for role, mark in MARKS.items() if mark in system)


def written(cost, extra="pass", method="gain_dma"):
    source = planted_fsm.kernel(cost, extra)
    return f"Method: {method}\nChange: Make COST {cost}.\n```python\n{source}```"


def script(generated, repaired=(), judged=JUDGED, reflexion=REFLEXION):
    """Answers in order: generations, then repairs; the last of each again and again."""
    answers = {"generator": list(generated), "fixer": list(repaired or generated)}

    def respond(request):
        role = role_of(request)
        if role == "judge":
            return judged if isinstance(judged, str) else f"```json\n{json.dumps(judged)}\n```"
        if role == "reflector":
            said = reflexion if isinstance(reflexion, str) else json.dumps(reflexion)
            return f"```json\n{said}\n```"
        left = answers[role]
        return left.pop(0) if len(left) > 1 else left[0]

    return respond

"""Words in a kernel's text that are meant for a language model instead of a reader."""

from __future__ import annotations

import io
import re
import tokenize
from typing import NamedTuple

# Phrases that address a language model. Narrow on purpose: a comment may well say "ignore the mask".
_TO_A_MODEL = re.compile(
    r"(ignore|disregard|forget)\s+(all\s+|any\s+)?(of\s+)?(the\s+|your\s+)?"
    r"(previous|prior|above|earlier|preceding)\s+(instruction|prompt|message|rule)s?"
    r"|<\|?\s*(im_start|im_end|system|endoftext)\s*\|?>"
    r"|(^|\W)(system|assistant)\s*:\s*you\s"
    r"|you\s+are\s+(now\s+)?(an?\s+)?(ai|language\s+model|llm|chatbot|assistant|planner|referee)\b"
    r"|\b(planner|executor|summarizer|model|assistant)\s*[:,]\s*(please\s+)?"
    r"(report|output|respond|reply|answer|say|write|mark|print|use|always|do\s+not|never)\b",
    re.IGNORECASE,
)


# From Python 3.12 on, the text of f-strings has a token of its own.
_SPOKEN = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}


class Remark(NamedTuple):
    """Something in the text, and its line."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


def words_to_a_model(source: str) -> list[Remark]:
    """Comments and strings that speak to a language model instead of a reader."""
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in _SPOKEN:
                match = _TO_A_MODEL.search(token.string)
                if match:
                    found.append(Remark(token.start[0], match.group().strip()))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        found += [Remark(0, m.group().strip()) for m in _TO_A_MODEL.finditer(source)]
    return found

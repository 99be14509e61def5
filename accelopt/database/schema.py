"""The tables. Every row has a key made of its content, so whoever writes it, and however often, it is
there once.

    problems ◀── kernels ◀── verdicts       one for each target and toolchain
                    ▲▲────── steps          parent, child, and the change between them
    problems ◀── experiences, findings
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

METADATA = MetaData()
KEY = String(32)


def _key(name: str = "key") -> Column[str]:
    return Column(name, KEY, primary_key=True)


PROBLEMS = Table(
    "problems",
    METADATA,
    _key(),
    Column("name", Text, nullable=False, index=True),
    Column("case_name", Text, nullable=False, index=True),
    Column("sizes", JSON, nullable=False),
    Column("reference", Text, nullable=False),
)
"""A problem at one size, with the text of what its kernels compute."""

KERNELS = Table(
    "kernels",
    METADATA,
    _key(),
    Column("problem", KEY, ForeignKey("problems.key"), nullable=False, index=True),
    Column("language", Text, nullable=False),
    Column("fingerprint", String(64), nullable=False, index=True),
    Column("source", Text, nullable=False),
)
"""Kernels of one fingerprint (equal but for layout and comments) are one row, as first seen."""

VERDICTS = Table(
    "verdicts",
    METADATA,
    _key(),
    Column("kernel", KEY, ForeignKey("kernels.key"), nullable=False, index=True),
    Column("target", Text, nullable=False),
    Column("toolchain", Text, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("status", Text, nullable=False),
    Column("latency_ms", Float),
    Column("evaluation", JSON, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Index("verdicts_by_speed", "target", "latency_ms"),
)

STEPS = Table(
    "steps",
    METADATA,
    _key(),
    Column("parent", KEY, ForeignKey("kernels.key"), nullable=False, index=True),
    Column("child", KEY, ForeignKey("kernels.key"), nullable=False, index=True),
    Column("target", Text, nullable=False),
    Column("method", Text, nullable=False, index=True),
    Column("bottleneck", Text, nullable=False),
    Column("change", JSON, nullable=False),
    Column("status", Text, nullable=False),
    Column("speedup", Float),
    Column("run", Text, nullable=False),
)
"""An attempt: what was done to a kernel that a resource limited, and what came of it."""

EXPERIENCES = Table(
    "experiences",
    METADATA,
    _key(),
    Column("problem", KEY, ForeignKey("problems.key"), nullable=False, index=True),
    Column("title", Text, nullable=False),
    Column("speedup", Float, nullable=False),
    Column("seen", Integer, nullable=False),
    Column("experience", JSON, nullable=False),
)

FINDINGS = Table(
    "findings",
    METADATA,
    _key(),
    Column("problem", KEY, ForeignKey("problems.key"), nullable=False, index=True),
    Column("resource", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("finding", JSON, nullable=False),
)
"""Attempts of workers that reflect, with what they made of them."""

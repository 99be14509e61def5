"""The first tables: problems, kernels, verdicts, steps, experiences, findings."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
KEY = sa.String(32)


def upgrade() -> None:
    """Make them. A version never changes, so it names its columns itself."""
    op.create_table(
        "problems",
        sa.Column("key", KEY, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, index=True),
        sa.Column("case_name", sa.Text, nullable=False, index=True),
        sa.Column("sizes", sa.JSON, nullable=False),
        sa.Column("reference", sa.Text, nullable=False),
    )
    op.create_table(
        "kernels",
        sa.Column("key", KEY, primary_key=True),
        sa.Column("problem", KEY, sa.ForeignKey("problems.key"), nullable=False, index=True),
        sa.Column("language", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False, index=True),
        sa.Column("source", sa.Text, nullable=False),
    )
    op.create_table(
        "verdicts",
        sa.Column("key", KEY, primary_key=True),
        sa.Column("kernel", KEY, sa.ForeignKey("kernels.key"), nullable=False, index=True),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("toolchain", sa.Text, nullable=False),
        sa.Column("simulated", sa.Boolean, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("latency_ms", sa.Float),
        sa.Column("evaluation", sa.JSON, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("verdicts_by_speed", "verdicts", ["target", "latency_ms"])
    op.create_table(
        "steps",
        sa.Column("key", KEY, primary_key=True),
        sa.Column("parent", KEY, sa.ForeignKey("kernels.key"), nullable=False, index=True),
        sa.Column("child", KEY, sa.ForeignKey("kernels.key"), nullable=False, index=True),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("method", sa.Text, nullable=False, index=True),
        sa.Column("bottleneck", sa.Text, nullable=False),
        sa.Column("change", sa.JSON, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("speedup", sa.Float),
        sa.Column("run", sa.Text, nullable=False),
    )
    op.create_table(
        "experiences",
        sa.Column("key", KEY, primary_key=True),
        sa.Column("problem", KEY, sa.ForeignKey("problems.key"), nullable=False, index=True),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("speedup", sa.Float, nullable=False),
        sa.Column("seen", sa.Integer, nullable=False),
        sa.Column("experience", sa.JSON, nullable=False),
    )
    op.create_table(
        "findings",
        sa.Column("key", KEY, primary_key=True),
        sa.Column("problem", KEY, sa.ForeignKey("problems.key"), nullable=False, index=True),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("finding", sa.JSON, nullable=False),
    )

"""Triton is called triton; it was called flashinfer."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Rename the language of kernels that are there."""
    kernels = sa.table("kernels", sa.column("language", sa.Text))
    renamed = kernels.update().where(kernels.c.language == "flashinfer")
    op.execute(renamed.values(language="triton"))

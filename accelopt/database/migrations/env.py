"""What Alembic runs: the open connection comes from `accelopt.database.connection`."""

from alembic import context

from accelopt.database.schema import METADATA

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=METADATA)
context.run_migrations()

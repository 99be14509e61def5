"""The schema's history: Alembic brings a database to the newest version when it is opened."""

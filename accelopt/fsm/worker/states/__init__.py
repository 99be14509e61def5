"""The fifteen states of a worker, one a file."""

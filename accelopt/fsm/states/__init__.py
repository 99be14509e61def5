"""The seven states of the manager, one a file."""

"""What is there: a kernel's source as loops and lines, and what its expressions mean."""

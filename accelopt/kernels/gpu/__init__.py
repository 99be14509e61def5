"""What the kernel languages of a GPU share: problems, the bench that judges, diagnosis."""

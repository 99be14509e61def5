"""Every operation of every iteration, in program order, and the pieces of tiles it touches."""

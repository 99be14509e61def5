"""What the profiler counts of a timeline, and why it took that long."""

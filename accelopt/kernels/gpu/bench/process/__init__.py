"""What runs in a child process: the candidate, the referee, the clock, and what they say."""

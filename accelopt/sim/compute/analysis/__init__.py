"""What a Program says before it runs: which accesses meet, what stays, what may run at once."""

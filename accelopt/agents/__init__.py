"""Who plans, writes, repairs and learns: roles that ask models, and the offline rules."""

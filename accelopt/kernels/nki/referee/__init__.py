"""Is this kernel right? Source rules, trials on public and hidden inputs, comparison, verdict."""

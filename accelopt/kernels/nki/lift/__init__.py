"""From a traced kernel to what it computes, and from there to a faster kernel."""

"""From a traced kernel to what it computes."""

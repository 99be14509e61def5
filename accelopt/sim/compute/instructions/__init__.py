"""What every instruction computes."""

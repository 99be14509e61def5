"""Stage functions: what the in-process loop and the scripts both call, one module a stage."""

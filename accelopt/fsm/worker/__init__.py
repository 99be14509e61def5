"""The inner machine: one optimisation step on one kernel."""

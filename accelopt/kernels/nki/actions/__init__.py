"""What can be done to an NKI kernel of a run: schedules, knobs, primitives that a model answers with."""

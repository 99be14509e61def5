"""Profiles and verdicts of kernels of which nothing but the time matters."""

from accelopt.evaluation import Evaluation, Profile, Status


def timed(ms, target="trn1", simulated=True, **metrics):
    """A profile of so many milliseconds in each run."""
    return Profile(
        latency=ms, min_ms=ms, max_ms=ms, rel_diffs=0.0, metrics=metrics, target=target,
        simulated=simulated,
    )  # fmt: skip


def correct(ms, *where, **metrics):
    """The verdict on a right kernel of so many milliseconds."""
    return Evaluation(status=Status.CORRECT, profile=timed(ms, *where, **metrics))

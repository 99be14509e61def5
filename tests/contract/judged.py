"""CUDA kernels whose verdicts are made up, for there is no GPU: the longer the text, the faster."""

from accelopt.evaluation import Confirmation, Evaluation, Profile, Status
from accelopt.kernels.cuda.language import Cuda


class Judged(Cuda):
    async def evaluate(self, case, source):
        latency = 1.0 / len(source)
        profile = Profile(
            latency=latency, min_ms=latency, max_ms=latency, rel_diffs=0.0, target="NVIDIA H200",
            simulated=False,
        )  # fmt: skip
        return Evaluation(status=Status.CORRECT, profile=profile, seconds=1.0)

    async def confirm(self, case, winner, parent):
        return Confirmation(confirmed=True)

"""CUDA kernels whose verdicts are made up, for there is no GPU: the longer the text, the faster."""

from timed_kernels import correct

from accelopt.evaluation import Confirmation
from accelopt.kernels.cuda.language import Cuda


class Judged(Cuda):
    async def evaluate(self, case, source):
        verdict = correct(1.0 / len(source), "NVIDIA H200", False)
        return verdict.model_copy(update={"seconds": 1.0})

    async def confirm(self, case, winner, parent):
        return Confirmation(confirmed=True)

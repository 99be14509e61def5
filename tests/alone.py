"""One evaluation by one worker, waited for."""

from accelopt.evaluation import Evaluation, EvaluationRequest
from accelopt.kernels.nki.requests import call_for
from accelopt.sandbox.workers import Call, as_evaluation, perform


def performed(call: Call) -> Evaluation:
    return as_evaluation(perform(call, Evaluation))


def evaluated(request: EvaluationRequest, cache: str) -> Evaluation:
    return performed(call_for(request, cache))

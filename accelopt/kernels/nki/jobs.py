"""What a worker's child process calls for NKI kernels: plain data in, a row out."""

from __future__ import annotations

from collections.abc import Mapping

from accelopt.evaluation import Confirmation, Evaluation, EvaluationRequest
from accelopt.kernels.nki.judging import confirm, evaluate, trial_store


def evaluate_job(payload: Mapping[str, object]) -> Evaluation:
    """`evaluate` of a request, with a cache folder."""
    request = _request_of(payload, "request")
    return evaluate(request, trials=trial_store(str(payload["cache"])))


def confirm_job(payload: Mapping[str, object]) -> Confirmation:
    """`confirm` of two requests."""
    winner, parent = (_request_of(payload, key) for key in ("winner", "parent"))
    return confirm(winner, parent, trials=trial_store(str(payload["cache"])))


def _request_of(payload: Mapping[str, object], key: str) -> EvaluationRequest:
    request = EvaluationRequest.model_validate(payload[key])
    if "core" in payload:  # the worker's, where a machine has several
        request = request.model_copy(update={"core": payload["core"]})
    return request

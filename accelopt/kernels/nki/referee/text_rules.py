"""The rules that need nothing but a kernel's text, in order; the first that it breaks ends the case."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from accelopt.evaluation import Status
from accelopt.kernels.nki.devices import KernelFailure
from accelopt.kernels.nki.devices.kernel_folder import kernel_folder
from accelopt.kernels.nki.referee import source
from accelopt.kernels.nki.referee.environment_use import asks_the_machine, names_in
from accelopt.kernels.nki.referee.precision import Precision
from accelopt.kernels.prompt_injection_check import words_to_a_model


def check_text(kernel: Path, precision: Precision | None, *, published: bool) -> None:
    """Raises KernelFailure for a file whose text, or that of a file of its folder that it imports,
    breaks a rule; `published` leaves all but the published ones out, and words to a model. The text decides on formats only where the device does
    not see those of the compiled kernel; `precision` is None where it does."""
    try:
        data = kernel.read_bytes()
    except OSError as error:
        raise KernelFailure(Status.MISSING, f"the kernel cannot be read: {error}") from error
    try:
        text = source.decoded(data)
        refusal = _refusal(text, precision, published=published)
        folder = kernel_folder(kernel, text).modules.values()
        texts = [text, *(module.text for module in folder)]
        for module in () if refusal else folder:
            used = set[str]().union(*(names_in(t) for t in texts if t is not module.text))
            refusal = _refusal(module.text, precision, published=published, used=used)
            if refusal:
                refusal = f"in {module.place}, which the kernel imports: {refusal}"
                break
    except source.ForeignEncoding as error:
        raise KernelFailure(Status.REFUSED, str(error)) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else error
        raise KernelFailure(Status.COMPILE_ERROR, f"the kernel is not Python: {said}") from error
    if refusal:
        raise KernelFailure(Status.REFUSED, refusal)


def remedy(precision: Precision, formats: Iterable[str]) -> str:
    """What a refusal for its precision adds: what results may be rounded to, and how more is allowed."""
    more = ",".join(sorted({*precision.named, *formats}))
    allowed = {n if precision.rounds_to(n) else "bfloat16" for n in precision.formats}
    return (
        f"; allowed is {', '.join(sorted(allowed)) or 'float32'}: compute in that, or allow more with --precision {more} or "
        f'precision = "{more}" in the reference'
    )


def _refusal(
    text: str, precision: Precision | None, *, published: bool, used: Collection[str] | None = None
) -> str:
    """Why the text is refused; empty when it is not. Raises SyntaxError and its like where it is not
    Python, whatever else it is."""
    tampering, asked = source.tampering(text), asks_the_machine(text, used)
    if words := words_to_a_model(text):
        return f"the text speaks to a language model: {'; '.join(map(str, words))}"
    if tampering and not published:
        return f"the kernel reaches into its process: {'; '.join(map(str, tampering))}"
    if asked and not published:
        return (
            "a kernel is a function of its arguments' shapes, and this one asks the machine: "
            + "; ".join(map(str, asked))
        )
    return "" if precision is None else _narrow(text, precision, published=published)


def _narrow(text: str, precision: Precision, *, published: bool) -> str:
    """Why the text is refused for a narrow format that it names; empty when it is not."""
    if not precision.formats and source.published_precision_rule(text):
        return source.PUBLISHED_PRECISION_MESSAGE
    found = [(f, f.text.strip('"')) for f in source.narrow_formats(text)]
    narrow = {str(finding): name for finding, name in found if not precision.allows(name)}
    if not narrow or published:
        return ""
    said = "; ".join(narrow)
    return f"low precision is used in the program: {said}{remedy(precision, narrow.values())}"

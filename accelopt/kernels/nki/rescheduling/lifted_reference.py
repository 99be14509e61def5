"""What a NumPy reference computes, as what a kernel is lifted to: `accelopt write` has nothing else, and the search
for a faster kernel begins there too."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accelopt.algorithm import ir
from accelopt.algorithm.reference_trace import trace_reference
from accelopt.algorithm.traced_array import NotTraced
from accelopt.caches import VerdictCache, package_key
from accelopt.errors import ConfigError
from accelopt.evaluation import Row
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.arguments import ParameterFacts, argument_of, shaped_outputs
from accelopt.kernels.nki.devices.protocol import KernelFailure, TensorArgument
from accelopt.kernels.nki.devices.simulated import WARM, SimulatedDevice
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.nests.lowering import FAULTS, Interface
from accelopt.kernels.nki.nests.nest import NotNested, default_nest
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.rescheduling.lifted_kernel import (
    Lifted,
    author_of,
    function_of,
    signature,
)
from accelopt.kernels.nki.rescheduling.scalar_arguments import (
    AGAIN,
    FIRST,
    SIGNS,
    PlainArguments,
    asked,
    assertion_message,
    pinned,
    plain_arguments,
    stand_in,
)
from accelopt.sandbox.workers import Call, Fault, perform
from accelopt.sim.dialects.dialect import Dialect, dialect_of_source
from accelopt.sim.dtypes import name_of
from accelopt.sim.program import Program, Tensor
from accelopt.sim.timing.compiler.cores import by_core
from accelopt.store import content_key, read_text
from accelopt.time_limits import LIFT_SECONDS

LARGEST = 3e38
"""In place of infinity: exp of its negative is 0, and it is a number of fp32."""
TRACING_BYTES = 12 << 30
TRACING = "accelopt.kernels.nki.rescheduling.lifted_reference:tracing_job"


class TracedReference(Row):
    """What a reference computes for a kernel: the `algorithms` as JSON with each of the `numbers` in the place of plain
    arguments, and what is asked of the others; `refusal` says why there is none."""

    algorithms: tuple[str, ...] = ()
    numbers: tuple[dict[str, float], ...] = ()
    asserts: tuple[str, ...] = ()
    refusal: str = ""


def reference_of_kernel(
    source: str, path: Path, given: Mapping[str, ParameterFacts], reference: Path, target: str,
    author: str = "", shelf: VerdictCache | None = None, seconds: float = LIFT_SECONDS,
) -> Lifted:  # fmt: skip
    """What `reference` computes in the place of the kernel `source`, which lies at `path`: with its name, signature,
    and formats and shapes of results; `given` and `author` are as `lifted_kernel` has them. What tracing it came to is
    kept on the `shelf`. Raises NotLifted where there is no such Algorithm, or none within so many `seconds`, and
    KernelFailure for a kernel that breaks a rule."""
    plain = plain_arguments(source, given)
    arguments = tuple(what.argument for what in plain.facts.values())
    program = SimulatedDevice(target).compile(str(path), arguments).program
    function, dialect = function_of(source, program), dialect_of_source(source)
    names = dict(
        zip(program.arguments, (n for n, f in plain.facts.items() if f.shape), strict=True)
    )
    results = _results(program, names)
    if program.ranks:
        raise NotLifted("the kernel passes elements between ranks")
    if {names[tensor] for tensor in program.changed_arguments()} - {one.updates for one in results}:
        raise NotLifted("the kernel changes arguments that it does not return")
    payload = {"reference": str(reference.resolve()), "parameters": [*given], "dialect": dialect,
               "target": target, "shapes": [one.given for one in results]}  # fmt: skip
    key = content_key(read_text(reference), repr(payload), str(seconds), package_key())
    found = shelf.find_row("references", key, TracedReference) if shelf else None
    if found is None:
        call = Call(TRACING, payload, seconds, TRACING_BYTES, warm=WARM)
        made = perform(call, TracedReference, threads=1)
        if isinstance(made, Fault):  # which the next run may not meet
            raise NotLifted(made.message)
        found = made
        if shelf:
            shelf.put_row("references", key, TracedReference, found)
    if found.refusal:
        raise NotLifted(found.refusal)
    left = PlainArguments({n: f for n, f in plain.facts.items() if n not in given}, *plain[1:])
    interface = Interface(
        signature(function), {}, program.returns_sequence, function.name, (*found.asserts, *pinned(left)),
        len(by_core(program, TARGETS[target])),
    )  # fmt: skip
    first, *twins = [
        Lifted(
            _with_results(ir.from_json(text), results),
            interface._replace(numbers={v: n for n, v in numbers.items()}),
            dialect=dialect,
            arguments=arguments,
            author=author_of(source, author, function.name, plain),
            from_reference=True,
        )
        for text, numbers in zip(found.algorithms, found.numbers, strict=True)
    ]
    return first._replace(twins=tuple(twins))


class _Result(NamedTuple):
    """What a kernel returns: its format and shape, and the input that it is, changed in place."""

    dtype: str
    given: tuple[int, ...]
    updates: str


def _results(program: Program, names: Mapping[Tensor, str]) -> list[_Result]:
    """What a Program returns, some arguments having names."""
    return [
        _Result(name_of(tensor.dtype), shape, names.get(tensor, ""))
        for n, tensor in enumerate(program.results)
        if tensor is not None and (shape := program.shape_of_result(n)) is not None
    ]


def problem_algorithm(reference: Path, program: Program) -> ir.Algorithm:
    """What a reference computes, with the formats and shapes in which a Program returns it. Runs the reference. Raises
    NotLifted."""
    results, ranked = _results(program, {}), program.dialect == "nki"
    try:
        problem = Reference(reference)
        source, inputs = read_text(reference), problem.inputs(0)
        found = trace_reference(reference, source, inputs, ranked_places=ranked).algorithm
        _refuse_moved_results(problem, found, [one.given for one in results])
    except (ConfigError, NotTraced, KernelFailure, *FAULTS) as refusal:
        raise NotLifted(str(refusal)) from None
    return _with_results(found, results)


def _with_results(algorithm: ir.Algorithm, results: Sequence[_Result]) -> ir.Algorithm:
    """An Algorithm whose results have a kernel's formats and shapes, and change those of its inputs that it does."""
    own = {a.name: one for a, one in zip(algorithm.returned, results, strict=True)}
    outputs = (
        replace(a, dtype=one.dtype, given=one.given, updates=a.updates or one.updates)
        if (one := own.get(a.name))
        else a
        for a in algorithm.outputs
    )
    return replace(algorithm, outputs=tuple(outputs))


def tracing_job(payload: Mapping[str, Any]) -> TracedReference:
    """The work of a child process, which runs the reference."""
    try:
        problem = Reference(Path(payload["reference"]))
        inputs = problem.inputs(0)
        given = problem.kernel_inputs(inputs)
        lifted = lifted_reference(
            problem.path, inputs, given, payload["dialect"], payload["target"], "kernel",
            payload["parameters"],
        )  # fmt: skip
        _refuse_moved_results(problem, lifted.algorithm, payload["shapes"])
    except (ConfigError, KernelFailure, *FAULTS) as refusal:
        return TracedReference(refusal=str(refusal))
    every = (lifted, *lifted.twins)
    return TracedReference(
        algorithms=tuple(one.algorithm.to_json() for one in every),
        numbers=tuple({n: v for v, n in one.interface.numbers.items()} for one in every),
        asserts=lifted.interface.asserts,
    )


def _refuse_moved_results(
    problem: Reference, algorithm: ir.Algorithm, shapes: Sequence[Sequence[int]]
) -> None:
    """Raises ConfigError where `transform_nki_outputs` does more than reshape what a kernel returns, KernelFailure where it
    fails."""
    own = [array.given for array in algorithm.returned]
    if [*map(math.prod, own)] != [*map(math.prod, shapes)]:
        raise ConfigError(f"it returns {own} where the kernel returns {shapes}")
    returned = tuple(np.arange(math.prod(shape)).reshape(shape) for shape in shapes)
    shaped = shaped_outputs(problem, returned, tuple(map(np.zeros, own)))
    if any(np.any(np.diff(np.ravel(array)) != 1) for array in shaped):
        raise ConfigError("transform_nki_outputs does more than reshape results")


def lifted_reference(
    reference: Path, inputs: Sequence[Any], given: Sequence[Any], dialect: Dialect, target: str,
    name: str, parameters: Sequence[str] = (),
) -> Lifted:  # fmt: skip
    """What a reference computes, called with `given`, the inputs of the kernel `name`, whose `parameters` may have
    names of their own. Plain numbers stay parameters where a kernel takes any; others are asked for by an assert. Raises ConfigError."""
    source = read_text(reference)
    arguments = tuple(argument_of(value) for value in given)
    plain = [v for v in inputs if not isinstance(v, np.ndarray)]

    def lifted(free: Sequence[int], first: int, sign: int = 1) -> Lifted:
        stands = {n: sign * stand_in(plain[n], n, first) for n in free}
        given = with_numbers(inputs, stands)
        ranked = dialect == "nki"  # of equal elements neuronxcc finds one position
        found = trace_reference(
            reference, source, given, ranked_places=ranked, parameters=parameters
        )
        if len(arguments) != len(found.parameters):
            raise ConfigError(
                f"{reference}: transform_to_nki_inputs depends on numbers of its inputs"
            )
        pairs = zip(found.parameters, arguments, strict=True)
        own = [(n, v) for n, v in pairs if not isinstance(v, TensorArgument)]
        asserts = tuple(assertion_message(*pair) for n, pair in enumerate(own) if n not in stands)
        names = {stand: own[n][0] for n, stand in stands.items()}
        interface = Interface(", ".join(found.parameters), names, False, name, asserts)
        return Lifted(finite(found.algorithm), interface, (), dialect, arguments)

    def takes_any(n: int, sign: int = 1) -> bool:
        try:
            one, other = lifted([n], FIRST), lifted([n], AGAIN, sign)
            one._replace(twins=(other,)).lowered(default_nest(one.algorithm, target), target)
        except (NotTraced, NotNested):
            return False
        return True

    try:
        free = [n for n, v in enumerate(plain) if type(v) is float and takes_any(n)]
        found = lifted(free, FIRST)
        names = zip(free, found.interface.numbers.values(), strict=True)
        signs = (asked(name, *SIGNS[plain[n] >= 0]) for n, name in names if not takes_any(n, -1))
        interface = found.interface._replace(asserts=(*found.interface.asserts, *signs))
        twins = (lifted(free, AGAIN),) if free else ()
        return found._replace(interface=interface, twins=twins)
    except NotTraced as refusal:
        raise ConfigError(str(refusal)) from None


def with_numbers(inputs: Sequence[Any], numbers: Mapping[int, float]) -> list[Any]:
    """The inputs with others for some of the plain values, which are counted apart from arrays."""
    count = itertools.count()
    return [v if isinstance(v, np.ndarray) else numbers.get(next(count), v) for v in inputs]


def finite(algorithm: ir.Algorithm) -> ir.Algorithm:
    """The Algorithm with the largest numbers that are safe to compute with for infinities: no
    instruction takes those."""

    def number(part: ir.Expression) -> ir.Expression | None:
        if isinstance(part, ir.Constant) and math.isinf(part.value):
            return ir.Constant(math.copysign(LARGEST, part.value))
        return None

    made = tuple(ir.with_changes(definition, number) for definition in algorithm.definitions)
    return replace(algorithm, definitions=made)

"""What a kernel computes and how it is called: all that a kernel by schedule in its place needs."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from accelopt.algorithm.equality import same_function
from accelopt.algorithm.ir import Algorithm, expressions_of, written_size
from accelopt.algorithm.notation import definition_text
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.arguments import ParameterFacts
from accelopt.kernels.nki.devices.protocol import KernelArgument, KernelFailure
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.kernel_function import (
    KernelFunction,
    NoKernel,
    kernel_in,
    traced_function,
)
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift, lift_with_lines
from accelopt.kernels.nki.nests.lowering import Interface, Lowered, lower_nest
from accelopt.kernels.nki.nests.nest import Nest, NotNested, default_nest
from accelopt.kernels.nki.rescheduling.authorship.author import Author
from accelopt.kernels.nki.rescheduling.scalar_arguments import (
    AGAIN,
    FIRST,
    SIGNS,
    PlainArguments,
    asked,
    pinned,
    plain_arguments,
    stand_in,
)
from accelopt.sandbox import Start, scratch_folder
from accelopt.sim.dialects.dialect import Dialect, dialect_of_source
from accelopt.sim.errors import SourceLine
from accelopt.sim.program import Program
from accelopt.sim.timing.compiler.cores import by_core

MOST_PARTS = 50_000
"""Of a definition's expressions: arranging them takes minutes beyond that. Kernels of others have 1,300 at most."""


class Lifted(NamedTuple):
    """What a kernel computes, and how it is called. `twins` are the same with other numbers for its
    plain arguments, where it has some: a kernel by schedule must not depend on which were drawn. `from_reference` says
    that the Algorithm is the reference's."""

    algorithm: Algorithm
    interface: Interface
    twins: tuple[Lifted, ...] = ()
    dialect: Dialect = "neuronxcc"
    arguments: tuple[KernelArgument, ...] = ()  # without data, with what stands for plain ones
    author: Author | None = None
    lines: Mapping[str, SourceLine] = {}
    from_reference: bool = False

    def lowered(self, nest: Nest, target: str = "trn1") -> Lowered:
        """The kernel by a nest, in the dialect of the kernel that was lifted. Raises NotNested."""

        def written(lifted: Lifted) -> Lowered:
            own = self.interface
            interface = lifted.interface._replace(asserts=own.asserts, rerolled=own.rerolled)
            return lower_nest(lifted.algorithm, nest, interface, target, self.dialect)

        kernel = written(self)
        for twin in self.twins:
            if written(twin).source != kernel.source:
                raise NotNested("a plain argument enters the computation in more than one way")
        return kernel

    def on_cores(self, lnc: int) -> Lifted:
        """The same for schedules that may use so many cores of a logical one."""
        cores = max(self.interface.cores, lnc)
        return self._replace(interface=self.interface._replace(cores=cores))

    def rerolled(self) -> Lifted:
        """The same with kernels in which all bodies are rerolled that can be."""
        return self._replace(interface=self.interface._replace(rerolled=True))

    def located(self, reason: str) -> str:
        """A reason that begins with the name of a definition, with the source line of that before it and
        what it is behind it, where they are known."""
        name = re.match(r"\w*", reason)[0]  # type: ignore[index]
        definitions = {d.out: d for d in self.algorithm.definitions}
        own = name if name in definitions else re.sub(r"_(parts|\d+)$", "", name)
        if own not in definitions:
            return reason
        said = f"{reason.rstrip('.')} ({definition_text(definitions[own])})"
        line = self.lines.get(own)
        return said if line is None else f"{line}: {said}"

    def authored(self, source: str) -> str:
        """A lowered kernel of this in its author's module, with the author's names and comments."""
        return self.author.with_kernel(source) if self.author else source


def lifted_kernel(
    source: str,
    path: Path,
    given: Mapping[str, ParameterFacts],
    target: str = "trn1",
    author: str = "",
    start: Start | None = None,
) -> Lifted:
    """What the kernel `source`, which lies at `path`, computes. `given` has shape and format of what
    is passed for each parameter, and plain values. `author` is the module that lowered kernels are
    written into, where that is not `source`; `start` begins the processes that trace. Raises NotLifted,
    and KernelFailure for a kernel that breaks a rule."""
    called = _Called(source, path, given, SimulatedDevice(target, start))
    free = called.free()
    lifted = called.near(free)
    if not called.takes_any(lifted, free):
        free = called.free(all_asked=True)
        lifted = called.near(free)
    twins, asserts = called.twins(lifted, free)
    return lifted._replace(
        interface=lifted.interface._replace(asserts=asserts),
        twins=twins,
        author=author_of(source, author, lifted.interface.name, called.plain),
    )


def of_a_size(lifted: Lifted) -> Lifted:
    """What can be arranged in a minute or so. Raises NotLifted."""
    if said := too_large(lifted.algorithm):
        raise NotLifted(said)
    return lifted


def too_large(algorithm: Algorithm) -> str:
    """Why an Algorithm is not scheduled, if it has an expression that is too large; empty for others."""
    for definition in algorithm.definitions:
        if (parts := sum(map(written_size, expressions_of(definition)))) > MOST_PARTS:
            return f"{definition.out} has {parts:,} operands and functions, and at most {MOST_PARTS:,} are scheduled"
    return ""


def author_of(source: str, author: str, name: str, plain: PlainArguments) -> Author:
    """Who wrote the kernel `name`: the module `author`, if it has it, or `source`."""
    shapes = {parameter: what.shape for parameter, what in plain.facts.items()}
    return Author(author if _has(author, name) else source, name, shapes)


def function_of(source: str, program: Program) -> KernelFunction:
    """The function that a trace says is the kernel. Raises NotLifted where it is in another file:
    a kernel by schedule has no place there."""
    try:
        return traced_function(source, program.source.line)
    except NoKernel as error:
        raise NotLifted(str(error)) from None


def _with_updates(algorithm: Algorithm, program: Program) -> Algorithm:
    """What a program computes, with the inputs that its results are, changed in place."""
    names = dict(zip(program.arguments, (array.name for array in algorithm.inputs), strict=True))
    changed = {tensor: names[tensor] for tensor in program.changed_arguments()}
    results = [tensor for tensor in program.results if tensor is not None]
    own = {
        array.name: changed.get(tensor, "")
        for array, tensor in zip(algorithm.returned, results, strict=True)
    }
    outputs = (replace(a, updates=a.updates or own.get(a.name, "")) for a in algorithm.outputs)
    return replace(algorithm, outputs=tuple(outputs))


class _Called:
    """A kernel that is lifted with several values for its plain arguments."""

    def __init__(
        self, source: str, path: Path, given: Mapping[str, ParameterFacts], device: SimulatedDevice
    ) -> None:
        self.source = source
        self.path = path
        self.device = device
        self.plain = plain_arguments(source, given)
        self._lifted: dict[str, Lifted] = {}

    # Lifting with values.

    def near(
        self, free: tuple[str, ...], first: int = FIRST, negative: tuple[str, ...] = ()
    ) -> Lifted:
        """The kernel with stands-in for its `free` arguments, of the other sign for some."""
        places = {name: number for number, name in enumerate(self.plain.facts)}
        numbers = {n: stand_in(self.plain.numbers[n], places[n], first) for n in free}
        return self.lifted({n: -v if n in negative else v for n, v in numbers.items()})

    def lifted(self, numbers: Mapping[str, float]) -> Lifted:
        """The kernel with these numbers for some plain arguments. Raises NotLifted, KernelFailure."""
        key = repr(numbers)
        if key not in self._lifted:
            arguments = tuple(
                numbers.get(name, what.argument) for name, what in self.plain.facts.items()
            )
            program = self.device.compile(str(self.path), arguments).program
            names = {value: name for name, value in numbers.items()}
            function = function_of(self.source, program)
            interface = Interface(
                signature(function), names, program.returns_sequence, function.name,
                cores=len(by_core(program, TARGETS[self.device.target])),
            )  # fmt: skip
            dialect = dialect_of_source(self.source)
            algorithm, lines, _ = lift_with_lines(program)
            self._lifted[key] = Lifted(
                _with_updates(algorithm, program), interface, (), dialect, arguments, lines=lines
            )
        return self._lifted[key]

    # Which values are no others than those drawn.

    def free(self, all_asked: bool = False) -> tuple[str, ...]:
        """The plain arguments for which any number near the drawn one may stand: those that the kernel,
        lifted with such a number, takes as a number and nothing else. Without branches a number that is not
        whole is likely one, and lifted for it alone where it is `all_asked`."""
        found: list[str] = []
        for name, value in self.plain.numbers.items():
            likely = not (all_asked or isinstance(value, int) or self.plain.branches)
            if likely or self._is_a_number(name):
                found.append(name)
        return tuple(found)

    def takes_any(self, lifted: Lifted, free: tuple[str, ...]) -> bool:
        """Whether the kernel by schedule is the same text for other numbers near those drawn."""
        return not free or any(
            self._holds(lifted, free, negative, self._same_text) for negative in (free, ())
        )

    def _is_a_number(self, name: str) -> bool:
        try:
            return self._same(self.near((name,)), self.lifted({}))
        except (KernelFailure, NotLifted):
            return False

    def _same(self, lifted: Lifted, other: Lifted) -> bool:
        """Whether a kernel by schedule of one, with the other's arguments, is a kernel of the other."""
        text = self._text(lifted)
        # Where the default nest has no kernel no other has, and none will be wrong.
        return not text or text == self._text(other) or self._means(text, other)

    def _text(self, lifted: Lifted) -> str:
        """The kernel by the default nest; empty where there is none."""
        target = self.device.target
        nest = default_nest(lifted.algorithm, target)
        try:
            return lower_nest(
                lifted.algorithm, nest, lifted.interface, target, lifted.dialect
            ).source
        except NotNested:
            return ""

    def _means(self, source: str, other: Lifted) -> bool:
        """Whether a lowered kernel computes the same with the other's arguments."""
        with scratch_folder() as folder:
            path = folder / "kernel.py"
            path.write_text(source, encoding="utf-8")
            try:
                program = self.device.compile(str(path), other.arguments).program
                found = _with_updates(lift(program), program)
            except (KernelFailure, NotLifted):
                return False
        return same_function(found, other.algorithm)

    # What a lowered kernel asks of its arguments.

    def twins(
        self, lifted: Lifted, free: tuple[str, ...]
    ) -> tuple[tuple[Lifted, ...], tuple[str, ...]]:
        """The kernel with other numbers, and asserts on those for which another kernel by schedule
        would be written. Where signs do not matter, the twin has the other ones."""
        asserts = list(pinned(self.plain, free))
        if not free:
            return (), tuple(asserts)
        alike = self._holds(lifted, free, free, self._same_text)
        signed = () if alike else self._signed(lifted, free)
        asserts += [asked(n, *SIGNS[self.plain.numbers[n] >= 0]) for n in signed]
        for name in free:
            for number in (0, 1) if self.plain.branches else ():
                positive = name in signed and number == 0
                if not positive and not self._takes(lifted, name, float(number)):
                    asserts.append(asked(name, f"!= {number}", f"not be {number}"))
        return (self.near(free, AGAIN, free if alike else ()),), tuple(asserts)

    def _signed(self, lifted: Lifted, free: tuple[str, ...]) -> tuple[str, ...]:
        """The arguments whose sign matters, or of which that is not known."""
        signed = tuple(n for n in free if not self._holds(lifted, free, (n,), self._same))
        together = signed or len(free) == 1 or self._holds(lifted, free, free, self._same)
        return signed if together else free

    def _holds(
        self,
        lifted: Lifted,
        free: tuple[str, ...],
        negative: tuple[str, ...],
        same: Callable[[Lifted, Lifted], bool],
    ) -> bool:
        """Whether the kernel with other signs is the `same`; not where it does not take them."""
        try:
            return same(lifted, self.near(free, AGAIN, negative))
        except (KernelFailure, NotLifted):
            return False

    def _same_text(self, lifted: Lifted, other: Lifted) -> bool:
        """Whether the same kernel by schedule is written for both."""
        text = self._text(lifted)
        return not text or text == self._text(other)

    def _takes(self, lifted: Lifted, name: str, number: float) -> bool:
        """Whether a kernel by schedule is right where an argument is a special number, or the kernel
        itself does not take it."""
        numbers = {names: value for value, names in lifted.interface.numbers.items()}
        try:
            other = self.lifted({**numbers, name: number})
        except (KernelFailure, NotLifted):
            return True
        return self._same(lifted, other)


def _has(source: str, name: str) -> bool:
    """Whether the kernel of a text is the function of this name."""
    kernel = kernel_in(source)
    return kernel is not None and kernel.name == name


def signature(function: KernelFunction) -> str:
    """The parameters of a kernel, with their defaults and without annotations."""
    parameters = copy.deepcopy(function.definition.args)
    for parameter in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
        parameter.annotation = None
    return ast.unparse(parameters)

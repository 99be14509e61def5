"""Inputs with the outputs they must give: made once, kept on disk, mapped into every evaluation.

A trial's folder is made beside its place and renamed, under a lock, so concurrent workers make it
once and never see a part. The store keeps to a size: the trials used longest ago go first.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from accelopt.caches import cache_limit, locked, secret_of
from accelopt.errors import ConfigError
from accelopt.kernels.nki.referee import long_sum_inputs, stress
from accelopt.kernels.nki.referee.norms import Projection, l2, l2_difference, row_norms
from accelopt.kernels.nki.referee.precision import Precision, in_single, is_float
from accelopt.kernels.nki.referee.reference import Reference, frozen
from accelopt.kernels.nki.referee.rows import Part, Rows, separate, some_of, still_separate
from accelopt.kernels.nki.referee.tolerance import (
    BETWEEN,
    SLACK,
    UNDERFLOW,
    Exact,
    exact_outputs,
    radii_norms,
)
from accelopt.kernels.nki.referee.uses import Uses
from accelopt.kernels.nki.referee.variation import (
    MAY_BE_LARGER,
    PLAIN,
    exchanged,
    few_counted,
    masks,
    numbers_reckoned_with,
    other_flags,
    other_integers,
    other_masks,
    other_numbers,
    other_shapes,
    other_signs,
    partly_set,
)
from accelopt.sandbox import scratch_folder, sweep
from accelopt.sim import dtypes
from accelopt.store import content_key

PUBLIC_SEEDS = (0, 21, 42, 63, 84)
VERSION = 50
CHECKSUMS = "checksums.json"
FREE_BYTES = 8 << 30  # of the disk, left to others
# An output that differs from an input of its shape by less than this fraction updates that input.
UPDATE_FRACTION = 0.1
# Stress inputs on which the reference itself is mostly undefined say nothing.
MIN_JUDGED = 0.5
GROWN = 2.0**64  # what products of so many twos come to
# Elements that a reference makes, results on the way among them, above which some rows stand for all where
# exact outputs are worked out.
MADE = 1 << 21


class TrialName(NamedTuple):
    """Which trial: a public seed, or one of the hidden kinds."""

    kind: str  # "seed", "hidden", or one of SITUATIONS
    seed: int = 0

    def __str__(self) -> str:
        return {
            "seed": f"seed {self.seed}",
            "hidden": "a hidden seed",
            "stress": "hidden inputs with zero, constant, tiny, large, one-hot, spiked and far rows",
            "one-sided": "hidden inputs of one sign",
            "sweep": "hidden inputs that go through the function's range",
            "end": "hidden inputs of which the ends decide",
            "every": "hidden inputs of one size, of which every one counts",
            "negative": "hidden inputs that are all below zero",
            "positive": "hidden inputs that are all above zero",
            "few-bits": "hidden inputs of which many are equal or halves",
            "small": "hidden inputs that are small throughout",
            "far": "hidden inputs that lie far from zero throughout",
            "not-finite": "hidden inputs with NaN and infinities",
            "none": "hidden inputs of which none is counted",
            "cancelling": "hidden inputs whose sums are large on the way and small at the end",
            "one": "hidden inputs of which one is counted",
            "unused": "hidden inputs of which those elements decide that reach no result of the kernel",
            "signs": "hidden inputs with plain numbers of the other sign",
            "flags": "hidden inputs with flags turned round",
            "other-shape": "hidden inputs of another shape",
        }[self.kind]


class Update(NamedTuple):
    """An output that is a small change of input number `input`, and the norm of what honest rounding
    in fp32 makes of it: a layernorm may look like one, and its sums are long."""

    input: int
    honest: float


class Trial(NamedTuple):
    """One set of inputs. `exact` only where the reference was also worked out in float64; where it
    was not, `sizes[i]` are the norms of output i's rows, `updates[i]` says what output i updates. Of the
    ordinary hidden inputs, `summed` are the relative errors of float32 sums. With `rows`, `expected` and
    `exact` have those rows of the outputs alone; `whole` are the reference's outputs with all rows, where
    these tell which others are judged as well. Where `projections` are kept of outputs, or a part says by which
    rows they are `remade` where they are compared, `expected` are their forms; `errors` and `far` are then what
    `Part.compared` says of a kernel's."""

    name: TrialName
    inputs: tuple[Any, ...]
    expected: tuple[np.ndarray, ...]
    sizes: tuple[np.ndarray, ...]
    exact: tuple[Exact, ...] | None
    updates: tuple[Update | None, ...]
    summed: tuple[float, ...] = ()
    rows: Rows | None = None
    whole: tuple[np.ndarray, ...] = ()
    projections: tuple[Projection, ...] = ()
    remade: Part | None = None
    errors: tuple[np.ndarray, ...] = ()
    far: np.ndarray | None = None

    @property
    def forms(self) -> tuple[np.ndarray, ...]:
        """Arrays of the shapes and formats of whole outputs."""
        return self.expected if self.rows is None else tuple(map(self.rows.whole, self.expected))

    def beside(self, reference: Reference, outputs: Sequence[Any]) -> Trial:
        """With what is known of a kernel's `outputs` where the reference's are made again. Raises ConfigError."""
        if self.remade is None or [*map(np.shape, outputs)] != [*map(np.shape, self.forms)]:
            return self
        errors, far = self.remade.compared(reference, self.inputs, outputs)
        return self._replace(errors=errors, far=far)

    def in_full(self, reference: Reference) -> Trial:
        """With all outputs, which were not kept. Raises ConfigError."""
        expected = reference.forward(self.inputs)
        return self._replace(expected=expected, projections=(), errors=(), remade=None)

    def mirrored(self, reference: Reference) -> list[np.ndarray]:
        """How large the reference's outputs are, where they are judged, when one input of both signs has the
        other: at most, of all such inputs. A factor's complement is among them."""
        largest = [np.zeros(one.shape, np.float32) for one in self.expected]
        for number, value in enumerate(map(in_single, self.inputs)):
            if stress.changeable(value) and value.min() < 0 < value.max():
                with contextlib.suppress(ConfigError):
                    found = self.judged(reference.forward(exchanged(self.inputs, number, -value)))
                    sizes = (np.where(np.isfinite(one), np.abs(one), 0) for one in found)
                    largest = [*map(np.maximum, largest, sizes)]
        return largest

    def judged(self, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What is judged of whole outputs."""
        return list(outputs if self.rows is None else map(self.rows.of, outputs))

    def place(self, place: tuple[int, ...]) -> tuple[int, ...]:
        """Where an element of what is judged stands in the whole output."""
        return place if self.rows is None else self.rows.place(place)


HIDDEN, FAR_ROWS = TrialName("hidden"), TrialName("hidden", 1)
STRESS = TrialName("stress")
ONE_SIDED = TrialName("one-sided")
SWEEP = TrialName("sweep")
END = TrialName("end")
EVERY = TrialName("every")
NEGATIVE, POSITIVE = TrialName("negative"), TrialName("positive")
FEW_BITS, SMALL, FAR = TrialName("few-bits"), TrialName("small"), TrialName("far")
NOT_FINITE, CANCELLING = TrialName("not-finite"), TrialName("cancelling")
NONE, ONE = TrialName("none"), TrialName("one")
OTHER_SHAPE = TrialName("other-shape")
SIGNS, FLAGS = TrialName("signs"), TrialName("flags")
UNUSED = TrialName("unused")  # made for one kernel, and not kept
PUBLIC = tuple(TrialName("seed", seed) for seed in PUBLIC_SEEDS)


# Trials in which rows differ in kind, so that of a large problem's any may be the only one that is wrong; how
# many of those are judged beside the drawn that are so many times farther from the reference's outputs than
# all drawn, or farther than so much of their largest element.
WITH_ALL_ROWS = (STRESS, ONE_SIDED)
OF_LONG_SUMS = (END, EVERY, NEGATIVE, POSITIVE)  # and of the largest of very many
MOST_OTHERS, FARTHER, FAR_APART = 32, 8.0, 0.1
FEW_ROWS, FEW_COLUMNS = 16, 8  # on which it is tried whether elements, or columns, are separate
MOST_IN_FULL = 1 << 22  # elements of public outputs, of which else projections are kept
MOST_KEPT = 1 << 26  # elements of whole outputs: beyond, keeping them costs more than judging
LENGTHS_AS_DRAWN = 0.25  # where rows differ in kind
MORE_DRAWS = 8  # of masks, of which each hidden one is made

# What reading a trial may run into whose files were cut off, removed or written by somebody else.
_DAMAGED = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, EOFError)


class TrialStore:
    """Trials on disk under `root`: at most `max_bytes` (by default what its cache folder allows), and
    less where the disk is nearly full."""

    def __init__(self, root: Path | str, max_bytes: int | None = None) -> None:
        self.root = Path(root)
        self.max_bytes = cache_limit(self.root.parent) if max_bytes is None else max_bytes
        self._first: tuple[str, Trial] | None = None
        self._drawn: tuple[str, list[Any]] | None = None
        self._separate: tuple[str, Part | None] | None = None
        self._masks: tuple[str, list[dict[int, Any]]] | None = None
        self._decays: tuple[str, list[int]] | None = None
        self._free = 0  # bytes that may be written before `_shrink` looks again

    def discard_damaged(self, reference: Reference) -> bool:
        """Removes the trials of a problem of which a file is not what was written; True where there was
        one: what was judged by them is no verdict."""
        self._first = None
        found = [
            folder
            for folder in self.root.glob(f"{reference.key}-*-v{VERSION}")
            if _is_damaged(folder)
        ]
        for folder in found:
            shutil.rmtree(folder, ignore_errors=True)
        return bool(found)

    def get(
        self,
        reference: Reference,
        name: TrialName,
        precision: Precision = Precision(),  # noqa: B008  (immutable)
    ) -> Trial | None:
        """The trial, made if it is not there; None where this problem has no such trial. What is
        exact, and how exact, depends on the precision that is allowed; seeds do not."""
        precision = Precision() if name == OTHER_SHAPE or name.kind == "seed" else precision
        return self._kept(
            reference, name, precision, lambda: self._make(reference, name, precision)
        )

    def _kept(
        self,
        reference: Reference,
        name: TrialName,
        precision: Precision,
        make: Callable[[], Trial | None],
        which: str = "",
    ) -> Trial | None:
        """The trial on disk, or what `make` makes in its place; `which` tells several of one name apart."""
        formats = "".join(f"-{name}" for name in precision.formats)
        if precision.unit != Precision(precision.formats).unit:
            formats += "".join(f"-as-{name}" for name in precision.named)
        folder = self.root / f"{reference.key}-{name.kind}{name.seed}{formats}{which}-v{VERSION}"
        with locked(self.root / f".{folder.name}.lock"):
            if (folder / "trial.json").is_file():
                with contextlib.suppress(*_DAMAGED):
                    return _read(folder, name)
                shutil.rmtree(folder, ignore_errors=True)
            sweep(self.root)
            made = make()
            try:
                _write(folder, made)
                self._shrink(keep=folder)
                return _read(folder, name)
            except _DAMAGED:
                # No room or no right to write: the work is done, only the saving fails.
                return made

    def _make(self, reference: Reference, name: TrialName, precision: Precision) -> Trial | None:
        if name.kind == "seed":
            inputs = reference.inputs(name.seed)
            known = reference.watched([*map(in_single, inputs)]) if name == PUBLIC[0] else ()
            made = trial_on(reference, name, inputs, None, expected=known or None)
            return self._short(reference, made)
        self._ask_if_elementwise(reference)
        drawn = self._hidden(reference)
        if name == HIDDEN:
            part = self._part(reference, name)
            return self._with_whole(reference, trial_on(reference, name, drawn, precision, part))
        if name == OTHER_SHAPE:
            return _taken(reference, name, other_shapes(drawn))
        if name == CANCELLING:
            return self._with_sums_that_cancel(reference, precision, drawn)
        if name in (NONE, ONE):
            return self._with_few_counted(reference, name, precision, drawn)
        if name in (SIGNS, FLAGS):
            plain = other_signs(drawn) if name == SIGNS else other_flags(drawn)
            return _taken(reference, name, [plain] if plain else [])
        trial = self._in_situation(reference, name, precision, drawn)
        return trial and (self._with_whole(reference, trial) if name in WITH_ALL_ROWS else trial)

    def _with_sums_that_cancel(
        self, reference: Reference, precision: Precision, drawn: list[Any]
    ) -> Trial | None:
        """The trial in which sums on the way have more bits than formats below float32 hold, where what the reference
        makes is as small as their end."""
        if not precision.narrow or not self._used(reference).adds:
            return None
        generator = np.random.default_rng(self._hidden_seed(reference.key, CANCELLING.kind))
        for changed in stress.cancelling([*map(in_single, drawn)], generator):
            inputs = reference.legal(_in_formats(changed, drawn))
            expected = reference.forward(inputs)
            most = max(float(np.abs(in_single(one)).max(initial=0)) for one in expected)
            if 0 < most <= stress.LEFT_OVER:
                return trial_on(reference, CANCELLING, inputs, None, expected=expected)
        return None

    def _with_few_counted(
        self, reference: Reference, name: TrialName, precision: Precision, drawn: list[Any]
    ) -> Trial | None:
        """The trial of which none counts, or one: of each row, where the reference works out rows one by one."""
        generator = np.random.default_rng(self._hidden_seed(reference.key, name.kind))
        part = self._rows_apart(reference) if name == ONE else None
        apart = None if name == NONE else part is not None
        several = few_counted(drawn, self._used(reference), generator, apart=apart)
        return _taken(reference, name, several, precision if name == ONE else None)

    def _short(self, reference: Reference, trial: Trial) -> Trial:
        """A public trial with projections in place of many outputs; not the first, of which more is asked: very
        many of that are made again."""
        outputs = trial.expected
        usual = all(one.dtype == np.float32 for one in outputs) and not reference.agreement.rules
        usual &= all(np.isfinite(norms).all() for norms in trial.sizes) and not any(trial.updates)
        first, size = trial.name == PUBLIC[0], sum(one.size for one in outputs)
        if not usual or size <= (MOST_KEPT if first else MOST_IN_FULL):
            return trial
        forms = tuple(np.broadcast_to(np.float32(0), one.shape) for one in outputs)
        if first:
            part = separate(reference, [*map(in_single, trial.inputs)], outputs)
            able = part is not None and part.compares(outputs, trial.inputs)
            return trial._replace(expected=forms, remade=part) if able else trial
        generator = np.random.default_rng(self._hidden_seed(reference.key, str(trial.name)))
        known = tuple(Projection.of(one, generator) for one in outputs)
        return trial._replace(expected=forms, projections=known)

    @staticmethod
    def _with_whole(reference: Reference, trial: Trial) -> Trial:
        """A trial of some rows with the reference's outputs of all, where these are not too many."""
        if trial.rows is None or sum(form.size for form in trial.forms) > MOST_KEPT:
            return trial
        return trial._replace(whole=reference.forward(trial.inputs))

    def _ask_if_elementwise(self, reference: Reference) -> None:
        """Asks of an ordinary draw whether the reference is a function of single elements, which inputs of a
        trial need not tell."""
        public, part = self._public(reference), self._rows_apart(reference)
        inputs, shapes = list(public.inputs), [*map(np.shape, public.expected)]
        if part:
            few = part.rows.places[:: max(1, len(part.rows.places) // FEW_ROWS)]
            part = part._replace(rows=part.rows._replace(places=few))
            inputs, shapes = part.of(inputs), [*map(part.rows.shape, public.expected)]
        reference.elementwise([*map(in_single, inputs)], shapes)

    def of_other_rows(
        self,
        reference: Reference,
        trial: Trial,
        outputs: Sequence[np.ndarray],
        precision: Precision,
    ) -> Trial | None:
        """The same trial of those rows on which whole outputs are farther from the reference's own, in its
        formats, than on the rows that were judged; None where there are none, or nothing is known of them."""
        whole = trial.name == PUBLIC[0] and trial.rows is None
        if whole and (known := self.get(reference, STRESS, precision)):
            trial = trial._replace(rows=known.rows, whole=trial.expected)
        if trial.rows is None or not trial.whole:
            return None
        least = max(UNDERFLOW, precision.least)  # which every element may be off by
        far = trial.far
        if far is None:
            far = trial.rows.apart(outputs, trial.whole, least=least)
        usual = min(FARTHER * float(far[trial.rows.places].max()), FAR_APART)
        places = np.flatnonzero(far > max(usual, SLACK * precision.unit))
        part = self._rows_apart(reference) if places.size else None
        if part is None:
            return None
        places = np.sort(places[np.argsort(far[places])][-MOST_OTHERS:])
        part = part._replace(rows=trial.rows._replace(places=places))
        # What is usual is not asked of rows that were chosen for being far.
        name = FAR_ROWS if trial.name == HIDDEN else trial.name

        def make() -> Trial:
            self._ask_if_elementwise(reference)
            return trial_on(reference, name, trial.inputs, precision, part)._replace(inputs=())

        which = "-rows" + content_key(*map(str, places))[:16]
        kept = self._kept(reference, name, precision, make, which)
        return kept and kept._replace(inputs=trial.inputs)

    def _in_situation(
        self, reference: Reference, name: TrialName, precision: Precision, drawn: list[Any]
    ) -> Trial | None:
        """The trial of the first severity on which the reference is defined, or else as far as it is
        defined on any."""
        seed = self._hidden_seed(reference.key, name.kind)
        part = None if name in (*OF_LONG_SUMS, NOT_FINITE) else self._part(reference, name)
        some = None if name in WITH_ALL_ROWS else part  # the rows that are changed
        drawn, whole = (drawn if some is None else some.of(drawn)), drawn
        inputs = [in_single(value) for value in drawn]
        public = self._public(reference)
        shapes = [some.rows.shape(one) if some else one.shape for one in public.expected]
        uses = self._used(reference)
        kept = [stress.not_finite_places(value) for value in inputs]
        inputs = [
            value if places is None else np.where(places, 0, value).astype(value.dtype)
            for value, places in zip(inputs, kept, strict=True)
        ]
        if not _arises(reference, name, inputs, shapes, uses):
            return None
        if name == SMALL and (
            (uses.smooth and self._rows_apart(reference))
            or not self._asked(reference, stress.all_in_each)
        ):
            return None
        if name == FAR and not self._has_means_of_several(reference):
            return None
        inputs = self._otherwise(reference, name, inputs, uses, seed, part)
        if self._decays is None or self._decays[0] != reference.key:
            self._decays = reference.key, _decays(reference, inputs)
        columns = self._columns(reference) if name in WITH_ALL_ROWS else ()
        rows = self._rows_apart(reference)
        apart = [n for n, cut in enumerate(rows.cuts if rows else ()) if cut == 0]
        situation = _Situation(name, inputs, shapes, columns, self._decays[1], uses, seed, apart)
        best: Trial | None = None
        tried: list[list[Any]] = []
        most: tuple[float, list[Any], tuple[np.ndarray, ...]] = (0.0, [], ())
        for severity in _severities(reference, name, public, uses):
            changed = [
                value if places is None else np.where(places, given, value)
                for value, given, places in zip(situation.made(severity), drawn, kept, strict=True)
            ]
            if any(all(map(np.array_equal, changed, earlier)) for earlier in tried):
                continue
            tried.append(changed)
            try:
                if name in (END, EVERY) and not _sums_exactly(reference, inputs, changed, seed):
                    changed = long_sum_inputs.inexact(inputs, changed, np.random.default_rng(seed))
                changed = _in_formats(changed, drawn)
                changed = reference.legal(changed if some is None else some.put(whole, changed))
                if name == NOT_FINITE:
                    return trial_on(reference, name, changed, None)
                given = changed if part is None else part.of(changed)
                found = reference.forward(given)
                largest = severity.largest > stress.HUGE
                if largest and not stress.selects(given, found, least=stress.HUGE):
                    continue  # a number of the reference stands for what is left out
                finite = [float(np.isfinite(one).mean()) for one in found]
                if (least := min(finite, default=0.0)) < MIN_JUDGED:
                    most = max(most, (least, changed, found), key=lambda one: one[0])
                    continue
                trial = trial_on(reference, name, changed, precision, part, found)
                if _judged(trial) >= MIN_JUDGED:
                    return trial
                best = max(filter(None, (best, trial)), key=_judged)
            except ConfigError as error:
                if isinstance(error.__cause__, MemoryError):  # which says nothing of these inputs
                    raise
        if most[0] > (0.0 if best is None else _judged(best)):
            other = trial_on(reference, name, most[1], precision, part, most[2])
            best = max(filter(None, (best, other)), key=_judged)
        return best if best is not None and _judged(best) > 0 else None

    def _otherwise(
        self, reference: Reference, name: TrialName, inputs: list[Any], uses: Uses, seed: int,
        part: Part | None,
    ) -> list[Any]:  # fmt: skip
        """`inputs` with other integers, plain numbers and masks."""
        generator = np.random.default_rng(seed)
        if name in WITH_ALL_ROWS and (set_to := masks(inputs, uses)):
            draws = self._drawn_masks(reference, set_to)
            more, counted = name == STRESS, uses.kept_above
            inputs = other_masks(inputs, set_to, draws, generator, more=more, counted=counted)
        # Then: of labels that are not ignored, the first and the last are among them.
        inputs = _other_arguments(reference, name, inputs, uses, generator, part)
        return partly_set(reference, inputs, uses, generator) if name == ONE_SIDED else inputs

    def _part(self, reference: Reference, name: TrialName) -> Part | None:
        """The rows of a trial that stand for all of a large problem's; None for all of them."""
        neighbours = self._used(reference).made // MADE
        if neighbours < 2:
            return None
        part = self._rows_apart(reference)
        if part is None or part.has_order(self._hidden(reference)):
            return None
        seed = self._hidden_seed(reference.key, f"rows of {name.kind}")
        return some_of(part, neighbours, np.random.default_rng(seed))

    def _columns(self, reference: Reference) -> tuple[int, ...]:
        """The inputs whose columns the reference works out one by one, as the statistics of a batch, or of
        which the outputs have the columns and no rows: what others are changed row by row is changed column by
        column there."""
        inputs, public = self._hidden(reference), self._public(reference)
        outputs, part = public.expected, self._rows_apart(reference)
        if part is None:
            part = separate(reference, [*map(in_single, public.inputs)], outputs, FEW_COLUMNS)
        own = stress.rows_of_outputs(inputs, [one.shape for one in outputs])

        def is_column(number: int, value: Any) -> bool:
            if np.ndim(value) < 2 or part is None or part.cuts[number] != value.ndim - 1:
                reduced = np.ndim(value) == 2 and all(
                    one.shape[:1] == value.shape[1:] and value.shape[0] not in one.shape
                    for one in outputs
                )
                return number == own and reduced
            return True

        return tuple(n for n, v in enumerate(inputs) if is_column(n, v))

    def _rows_apart(self, reference: Reference) -> Part | None:
        """Rows that the reference works out one by one; asked once a problem."""
        if self._separate is None or self._separate[0] != reference.key:
            public = self._public(reference)
            inputs = [in_single(value) for value in public.inputs]
            part = public.remade or separate(reference, inputs, public.expected)
            self._separate = reference.key, part
        return self._separate[1]

    def _has_means_of_several(self, reference: Reference) -> bool:
        """True where something is less its mean of several vectors of the input that determines the outputs' rows:
        that of one, or of a column, is large under stress."""
        inputs, public = self._hidden(reference), self._public(reference)
        own = stress.rows_of_outputs(inputs, [one.shape for one in public.expected])
        part = self._rows_apart(reference)
        if own < 0 or own in self._columns(reference) or public.projections or public.remade:
            return False
        if part and part.cuts[own] is not None and np.ndim(inputs[own]) == 2:
            return False
        return self._asked(reference, stress.is_less_its_mean)

    def _asked(self, reference: Reference, question: Callable[..., bool]) -> bool:
        """The answer to a question about a draw and its outputs, of some rows where these may be worked out one by
        one; no where the reference takes no such inputs."""
        public, part = self._public(reference), self._rows_apart(reference)
        given = [*map(in_single, public.inputs)]
        given = given if part is None else part.of(given)
        with contextlib.suppress(ConfigError):
            known = part is None and not public.projections
            outputs = public.expected if known else reference.forward(given)
            return question(reference.forward, given, outputs)
        return False

    def _used(self, reference: Reference) -> Uses:
        """What the reference does with its inputs."""
        return reference.uses([in_single(value) for value in self._public(reference).inputs])

    def _public(self, reference: Reference) -> Trial:
        """The first public trial; kept until another problem's is asked for, for reading it takes its time."""
        if self._first is None or self._first[0] != reference.key:
            public = self.get(reference, PUBLIC[0])
            assert public is not None, "public trials are always made"
            self._first = reference.key, public
        return self._first[1]

    def _hidden(self, reference: Reference) -> list[Any]:
        """The draw that all hidden trials of a problem are made of, each in its own way; kept until
        another problem's is asked for, for drawing may cost more than computing."""
        if self._drawn is None or self._drawn[0] != reference.key:
            drawn = reference.inputs(self._hidden_seed(reference.key, HIDDEN.kind))
            self._drawn = reference.key, list(map(frozen, drawn))
        return self._drawn[1]

    def _drawn_masks(self, reference: Reference, numbers: Iterable[int]) -> list[dict[int, Any]]:
        """The inputs of these numbers in other hidden draws; made once a problem."""
        if self._masks is None or self._masks[0] != reference.key:
            seeds = (self._hidden_seed(reference.key, f"draw {n}") for n in range(MORE_DRAWS))
            draws = map(reference.inputs, seeds)
            self._masks = reference.key, [{n: in_single(d[n]) for n in numbers} for d in draws]
        return self._masks[1]

    def _hidden_seed(self, key: str, kind: str) -> int:
        """A seed that nobody can know who cannot read the secret of this store."""
        digest = sha256(content_key(secret_of(self.root), key, kind).encode()).digest()
        return int.from_bytes(digest[:4], "little")

    def _shrink(self, keep: Path) -> None:
        """Removes the oldest trials beyond the limit. All of them are looked at by the first writer, and then when
        it has written a quarter of what was free: others write meanwhile."""
        self._free -= 4 * _bytes_in(keep)
        if self._free > 0:
            return
        folders = [path for path in self.root.iterdir() if (path / "trial.json").is_file()]
        sizes = {path: _bytes_in(path) for path in folders}
        total = sum(sizes.values())
        limit = min(self.max_bytes, total + shutil.disk_usage(self.root).free - FREE_BYTES)
        for folder in sorted(folders, key=lambda path: path.stat().st_mtime):
            if total <= limit:
                break
            if folder != keep:
                # Whoever has its files mapped keeps them until they are unmapped.
                shutil.rmtree(folder, ignore_errors=True)
                total -= sizes[folder]
        self._free = limit - total


SITUATIONS = {
    STRESS.kind: stress.stressed,
    ONE_SIDED.kind: stress.one_sided,
    SWEEP.kind: stress.swept,
    END.kind: long_sum_inputs.decided_at_the_end,
    EVERY.kind: long_sum_inputs.every_one_counts,
    NEGATIVE.kind: long_sum_inputs.all_negative,
    POSITIVE.kind: long_sum_inputs.all_positive,
    FEW_BITS.kind: stress.few_bits,
    SMALL.kind: stress.small,
    FAR.kind: stress.far_from_zero,
    NOT_FINITE.kind: stress.not_finite,
}


def _arises(
    reference: Reference, name: TrialName, inputs: Sequence[Any], outputs: stress.Shapes, uses: Uses
) -> bool:
    """True where the situation says something of this problem."""
    if name == NOT_FINITE:
        return uses.not_finite
    if name == FEW_BITS:
        if uses.smooth and not reference.elementwise(inputs, outputs):
            return False  # rows of halves among those under stress tell as much
        return any(map(stress.changeable, inputs)) and not (
            uses.picks and not reference.agreement.rules
        )
    if name == SWEEP:
        return reference.elementwise(inputs, outputs)
    return name not in OF_LONG_SUMS or long_sum_inputs.long_sums(inputs, outputs)


def _sums_exactly(
    reference: Reference, inputs: Sequence[Any], changed: Sequence[Any], seed: int
) -> bool:
    """True where the reference only adds and multiplies numbers of few bits: with an element or two
    left out, so that no sum comes out even by design, its outputs still fit into float32. Where it
    scales or takes roots, a kernel may do so first, and then no term of its sums is exact."""
    generator = np.random.default_rng(seed)
    for count in (1, 2):
        outputs = reference.forward(long_sum_inputs.without_some(inputs, changed, count, generator))
        if any(output.dtype != np.float64 for output in outputs):
            return False
        if any(not np.array_equal(output, output.astype(np.float32)) for output in outputs):
            return False
    return True


def _as_rows(inputs: Sequence[Any], columns: Sequence[int], *, back: bool = False) -> list[Any]:
    """`inputs` with the columns of some as rows, or `back`."""
    ends = (0, -1) if back else (-1, 0)
    moved = (np.moveaxis(v, *ends) if n in columns else v for n, v in enumerate(inputs))
    return [np.ascontiguousarray(v) if n in columns else v for n, v in enumerate(moved)]


def _decays(reference: Reference, inputs: Sequence[Any]) -> list[int]:
    """The inputs within zero and one that long products are made of, as twos show, and that stay so: chunks of a
    recurrence multiply decays that a loop over time never does."""
    found = []
    for number, value in enumerate(inputs):
        if stress.changeable(value) and value.min() >= 0 and value.max() <= 1:
            with contextlib.suppress(ConfigError):
                twos = exchanged(inputs, number, np.full_like(value, 2))
                if any((np.abs(one) > GROWN).any() for one in reference.forward(twos)):
                    found.append(number)
    return found


def _negated(inputs: Sequence[Any], turned: Sequence[bool]) -> list[Any]:
    return [-value if turn else value for value, turn in zip(inputs, turned, strict=True)]


def _severities(
    reference: Reference, name: TrialName, public: Trial, uses: Uses
) -> list[stress.Severity]:
    """How far a trial goes: less and less far, and first to the largest numbers where outputs are elements of
    the inputs."""
    ties = not uses.picks or bool(reference.agreement.rules)
    found = [one._replace(ties=ties) for one in stress.SEVERITIES]
    if name in (ONE_SIDED, NEGATIVE, POSITIVE) and not public.remade:
        selects = stress.selects([*map(in_single, public.inputs)], public.expected)
        return [found[0]._replace(largest=stress.LARGEST)] * selects + found
    return found


class _Situation(NamedTuple):
    """What the inputs of a trial are made of: `inputs` for results of some shapes, of which those in `columns` are
    changed column by column, `decays` stay below one, and rows of those that are `apart` make one row of results each."""

    name: TrialName
    inputs: Sequence[Any]
    shapes: Sequence[tuple[int, ...]]
    columns: Sequence[int]
    decays: Sequence[int]
    uses: Uses
    seed: int
    apart: Sequence[int]

    def made(self, severity: stress.Severity) -> list[Any]:
        """Inputs that go so far; what is never drawn positive stays so."""
        turned = [stress.never_positive(value) for value in self.inputs]
        changed = _as_rows(_negated(self.inputs, turned), self.columns)
        apart = (self.apart,) if self.name == STRESS else ()
        change = SITUATIONS[self.name.kind]
        changed = change(changed, self.shapes, self._generator(), severity, *apart)
        changed = _as_rows(changed, self.columns, back=True)
        if self.name == FEW_BITS:
            changed = stress.at_thresholds(changed, self.uses.thresholds, self._generator())
            if self.uses.rounds:
                changed = stress.with_exact_scale(changed, self.uses.factors, self._generator())
            else:
                changed = stress.larger_at_the_end(changed, self.shapes, severity)
        for number in self.decays:
            changed[number] = np.minimum(changed[number], 1)
        return _negated(changed, turned)

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


def _other_arguments(
    reference: Reference,
    name: TrialName,
    inputs: list[Any],
    uses: Uses,
    generator: np.random.Generator,
    part: Part | None,
) -> list[Any]:
    """Other integers, and for one trial (a kernel is traced anew for it) other numbers, as far as the
    reference takes them."""
    as_drawn = LENGTHS_AS_DRAWN if name == STRESS else 0
    changed = other_integers(reference, inputs, uses, generator, as_drawn)
    if name not in WITH_ALL_ROWS:
        return changed
    reckoned = numbers_reckoned_with(
        reference, changed, changed if part is None else part.of(changed)
    )
    if not reckoned and not any(isinstance(value, PLAIN) for value in changed):
        return changed
    seed = int(generator.integers(1 << 31))
    larger = name == STRESS
    for most, whole in ((MAY_BE_LARGER if larger else 1, reckoned), (1, ())):
        given = np.random.default_rng(seed)
        numbers = other_numbers(changed, given, whole, larger=larger, most=most)
        with contextlib.suppress(ConfigError):
            outputs = reference.forward(numbers if part is None else part.of(numbers))
            if (not whole and most == 1) or all(np.isfinite(one).all() for one in outputs):
                return numbers
    return changed


def _in_formats(values: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """`values`, arrays in the formats of those wanted, finite ones within their range."""

    def formed(value: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
        if is_float(dtype) and dtype != value.dtype:
            known: Any = ml_dtypes.finfo
            largest = float(known(dtype).max)
            value = np.where(np.isfinite(value), np.clip(value, -largest, largest), value)
        return value.astype(dtype)

    with np.errstate(all="ignore"):
        return [
            formed(value, like.dtype) if isinstance(value, np.ndarray) else value
            for value, like in zip(values, wanted, strict=True)
        ]


def _taken(
    reference: Reference,
    name: TrialName,
    several: Iterable[list[Any]],
    precision: Precision | None = None,
) -> Trial | None:
    """The trial, with exact outputs for a precision, on the first of some inputs that the reference takes."""
    for inputs in several:
        with contextlib.suppress(ConfigError):
            reference.kernel_inputs(inputs)
            expected = reference.forward(inputs)
            if name == OTHER_SHAPE or all(np.isfinite(one).all() for one in expected):
                return trial_on(reference, name, inputs, precision, expected=expected)
    return None


def _judged(trial: Trial) -> float:
    """The fraction of the elements of an output that are judged, of that with the fewest."""
    return min((output.judged for output in trial.exact or ()), default=0.0)


def trial_on(
    reference: Reference,
    name: TrialName,
    inputs: Sequence[Any],
    precision: Precision | None,
    part: Part | None = None,
    expected: tuple[np.ndarray, ...] | None = None,
) -> Trial:
    """The trial on these inputs, with exact outputs for a precision; of a `part` of the rows alone, where
    these are separate on these inputs too. `expected` are the reference's outputs, where they are known."""
    given = list(inputs) if part is None else part.of(inputs)
    if expected is None:
        expected = reference.forward(given)
    few = name == FEW_BITS
    exact = (
        None
        if precision is None
        else exact_outputs(reference, given, expected, precision, few_bits=few)
    )
    judged = exact and [
        np.where(
            one.allowed < (BETWEEN if whole.dtype.kind in "iub" else np.inf), one.values, np.nan
        )
        for one, whole in zip(exact, expected, strict=True)
    ]
    if part and not still_separate(reference, part, inputs, judged or ()):
        return trial_on(reference, name, inputs, precision)
    normed = expected if exact is None else ()
    return Trial(
        name=name,
        inputs=tuple(inputs),
        expected=expected,
        sizes=tuple(row_norms(output) for output in normed),
        exact=exact,
        updates=_updates(reference, given, normed),
        summed=_summed(reference, given, expected, exact, precision)
        if name == HIDDEN and exact and precision is not None
        else (),
        rows=None if part is None else part.rows,
    )


def _summed(
    reference: Reference,
    inputs: Sequence[Any],
    expected: tuple[np.ndarray, ...],
    exact: tuple[Exact, ...],
    precision: Precision,
) -> tuple[float, ...]:
    """The relative error that each output has where all is done in float32; 0 where it is not known."""
    sizes = [l2(np.where(np.isfinite(one.allowed), one.values, 0)) for one in exact]
    if not precision.narrow:
        radii = [l2(np.where(np.isfinite(one.allowed), one.allowed, 0)) / SLACK for one in exact]
    else:
        try:
            radii = radii_norms(reference, inputs, expected, exact)
        except ConfigError:
            return (0.0,) * len(exact)
    return tuple(r / size if size else 0.0 for r, size in zip(radii, sizes, strict=True))


def _updates(
    reference: Reference, inputs: Sequence[Any], outputs: tuple[np.ndarray, ...]
) -> tuple[Update | None, ...]:
    updated = [_updated_input(output, inputs) for output in outputs]
    if all(number is None for number in updated):
        return (None,) * len(outputs)
    honest = [0.0] * len(outputs)
    with contextlib.suppress(ConfigError):
        honest = radii_norms(reference, inputs, outputs)
    return tuple(
        None if number is None else Update(number, norm)
        for number, norm in zip(updated, honest, strict=True)
    )


def _updated_input(output: np.ndarray, inputs: Sequence[Any]) -> int | None:
    for index, value in enumerate(inputs):
        alike = isinstance(value, np.ndarray) and value.shape == output.shape and output.ndim > 0
        if alike and is_float(value.dtype) and np.isfinite(size := l2(output)):
            change = l2_difference(output, in_single(value))
            if 0 < change < UPDATE_FRACTION * size:
                return index
    return None


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in os.scandir(folder))


def _write(folder: Path, trial: Trial | None) -> None:
    """The trial's arrays as .npy files and the rest as JSON, in place all at once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(folder.parent) as beside:
        description = None if trial is None else _describe(trial, _saver(beside))
        files = {file.name: _checksum(file) for file in beside.iterdir()}
        (beside / CHECKSUMS).write_text(json.dumps(files))
        text = json.dumps(description)
        (beside / "trial.json").write_text(f"{content_key(text)}\n{text}")
        for file in beside.iterdir():
            file.chmod(0o444)
        beside.chmod(0o755)
        beside.rename(folder)


def _checksum(file: Path) -> int:
    found, part = 0, memoryview(bytearray(1 << 18))  # which stays in the processor's cache
    with file.open("rb", buffering=0) as stream:
        while size := stream.readinto(part):
            found = zlib.crc32(part[:size], found)
    return found


def _is_damaged(folder: Path) -> bool:
    try:
        files = json.loads((folder / CHECKSUMS).read_text())
        return any(_checksum(folder / name) != value for name, value in files.items())
    except _DAMAGED:
        return (folder / "trial.json").is_file()


def _saver(folder: Path) -> Callable[[np.ndarray], str]:
    count = 0

    def save(array: np.ndarray) -> str:
        nonlocal count
        count += 1
        name = f"{count}.npy"
        if array.dtype.kind == "V":  # NumPy's files do not know the formats of ml_dtypes
            name = f"{count}.{array.dtype.name}.npy"
            array = array.view(f"u{array.dtype.itemsize}")
        np.save(folder / name, array, allow_pickle=False)
        return name

    return save


def _describe(trial: Trial, save: Callable[[np.ndarray], str]) -> dict[str, object]:
    exact = None if trial.exact is None else [[*map(save, e)] for e in trial.exact]
    expected = [
        # Where the exact values are there, of what the reference itself gave only the form counts.
        exact[number][0] if exact and output.dtype == np.float32 else save(output)
        for number, output in enumerate(() if trial.projections or trial.remade else trial.expected)
    ]
    part = trial.remade
    return {
        "name": trial.name,
        "inputs": [
            {"file": save(value)} if isinstance(value, np.ndarray) else {"value": _plain(value)}
            for value in trial.inputs
        ],
        "expected": expected,
        "sizes": [save(norms) for norms in trial.sizes],
        "exact": exact,
        "updates": trial.updates,
        "summed": trial.summed,
        "whole": [save(output) for output in trial.whole],
        "forms": [] if expected else [one.shape for one in trial.expected],
        "projections": [[*map(save, one)] for one in trial.projections],
        "rows": trial.rows and [trial.rows.axis, trial.rows.total, save(trial.rows.places)],
        "remade": part and [part.cuts, part.rows.axis, part.rows.total, save(part.rows.places)],
    }


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def _read(folder: Path, name: TrialName) -> Trial | None:
    checksum, _, text = (folder / "trial.json").read_text().partition("\n")
    if checksum != content_key(text):
        raise ValueError("the trial is damaged")
    description = json.loads(text)
    os.utime(folder)
    if description is None:
        return None

    def load(file: str) -> np.ndarray:
        array = np.asarray(np.load(folder / file, mmap_mode="r", allow_pickle=False))
        _, *form, _ = file.split(".")
        return array.view(dtypes.parse(form[0])) if form else array

    exact = description["exact"]
    forms = (np.broadcast_to(np.float32(0), shape) for shape in description["forms"])
    return Trial(
        name=name,
        inputs=tuple(
            load(item["file"]) if "file" in item else item["value"]
            for item in description["inputs"]
        ),
        expected=(*map(load, description["expected"]), *forms),
        sizes=tuple(load(file) for file in description["sizes"]),
        exact=None if exact is None else tuple(Exact(*map(load, files)) for files in exact),
        updates=tuple(None if u is None else Update(*u) for u in description["updates"]),
        summed=tuple(description["summed"]),
        whole=tuple(map(load, description["whole"])),
        projections=tuple(Projection(*map(load, one)) for one in description["projections"]),
        rows=(some := description["rows"]) and Rows(some[0], some[1], load(some[2])),
        remade=(some := description["remade"])
        and Part(Rows(some[1], some[2], load(some[3])), tuple(some[0])),
    )

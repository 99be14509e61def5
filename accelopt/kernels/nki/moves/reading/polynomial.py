"""Integer polynomials over named symbols: the exact arithmetic behind every legality question.

An index such as `128 * m + nl.arange(128)[:, None]` is a polynomial in the loop variable `m` and
the ramp `nl.arange(128)`. Sizes that are not known stay symbols, so `j * tile_n + tile_n` and
`(j + 1) * tile_n` are the same polynomial whatever `tile_n` is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Symbol:
    """A quantity that is not a number. `kind`: "loop", "ramp" (an arange along one axis of the
    index) or "size" (a constant of the kernel, value unknown here).

    A ramp runs over 0 .. size-1 along `axis`, counted from the last (-1). `mentions` holds the loop
    symbols hidden inside an opaque expression such as `i // 2`.
    """

    name: str
    kind: str = "size"
    axis: int = 0
    size: Polynomial | None = None
    mentions: frozenset[Symbol] = frozenset()

    def __lt__(self, other: Symbol) -> bool:
        return (self.kind, self.name, self.axis) < (other.kind, other.name, other.axis)


Monomial = tuple[Symbol, ...]


@dataclass(frozen=True)
class Polynomial:
    """A sum of integer multiples of products of symbols, in one canonical order."""

    terms: tuple[tuple[Monomial, int], ...] = field(default=())

    @staticmethod
    def of(terms: Mapping[Monomial, int]) -> Polynomial:
        """From a mapping of monomials to factors; zero factors vanish."""
        kept = [(monomial, factor) for monomial, factor in terms.items() if factor]
        return Polynomial(tuple(sorted(kept, key=lambda term: (len(term[0]), term[0]))))

    @staticmethod
    def number(value: int) -> Polynomial:
        """A constant."""
        return Polynomial.of({(): value})

    @staticmethod
    def symbol(symbol: Symbol) -> Polynomial:
        """A symbol by itself."""
        return Polynomial.of({(symbol,): 1})

    def __add__(self, other: Polynomial) -> Polynomial:
        total = dict(self.terms)
        for monomial, factor in other.terms:
            total[monomial] = total.get(monomial, 0) + factor
        return Polynomial.of(total)

    def __neg__(self) -> Polynomial:
        return Polynomial(tuple((monomial, -factor) for monomial, factor in self.terms))

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        product: dict[Monomial, int] = {}
        for left, left_factor in self.terms:
            for right, right_factor in other.terms:
                monomial = tuple(sorted((*left, *right)))
                product[monomial] = product.get(monomial, 0) + left_factor * right_factor
        return Polynomial.of(product)

    @property
    def constant(self) -> int | None:
        """The number this is, or None when a symbol is left."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and self.terms[0][0] == ():
            return self.terms[0][1]
        return None

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Every symbol in it, not those hidden in opaque ones."""
        return frozenset(symbol for monomial, _ in self.terms for symbol in monomial)

    @property
    def loops(self) -> frozenset[Symbol]:
        """Every loop whose variable it depends on, opaque parts included."""
        found: set[Symbol] = set()
        for symbol in self.symbols:
            found |= {symbol} if symbol.kind == "loop" else symbol.mentions
            if symbol.size is not None:
                found |= symbol.size.loops
        return frozenset(found)

    @property
    def ramps(self) -> tuple[Symbol, ...]:
        """Its ramps, outermost axis first."""
        return tuple(
            sorted((s for s in self.symbols if s.kind == "ramp"), key=lambda ramp: ramp.axis)
        )

    def factor_of(self, symbol: Symbol) -> Polynomial:
        """What multiplies `symbol` where it occurs to the first power."""
        result: dict[Monomial, int] = {}
        for monomial, factor in self.terms:
            if monomial.count(symbol) == 1:
                rest = tuple(s for s in monomial if s != symbol)
                result[rest] = result.get(rest, 0) + factor
        return Polynomial.of(result)

    def without(self, *symbols: Symbol) -> Polynomial:
        """The terms that mention none of `symbols`."""
        return Polynomial(
            tuple(term for term in self.terms if not any(s in term[0] for s in symbols))
        )

    def substitute(self, values: Mapping[Symbol, Polynomial]) -> Polynomial:
        """With symbols replaced by polynomials."""
        total = ZERO
        for monomial, factor in self.terms:
            product = Polynomial.number(factor)
            for symbol in monomial:
                product = product * values.get(symbol, Polynomial.symbol(symbol))
            total = total + product
        return total

    def render(self, write: Callable[[Symbol], str]) -> str:
        """Python text, with `write` naming each symbol."""
        pieces: list[str] = []
        for monomial, factor in sorted(self.terms, key=lambda term: (not term[0], term[0])):
            names = [write(symbol) for symbol in monomial]
            size = abs(factor)
            text = " * ".join([*([str(size)] if size != 1 or not names else []), *names])
            sign = "-" if factor < 0 else "+"
            pieces.append(f"{sign} {text}" if pieces else (f"-{text}" if factor < 0 else text))
        return " ".join(pieces) or "0"


ZERO = Polynomial()
ONE = Polynomial.number(1)


def opaque(text: str, parts: tuple[Polynomial, ...]) -> Polynomial:
    """A symbol for an expression that is not a polynomial, such as a quotient of loop variables."""
    mentions = frozenset(symbol for part in parts for symbol in part.loops)
    return Polynomial.symbol(Symbol(text, "size", mentions=mentions))


def ramp(size: Polynomial, axis: int) -> Polynomial:
    """0 .. size-1 along `axis` of an index (-1 is the last)."""
    name = f"ramp[{size.render(lambda symbol: symbol.name)}]"
    return Polynomial.symbol(Symbol(name, "ramp", axis=axis, size=size))


def quotient(left: Polynomial, right: Polynomial) -> Polynomial:
    """`left // right`: exact where every factor divides, else an opaque symbol."""
    divisor, value = right.constant, left.constant
    if divisor and value is not None:
        return Polynomial.number(value // divisor)
    if divisor and all(factor % divisor == 0 for _, factor in left.terms):
        return Polynomial(tuple((m, factor // divisor) for m, factor in left.terms))
    if left == right:
        return ONE
    name = lambda symbol: symbol.name  # noqa: E731
    return opaque(f"(({left.render(name)}) // ({right.render(name)}))", (left, right))


def remainder(left: Polynomial, right: Polynomial) -> Polynomial:
    """`left % right`: a number where it is one, else an opaque symbol."""
    divisor, value = right.constant, left.constant
    if divisor and value is not None:
        return Polynomial.number(value % divisor)
    name = lambda symbol: symbol.name  # noqa: E731
    return opaque(f"(({left.render(name)}) % ({right.render(name)}))", (left, right))

"""What a run spends, on model calls and on evaluations, and the limits at which it stops in good order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from accelopt.agents.calls import Exchange
from accelopt.errors import BudgetExhausted


class Budget(NamedTuple):
    """Upper limits of one run; None is no limit. `money` in dollars."""

    money: float | None = None
    tokens: int | None = None
    calls: int | None = None


@dataclass
class Spending:
    """A sum over calls. `seconds` is the time the endpoint took, summed over concurrent calls."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    money: float = 0.0
    seconds: float = 0.0

    def add(self, exchange: Exchange) -> None:
        """Count one exchange."""
        self.calls += 1
        self.input_tokens += exchange.input_tokens
        self.output_tokens += exchange.output_tokens
        self.money += exchange.money
        self.seconds += exchange.seconds


class WorstCase(NamedTuple):
    """The most that the answer to one request may cost: dollars, and tokens in and out."""

    money: float
    tokens: float
    calls: int = 1


@dataclass
class Ledger:
    """Spending in total, by role and by iteration; each exchange is counted once. What requests under way
    may cost at most is reserved."""

    budget: Budget = field(default_factory=Budget)
    total: Spending = field(default_factory=Spending)
    by_role: dict[str, Spending] = field(default_factory=lambda: defaultdict(Spending))
    by_iteration: dict[int, Spending] = field(default_factory=lambda: defaultdict(Spending))
    changed: Callable[[], None] = lambda: None
    """Called whenever an exchange was counted."""
    _counted: set[str] = field(default_factory=set)
    _reserved: list[WorstCase] = field(default_factory=list)
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)

    @asynccontextmanager
    async def reserved(self, worst: WorstCase) -> AsyncIterator[None]:
        """Holds room for one request while it is under way. It waits until the budget would not be spent
        even if all those before it cost their worst, so at most one answer goes over it. Raises
        BudgetExhausted."""
        self.check()
        while self._reserved and self._spent_with(*self._reserved):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
            self.check()
        self._reserved.append(worst)
        try:
            yield
        finally:
            self._reserved.remove(worst)
            waiting, self._waiting = self._waiting, []
            for turn in waiting:
                if not turn.done():
                    turn.set_result(None)

    def charge(self, exchange: Exchange) -> None:
        """Count `exchange`, whether it was just made or found in the journal."""
        if exchange.key in self._counted:
            return
        self._counted.add(exchange.key)
        self.total.add(exchange)
        self.by_role[exchange.role].add(exchange)
        self.by_iteration[exchange.iteration].add(exchange)
        self.changed()

    def share(self, price: float, parts: int) -> int:
        """Of the tokens that the budget still pays for at `price` dollars a million, one of `parts` parts; 0
        where it sets no limit to them."""
        spent, left = self.total, list[float]()
        if self.budget.tokens is not None:
            left.append(self.budget.tokens - spent.input_tokens - spent.output_tokens)
        if self.budget.money is not None and price:
            left.append((self.budget.money - spent.money) / price * 1e6)
        return max(1, int(min(left) / parts)) if left else 0

    def check(self) -> None:
        """Raise BudgetExhausted when no further call may be made."""
        if spent := self._spent_with():
            raise BudgetExhausted(spent)

    @property
    def exhausted(self) -> bool:
        """Whether no further call may be made."""
        return bool(self._spent_with())

    def _spent_with(self, *under_way: WorstCase) -> str:
        """Which limit is reached by what is spent and what is `under_way`; empty where none is."""
        tokens = self.total.input_tokens + self.total.output_tokens
        spent = WorstCase(self.total.money, tokens, self.total.calls)
        sums = map(sum, zip(spent, *under_way, strict=True))
        for what, used, limit in zip(
            ("dollars", "tokens", "calls"), sums, self.budget, strict=True
        ):
            if limit is not None and used >= limit:
                return f"the budget of {limit:g} {what} is spent ({used:g} used)"
        return ""


class EvaluationBudget:
    """The evaluations that one job may spend, paid before a kernel is judged, whoever wants it judged:
    samples, repairs, and what models try out with their tools.

    `limit` None is no limit; what is in `paid` costs nothing more.
    """

    def __init__(self, limit: int | None = None, paid: Iterable[str] = ()) -> None:
        self.limit = limit
        self._paid = frozenset(paid)
        self._bought: set[str] = set()

    @property
    def left(self) -> float:
        """How many distinct kernels may still be judged."""
        return inf if self.limit is None else self.limit - len(self._bought)

    @property
    def paid(self) -> frozenset[str]:
        """The keys of the evaluations that were paid before."""
        return self._paid

    @property
    def bought(self) -> frozenset[str]:
        """The keys of the evaluations that this job paid for."""
        return frozenset(self._bought)

    def pay(self, key: str, keep: int = 0) -> bool:
        """Whether the evaluation `key` may be made, paid for now; `keep` are not to be touched."""
        if key in self._paid or key in self._bought:
            return True
        if self.left <= keep:
            return False
        self._bought.add(key)
        return True

"""How large partitions should be: exposure against the cost of scheduling them (UF-14).

While a copy catches up its pair has no partner, and a second failure there loses data. One catch-up
takes a time of its own (take-over, markers, fold-in) and the time to move its state. So smaller
partitions are exposed more shortly one by one, and hold up less of the flow; but there are more of
them, each of which is called in turn whether it has work or not, and to recover a whole site takes
longer. Both prices are measured here, and the fewest partitions chosen that keep to a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from flux_runtime.protocol.controller import Controller
from flux_runtime.protocol.vocabulary import Pair


@dataclass(frozen=True, slots=True)
class Window:
    """A time that a pair had no partner, in seconds.

    Attributes:
        pair: the pair.
        lost: when its copy failed or was ended.
        started: when its catch-up was taken in hand.
        whole: when the new copy was folded in everywhere.
    """

    pair: Pair
    lost: float
    started: float
    whole: float

    @property
    def exposed(self) -> float:
        """How long a second failure would have lost data."""
        return self.whole - self.lost

    @property
    def catch_up(self) -> float:
        """How long its own catch-up took, without the wait for others before it (CT-7)."""
        return self.whole - self.started


class Exposure:
    """Watches how long pairs are without a partner; ask it to look after every event.

    Attributes:
        windows: those that are over.
        lost: pairs without a partner, and since when.
        started: when the catch-ups in hand began, by pair and attempt.
    """

    def __init__(self) -> None:
        self.windows: list[Window] = []
        self.lost: dict[Pair, float] = {}
        self.started: dict[tuple[Pair, int], float] = {}

    def look(self, controller: Controller, now: float) -> None:
        """Take down what has changed."""
        partial = {pair for pair, _ in controller.incomplete()}
        for pair in sorted(partial):
            self.lost.setdefault(pair, now)
        for pair in sorted(self.lost.keys() - partial):
            lost, attempt = self.lost.pop(pair), controller.pairs[pair].attempts
            if not controller.pairs[pair].lost:
                started = self.started.get((pair, attempt), lost)
                self.windows.append(Window(pair, lost, started, now))
        in_hand = {(catch_up.pair, catch_up.attempt) for catch_up in controller.in_hand}
        self.started = {attempt: self.started.get(attempt, now) for attempt in in_hand}


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What the choice depends on.

    Attributes:
        catch_up: seconds of a catch-up whatever the size of the state.
        per_byte: seconds per byte of state that moves.
        call: seconds to call a partition once (`price_of_an_idle_call`).
        batch: seconds that a site's operators work on one batch.
    """

    catch_up: float
    per_byte: float
    call: float
    batch: float


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """What a number of partitions leads to.

    Attributes:
        parts: partitions of the stage.
        window: seconds that a pair is exposed by a move, or by its own catch-up.
        recovery: seconds until all copies of a failed site are whole again, one after the other.
        overhead: share of a busy site's time that goes into calling its partitions.
    """

    parts: int
    window: float
    recovery: float
    overhead: float


def fitted(measured: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Seconds of a catch-up and seconds per byte, by least squares over (bytes, seconds).

    Raises:
        ValueError: all had the same size, so the two cannot be told apart.
    """
    n = len(measured)
    size = sum(s for s, _ in measured) / max(n, 1)
    took = sum(t for _, t in measured) / max(n, 1)
    spread = sum((s - size) ** 2 for s, _ in measured)
    if not spread:
        raise ValueError(f"{n} catch-ups of one size do not tell what a byte takes")
    per_byte = sum((s - size) * (t - took) for s, t in measured) / spread
    return took - per_byte * size, per_byte


def sizing(parts: int, prices: Prices, *, state: float, sites: int) -> Sizing:
    """What so many partitions with `state` bytes between them lead to, two copies on `sites`."""
    window = prices.catch_up + prices.per_byte * state / parts
    on_site = 2 * parts / sites
    calls = on_site * prices.call
    return Sizing(
        parts=parts,
        window=window,
        recovery=on_site * window,
        overhead=calls / (calls + prices.batch),
    )


def fewest_parts(
    prices: Prices, *, state: float, sites: int, window: float, overhead: float
) -> Sizing:
    """UF-14: the fewest partitions whose catch-up takes no longer than `window` seconds.

    Raises:
        ValueError: no number keeps to it, or calling so many takes more than a share of `overhead`.
    """
    if window <= prices.catch_up:
        raise ValueError(
            f"a catch-up takes {prices.catch_up:.3g} s without any state: no size of partitions "
            f"keeps it below {window:.3g} s"
        )
    parts = max(1, ceil(prices.per_byte * state / (window - prices.catch_up) - 1e-9))
    found = sizing(parts, prices, state=state, sites=sites)
    if found.overhead > overhead:
        raise ValueError(
            f"windows of {window:.3g} s need {parts} partitions, and calling them takes "
            f"{found.overhead:.1%} of a site: allow longer windows, more overhead, or more sites"
        )
    return found

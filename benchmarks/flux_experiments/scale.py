"""Beyond the papers' sizes: what the controller, the balancer and the connections cost.

Controller, balancer and multiplexer are the product's own. The sites are the share model: it says
how busy each would be, and every move is carried through with all its reports.
"""

# ruff: noqa: E501  (rows of tables stay on one line)

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from blazes.document.charts import Chart, Series
from flux_lab.papers.protocol.channels import Multiplexer
from flux_lab.papers.protocol.controller import Controller, Instantiate, chained
from flux_lab.papers.protocol.messages import Ack, CatchUpDone, CatchUpReady, Data, FoldInDone
from flux_lab.share import ShareModel
from flux_lab.stage import fixed
from flux_runtime.protocol.balancer import Balancer, RequestStatistics, ResetStatistics
from flux_runtime.protocol.balancing import SIMULATED, SiteStatistics, Thresholds
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node, Pair, Shape

from .experiment import Experiment, Result, Row
from .skew import LEFT

PER_SITE = 16
"""Partition copies on every site."""
AT_ONCE = 64
"""Moves under way at a time."""
MOVE_SECONDS = 0.05
ROUNDS_MAX = 2
"""With more than 256 sites: rounds are alike, and a move of thousands of pairs takes its time."""
TUPLE = 45e-6


@dataclass
class Costs:
    """What balancing took: processor seconds, and messages between the controller and the sites."""

    rounds: list[float] = field(default_factory=list)
    moves: list[float] = field(default_factory=list)
    simulated: float = 0.0
    messages: int = 0


class Balanced:
    """A controller and a balancer over sites of the share model, until a round moves nothing."""

    def __init__(self, sites: int, *, load: bool = True) -> None:
        shape = Shape(widths=(sites * PER_SITE // 2,))
        self.controller = Controller(
            shape, chained(shape, sites), frozenset(range(sites)), parallel_max=AT_ONCE
        )
        thresholds = Thresholds(
            imbalance=SIMULATED.imbalance, utilisation=SIMULATED.utilisation,
            delta_min=SIMULATED.delta_min, moves_max=1,
        )  # fmt: skip
        self.balancer = Balancer(self.controller, thresholds, collection=fixed(thresholds))
        self.loaded = dict.fromkeys(range(sites // 8), LEFT) if load else {}
        self.sites = sites
        self.costs = Costs()
        self.now = 0.0

    def model(self) -> ShareModel:
        """How busy the sites are, with the copies where they stand."""
        parts: dict[int, list[tuple[int, int]]] = {site: [] for site in range(self.sites)}
        for node, copy in self.controller.nodes():
            parts[copy.site].append((node.part, node.copy))
        return ShareModel(parts, share=self.loaded)

    def settle(self, rounds_max: int) -> int:
        """Balance until nothing moves, or so long; gives how many rounds moved something."""
        done = 0
        for _ in range(rounds_max):
            if not self._round():
                break
            done += 1
        return done

    def _round(self) -> int:
        """Statistics, a plan, and all its moves; gives how many there were."""
        spent = time.process_time()
        orders = self.balancer.tick(self.now)
        if any(isinstance(order, ResetStatistics) for order in orders):
            self.costs.messages += self.sites
        self.now = max(self.now, self.balancer.wakes_at)
        asked = next(o for o in self.balancer.tick(self.now) if isinstance(o, RequestStatistics))
        spent = time.process_time() - spent
        answers = self._answers()
        self.costs.messages += 2 * self.sites
        started = time.process_time()
        for answer in answers:
            orders = self.balancer.statistics(asked.round, answer, self.now)
        self.costs.rounds.append(spent + time.process_time() - started)
        moves = 0
        while not self.controller.is_whole:
            moves += self._carry_out(orders)
            self.now += MOVE_SECONDS
            orders = self.balancer.tick(self.now)
        return moves

    def _answers(self) -> Sequence[SiteStatistics]:
        held = self.model().statistics(self.balancer.collection.delta, TUPLE)
        return [
            SiteStatistics(
                site=s.site, utilisation=s.utilisation,
                processed={(Pair(0, part), c): n for (part, c), n in _parts(s)},
            )
            for s in held
        ]  # fmt: skip

    def _carry_out(self, orders: Sequence[object]) -> int:
        """What the nodes report of the moves just ordered, until they are folded in."""
        made = [order.node for order in orders if isinstance(order, Instantiate)]
        logged = len(self.controller.log)
        started = time.process_time()
        for node in made:
            view = self.controller.pairs[node.pair]
            self.controller.notice(CatchUpReady(node.pair, self.controller.failures))
            self.controller.notice(CatchUpDone(node.pair, view.attempts))
            for near in (THE_INGRESS, self.controller.shape.egress):
                self.controller.notice(FoldInDone(node.pair, view.attempts, near))
        if made:
            self.costs.moves.append((time.process_time() - started) / len(made))
        grown = len(self.controller.log) - logged + 2 * len(made)
        self.costs.messages += grown * self.sites + 4 * len(made)
        return len(made)


def _parts(site: SiteStatistics) -> list[tuple[tuple[int, int], float]]:
    """(partition, copy) and tuples, as the share model names them."""
    return list(site.processed.items())  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Connections:
    """What the connections of one site cost while every channel carries one unit.

    Attributes:
        channels: pairs of nodes that talk, of both directions.
        memory: bytes held by this site's ends.
        message: processor seconds per message, for both ends together.
        per_frame: messages of a frame.
    """

    channels: int
    memory: float
    message: float
    per_frame: float


def connections(sites: int) -> Connections:
    """One site among so many: half of its copies feed the other half of all, and are acknowledged."""
    half = PER_SITE // 2
    here = [Node(0, i, 0, 0) for i in range(half)]
    ends = [(Multiplexer(), Multiplexer()) for _ in range(sites - 1)]
    channels, frames, messages, spent = 0, 0, 0, 0.0
    units = [Data(1, ())] * half
    for peer, (mine, other) in enumerate(ends):
        there = [Node(1, half * (peer + 1) + i, 0, 0) for i in range(half)]
        channels += 2 * half * half
        started = time.process_time()
        for src in here:
            for dst, unit in zip(there, units, strict=True):
                mine.send(src, dst, unit)
                messages += 1
        while (frame := mine.next_frame()) is not None:
            other.receive(frame)
            frames += 1
        for dst in there:
            for src in other.readable(dst):
                other.take(src, dst)
                other.send(dst, src, Ack(1))
                messages += 1
        while (frame := other.next_frame()) is not None:
            mine.receive(frame)
            frames += 1
        for src in here:
            for dst in mine.readable(src):
                mine.take(dst, src)
        spent += time.process_time() - started
    return Connections(
        channels=channels, memory=_held(half) * (sites - 1),
        message=spent / messages, per_frame=messages / frames,
    )  # fmt: skip


def _held(half: int) -> float:
    """Bytes that one end holds once all its channels have been used."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    end = Multiplexer()
    for i in range(half):
        for j in range(half):
            end.send(Node(0, i, 0, 0), Node(1, j, 0, 0), Data(1, ()))
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return float(held)


def scale(quick: bool) -> Result:
    """Rounds, moves, memory of the controller, and connections."""
    rows: list[Row] = []
    curves: dict[str, list[tuple[float, float]]] = {
        "a round without moves": [], "a move": [], "per pair of operators": [], "per pair of sites": []
    }  # fmt: skip
    for sites in (8, 32) if quick else (32, 256, 1024):
        tracemalloc.start()
        run = Balanced(sites)
        held = tracemalloc.get_traced_memory()[0] / 1e6
        tracemalloc.stop()
        static = run.model().rate()
        rounds = run.settle(ROUNDS_MAX if sites > 256 else 60)
        gained = run.model().rate() / static
        moves = len(run.controller.log) // 3  # a move is a failure, a standby and a start
        idle = Balanced(sites, load=False)
        idle.settle(1)
        quiet, each = idle.costs.rounds[0] * 1e3, median(run.costs.moves) * 1e3
        net = connections(sites)
        pairs = len(run.controller.pairs)
        per_site = 2 * 4 * (pairs // 2) ** 2 / sites
        n = float(sites)
        curves["a round without moves"].append((n, quiet))
        curves["a move"].append((n, each))
        curves["per pair of operators"].append((n, per_site))
        curves["per pair of sites"].append((n, n - 1))
        rows += [
            Row(what=f"{sites} sites, {pairs:,} pairs: moves in {rounds} rounds", ours=moves),
            Row(what=f"{sites} sites: after these rounds / static", ours=gained,
                within=(1.1 if sites > 256 else 1.5, 2.4)),
            Row(what=f"{sites} sites: simulated seconds that they take", ours=run.now),
            Row(what=f"{sites} sites: controller, a round without moves, ms of processor", ours=quiet,
                within=(0.0, 2000.0)),
            Row(what=f"{sites} sites: controller, a round with its plan, ms (most)",
                ours=max(run.costs.rounds) * 1e3),
            Row(what=f"{sites} sites: controller, a move, ms of processor", ours=each,
                within=(0.0, 500.0)),
            Row(what=f"{sites} sites: messages from and to the controller, per move",
                ours=run.costs.messages / max(moves, 1)),
            Row(what=f"{sites} sites: controller's memory, MB", ours=held),
            Row(what=f"{sites} sites: connections per site, one per pair of operators",
                paper="4 n m", ours=per_site),
            Row(what=f"{sites} sites: connections per site, one per pair of sites", ours=n - 1),
            Row(what=f"{sites} sites: channels on them", ours=net.channels),
            Row(what=f"{sites} sites: memory of all ends of a site, MB", ours=net.memory / 1e6),
            Row(what=f"{sites} sites: messages per frame", ours=net.per_frame,
                within=(PER_SITE**2 / 8, PER_SITE**2)),
            Row(what=f"{sites} sites: a message through both ends, us of processor",
                ours=net.message * 1e6, within=(0.0, 200.0)),
        ]  # fmt: skip
    return Result(
        rows=tuple(rows),
        charts=(
            Chart(title="SCALE  the controller", x="sites (log)", y="processor time, ms (log)",
                  log_x=True, log_y=True,
                  series=tuple(Series(n, tuple(curves[n]), True)
                               for n in ("a round without moves", "a move"))),
            Chart(title="SCALE  connections per site, 16 copies per site in two stages",
                  x="sites (log)", y="connections (log)", log_x=True, log_y=True,
                  series=tuple(Series(n, tuple(curves[n]), True)
                               for n in ("per pair of operators", "per pair of sites"))),
        ),
    )  # fmt: skip


EXPERIMENTS = (
    Experiment(
        id="SCALE",
        title="32, 256 and 1,024 sites",
        source="beyond the papers; 4 n m connections: specification 7.4",
        setup="16 copies on every site, an eighth of the sites loaded, thresholds of the simulation",
        derived=(
            "controller, balancer and multiplexer are the product's own; sites are the share model",
            f"up to {AT_ONCE} moves at once, each {MOVE_SECONDS} s, with all reports of its nodes",
            f"with more than 256 sites, {ROUNDS_MAX} rounds; with fewer, until nothing moves",
            "memory of connections: one end with every channel used, times their number",
        ),
        run=scale,
    ),
)

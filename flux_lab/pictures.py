"""Pictures of a run under the virtual clock: over time, where copies stood, and one failure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from blazes.document.charts import Chart, Event, Series
from blazes.document.placement import Lane, Placement, Stay
from flux_lab.costs import History, Passed, Trace
from flux_lab.papers.protocol.messages import (
    Ack,
    Avail,
    CatchUpReady,
    CatchUpStart,
    Csync,
    Data,
    Fail,
    FoldInDone,
    LogEntry,
    Message,
    Pause,
    PauseAck,
    Progress,
    Psync,
    Reverse,
)
from flux_lab.scenario import Outcome
from flux_lab.spacetime import Arrow, Line, Phase, SpaceTime
from flux_lab.timed import Timed
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node, Pair

BINS: Final = 48
SOFT_MAX: Final = 130
"""Most rows and acknowledgements that a space-time diagram shows one by one."""
CONTROLLER: Final = "controller"
LOOKS: Final = (
    ("soft", "rows and acknowledgements"),
    ("bad", "failure"),
    ("3", "the controller's log, and reports to it"),
    ("1", "take-over"),
    ("4", "pause"),
    ("2", "state"),
    ("0", "markers of the new version"),
)


def events(outcome: Outcome) -> tuple[Event, ...]:
    """Faults, catch-ups and moves of the balancer."""
    entries: list[Event] = []
    for at, fault, hit in outcome.struck:
        if fault.until is not None:
            until = min(fault.until, outcome.end)
            name = f"{hit} {fault.kind}"
            entries.append(Event(at=at, until=until, kind=f"site {fault.kind}", name=name))
        else:
            bad = fault.kind != "join"
            entries.append(Event(at=at, kind="fault" if bad else "a site joins",
                               name=f"{fault.kind} of {hit}", bad=bad))  # fmt: skip
    trace = outcome.trace
    for start, end, moves in trace.rounds:
        if moves:
            entries.append(Event(at=start, until=end, kind="moves of the balancer"))
    for start, *_, took in trace.moves:
        if not any(a <= start <= b for a, b, n in trace.rounds if n):
            entries.append(Event(at=start, until=start + took, kind="state moves for a recovery"))
    return tuple(entries)


def over_time(outcome: Outcome) -> tuple[Chart, ...]:
    """Throughput and latency."""
    end, trace = outcome.end, outcome.trace
    width = end / BINS
    happened = events(outcome)
    latency: list[list[float]] = [[] for _ in range(BINS + 1)]
    for at, took in outcome.latencies:
        latency[min(int(at / width), BINS)].append(took * 1e3)
    middle = [(i + 0.5) * width for i in range(BINS)]
    return (
        Chart(
            title=f"Seed {outcome.scenario.seed}: output",
            x="time, s",
            y="rows/s",
            series=(Series("output", tuple(trace.rates(end + width / 2, width))),),
            events=happened,
        ),
        Chart(
            title="Latency, from when a batch is due until its rows leave",
            x="time, s",
            y="ms (log)",
            log_y=True,
            series=(
                Series("median", _points(middle, (quantile(held, 0.5) for held in latency))),
                Series("slowest", _points(middle, (quantile(held, 1.0) for held in latency))),
            ),
            events=tuple(
                Event(at=e.at, until=e.until, kind=e.kind, bad=e.bad) for e in happened
            ),
        ),
    )  # fmt: skip


def _points(places: Sequence[float], values: Iterable[float]) -> tuple[tuple[float, float], ...]:
    return tuple(zip(places, values, strict=False))


def quantile(values: Sequence[float], part: float) -> float:
    """The value that `part` of them do not exceed; not a number if there are none."""
    if not values:
        return float("nan")
    held = sorted(values)
    return held[min(len(held) - 1, int(part * len(held)))]


def placed(outcome: Outcome) -> Placement:
    """Every copy's site over time; pale from its creation until it is folded in everywhere."""
    trace, end = outcome.trace, outcome.end
    stays: dict[tuple[Pair, int], list[Stay]] = {}
    ended = {node: at for at, node in reversed(trace.ended)}
    whole_times = {node: at for at, node in reversed(trace.whole)}
    began = [(0.0, node, site) for node, site in outcome.timed.first.items()]
    for start, node, site in began + trace.placed:
        stop = min(ended.get(node, end), end)
        ready = start if node.life == 0 else min(whole_times.get(node, stop), stop)
        held = stays.setdefault((node.pair, node.copy), [])
        if ready > start:
            held.append(Stay(start=start, end=ready, place=site, ready=False))
        if stop > ready:
            held.append(Stay(start=ready, end=stop, place=site))
    lanes = (
        Lane(name=str(Node(*pair, copy, 0)), stays=tuple(held))
        for (pair, copy), held in sorted(stays.items())
    )
    return Placement(
        title=f"Seed {outcome.scenario.seed}: where each copy stood",
        x="time, s",
        lanes=tuple(lanes),
        events=tuple(e for e in events(outcome) if e.until is None),
    )


# ---- one failure


def failure(timed: Timed, *, title: str) -> SpaceTime | None:
    """The first pair that was recovered, with its neighbours; None if none ever was."""
    history, trace = timed.history, timed.trace
    assert history is not None
    losses = [_loss(timed, history, node, at) for at, node in trace.whole]
    if not losses:
        return None
    crash, failed, whole_at, standby = next((x for x in losses if x[1] > x[0]), losses[0])
    pair = standby.pair
    nodes = _cast(timed, pair, standby, crash)
    names = _Names(nodes, timed.world.dataflow.shape.egress)
    margin = max((whole_at - crash) * 0.04, 2e-3)
    start, end = crash - margin, whole_at + margin
    arrows = [*_loud(history, names, pair, start, end), *_states(trace, names, start, end)]
    return SpaceTime(
        title=title,
        lines=(*(_line(timed, node, names.of(node), end) for node in nodes), Line(name=CONTROLLER)),
        arrows=(*_soft(history, names, start, end), *arrows),
        phases=_phases(timed, history, pair, standby, (crash, failed, whole_at, end)),
        looks=LOOKS,
        start=start,
        end=end,
        origin=crash,
    )


def _loss(
    timed: Timed, history: History, standby: Node, whole_at: float
) -> tuple[float, float, float, Node]:
    """When the copy that a standby replaces went, when all could know, when all was well again.

    A copy that moves goes when all could know; one that fails, earlier.
    """
    same = (standby.pair, standby.copy)
    failed = max(
        at
        for at, entry in history.log
        if isinstance(entry, Fail) and (entry.pair, entry.copy) == same and at <= whole_at
    )
    gone = [at for at, n in timed.trace.ended if (n.pair, n.copy) == same and at <= failed]
    return max(gone, default=failed), failed, whole_at, standby


class _Names:
    """Who has a line, and what it is called."""

    def __init__(self, nodes: Sequence[Node], egress: Node) -> None:
        self.nodes = frozenset(nodes)
        self.egress = egress

    def of(self, node: Node) -> str:
        """The name of a node."""
        return "egress" if node == self.egress else str(node)


def _cast(timed: Timed, pair: Pair, standby: Node, crash: float) -> list[Node]:
    """The pair with the copy that is lost, and one pair before and behind it."""
    shape = timed.world.dataflow.shape
    created = {node: at for at, node, _ in timed.trace.placed}
    ended = {node: at for at, node in reversed(timed.trace.ended)}
    there = [
        node
        for node in _everybody(timed)
        if created.get(node, 0.0) < crash <= ended.get(node, crash)
    ]
    result: list[Node] = []
    for stage in (pair.stage - 1, pair.stage, pair.stage + 1):
        if stage < 0:
            result.append(THE_INGRESS)
        elif stage == len(shape.widths):
            result.append(shape.egress)
        elif stage == pair.stage:
            result += sorted([standby, *(node for node in there if node.pair == pair)])
        else:
            part = min(pair.part, shape.widths[stage] - 1)
            result += sorted(node for node in there if node.pair == (stage, part))
    return result


def _everybody(timed: Timed) -> list[Node]:
    shape = timed.world.dataflow.shape
    first = [Node(*pair, c, 0) for pair in shape.pairs() for c in range(shape.copies)]
    return first + [node for _, node, _ in timed.trace.placed]


def _line(timed: Timed, node: Node, name: str, until: float) -> Line:
    trace, world = timed.trace, timed.world
    if world.dataflow.shape.outside(node.stage):
        return Line(name=name)
    created = {n: (at, site) for at, n, site in trace.placed}
    ended = {n: at for at, n in reversed(trace.ended) if at <= until}
    start, site = created.get(node, (None, None))
    if site is None:
        site = timed.first.get(node)
    ready = next((at + took for at, _, dst, _, took in trace.moves if dst == node), None)
    still = tuple((at, at + took) for at, src, _, _, took in trace.moves if src == node)
    return Line(
        name=name, under=f"site {site}" + (", new" if start is not None else ""), start=start,
        ready=ready, end=ended.get(node), died=node in ended, still=still,
    )  # fmt: skip


def _soft(history: History, names: _Names, start: float, end: float) -> list[Arrow]:
    """Rows and acknowledgements; if they are many, only every so many of each link."""
    held = [
        m for m in history.messages
        if isinstance(m.message, Data | Ack) and _shown(m, names) and start <= m.sent <= end
    ]  # fmt: skip
    every = -(-len(held) // SOFT_MAX)
    if every > 1:
        numbers = sorted({m.message.batch for m in held if isinstance(m.message, Data | Ack)})
        sample = set(numbers[::every])
        held = [m for m in held if isinstance(m.message, Data | Ack) and m.message.batch in sample]
    return [_arrow(m, names, "", "soft", end) for m in held]


def _shown(passed: Passed, names: _Names) -> bool:
    return passed.src in names.nodes and passed.dst in names.nodes


def _arrow(passed: Passed, names: _Names, name: str, look: str, end: float) -> Arrow:
    taken = passed.taken if passed.taken is not None and passed.taken <= end else None
    return Arrow(tail=names.of(passed.src), head=names.of(passed.dst),
                 sent=passed.sent, taken=taken, name=name, look=look)  # fmt: skip


def _look(message: Message) -> tuple[str, str] | None:
    """The name of a control message, and its colour."""
    match message:
        case Data() | Ack() | Progress():
            return None
        case Reverse():
            return "reverse", "1"
        case Pause():
            return "pause", "4"
        case PauseAck():
            return "pause-ack", "4"
        case Csync(version):
            return f"csync {version}", "0"
        case Psync(version):
            return f"psync {version}", "0"


def _loud(history: History, names: _Names, pair: Pair, start: float, end: float) -> list[Arrow]:
    """Control messages, the log entries of the pair, and its reports."""
    result = []
    for passed in history.messages:
        looks = _look(passed.message)
        if looks and _shown(passed, names) and start <= passed.sent <= end:
            result.append(_arrow(passed, names, *looks, end))
    for read, node, entry in history.read:
        written = next(at for at, e in history.log if e == entry)
        if node in names.nodes and entry.pair == pair and start <= written and read <= end:
            name, look = _entry(entry)
            result.append(Arrow(tail=CONTROLLER, head=names.of(node), sent=written, taken=read,
                               name=name, look=look))  # fmt: skip
    for sent, taken, node, notice in history.notices:
        if node in names.nodes and notice.pair == pair and start <= sent <= end:
            name = (
                "ready" if isinstance(notice, CatchUpReady)
                else "folded in" if isinstance(notice, FoldInDone) else "done"
            )  # fmt: skip
            result.append(Arrow(tail=names.of(node), head=CONTROLLER, sent=sent, taken=taken,
                               name=name, look="3"))  # fmt: skip
    return result


def _entry(entry: LogEntry) -> tuple[str, str]:
    match entry:
        case Fail():
            return "fail", "bad"
        case Avail():
            return "avail", "3"
        case CatchUpStart():
            return "start", "3"
    return "commit", "3"


def _states(trace: Trace, names: _Names, start: float, end: float) -> list[Arrow]:
    return [
        Arrow(tail=names.of(src), head=names.of(dst), sent=at, taken=at + took,
              name=f"state, {size / 1e6:.2g} MB", look="2")
        for at, src, dst, size, took in trace.moves
        if src in names.nodes and dst in names.nodes and start <= at and at + took <= end
    ]  # fmt: skip


def _phases(
    timed: Timed,
    history: History,
    pair: Pair,
    standby: Node,
    times: tuple[float, float, float, float],
) -> tuple[Phase, ...]:
    crash, failed, whole_at, end = times
    begun = max((at for at, e in history.log if isinstance(e, CatchUpStart) and e.pair == pair
                 and failed <= at <= whole_at), default=whole_at)  # fmt: skip
    moves = [(at, at + took) for at, _, dst, _, took in timed.trace.moves if dst == standby]
    leaves, arrives = moves[-1] if moves else (begun, begun)
    phases = (
        Phase(name="not noticed yet", start=crash, end=failed),
        Phase(name="take-over", start=failed, end=begun),
        Phase(name="catch-up: pause", start=begun, end=leaves),
        Phase(name="state moves", start=leaves, end=arrives),
        Phase(name="fold-in", start=arrives, end=whole_at),
        Phase(name="whole again", start=whole_at, end=end),
    )
    return tuple(phase for phase in phases if phase.end > phase.start)

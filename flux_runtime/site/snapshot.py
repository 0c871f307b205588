"""The state of a ledger as bytes, taken when all pairs are whole, in place of its events.

A whole state has no catch-up in hand and no loss, so it is little: who lives, where copies stand,
the counters, and the last entries of the controller's log for sites that have yet to read them.
"""

from __future__ import annotations

import json
from typing import Any, Final

from flux_runtime.protocol.orders import Copy, PairView
from flux_runtime.protocol.vocabulary import Pair, Status
from flux_runtime.site.control_messages import entry_from_json, entry_to_json
from flux_runtime.site.ledger import Layout, Ledger, SiteRecord

VERSION: Final = 3


def snapshot(ledger: Ledger) -> bytes:
    """The ledger's state.

    Raises:
        ValueError: something is to be recovered.
    """
    controller = ledger.controller
    if controller is None or not ledger.is_whole:
        raise ValueError("only a whole state can be kept")
    assert ledger.layout is not None
    assert ledger.later is not None
    state = {
        "v": VERSION,
        "events": ledger.events,
        "leaders": ledger.leaders,
        "joined": ledger.joined,
        "moves": ledger.moves,
        "stopped": ledger.stopped,
        "failures": controller.failures,
        "sites": [[s.number, s.id, *s.address, s.host, s.executor] for s in ledger.sites.values()],
        "fenced": list(ledger.fenced),
        "layout": _layout(ledger.layout),
        "later": _layout(ledger.later),
        "entries": [entry_to_json(entry) for entry in ledger.entries],
        "numbers": ledger.numbers_given,
        "pairs": [
            [*pair, [[c.life, c.site] for c in view.copies if c], view.attempts, view.ready]
            for pair, view in controller.pairs.items()
        ],
    }
    return json.dumps(state, separators=(",", ":")).encode()


def _layout(layout: Layout) -> dict[str, Any]:
    copies = [
        [*pair, copy, site, layout.lives.get((pair, copy), 0)]
        for (pair, copy), site in layout.placement.items()
    ]
    return {
        "at": layout.at,
        "copies": copies,
        "ingress": layout.ingress,
        "done": layout.done,
    }


def restore(ledger: Ledger, data: bytes) -> None:
    """Bring a new ledger of the same dataflow into the state that `snapshot` gave.

    Raises:
        ValueError: another version wrote it.
    """
    state = json.loads(data)
    if state["v"] != VERSION:
        raise ValueError(f"the kept state has version {state['v']}, not {VERSION}")
    ledger.events = ledger.kept = state["events"]
    ledger.leaders, ledger.joined = state["leaders"], state["joined"]
    ledger.moves, ledger.stopped = state["moves"], state["stopped"]
    for number, id_, host, port, machine, executor in state["sites"]:
        ledger.sites[number] = SiteRecord(number, id_, (host, port), machine, executor)
        ledger.numbers[id_] = number
        ledger.executor_of[number] = (machine, executor)
    ledger.fenced = dict.fromkeys(state["fenced"])
    ledger.layout, ledger.later = _restored(state["layout"]), _restored(state["later"])
    ledger.entries = [entry_from_json(entry) for entry in state["entries"]]
    pairs = {
        Pair(stage, part): PairView(_copies(copies), attempts, ready)
        for stage, part, copies, attempts, ready in state["pairs"]
    }
    ledger.take_up(pairs, state["failures"], state["numbers"])


def _copies(copies: list[list[int]]) -> tuple[Copy | None, ...]:
    active = [Copy(Status.ACTIVE, life, site) for life, site in copies]
    return (active[0], active[1] if len(active) == 2 else None)


def _restored(value: dict[str, Any]) -> Layout:
    copies = [((Pair(s, p), c), site, life) for s, p, c, site, life in value["copies"]]
    return Layout(
        value["at"],
        {which: site for which, site, _ in copies},
        {which: life for which, _, life in copies if life},
        value["ingress"],
        value["done"],
    )

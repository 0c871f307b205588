"""Events as sites and nodes would send them, for tests of the ledger."""

from __future__ import annotations

from flux_lab.papers.hosted import notice_hosted
from flux_lab.papers.protocol.messages import CatchUpDone, CatchUpReady, FoldInDone, Notice
from flux_runtime.protocol.orders import Phase
from flux_runtime.protocol.vocabulary import Status
from flux_runtime.resume.messages import Copy
from flux_runtime.site.control_messages import notice_to_json
from flux_runtime.site.ledger import Event, Ledger
from flux_runtime.site.resume_ledger import ResumeLedger


def joined(n: int, executor: str | None = None) -> Event:
    """A site registers, in an executor of its own if none is said."""
    event = {"e": "joined", "id": f"{n}.0", "address": ["127.0.0.1", 1000 + n], "host": "h"}
    return event | {"executor": executor or str(n)}


def recovered(ledger: Ledger) -> list[Event]:
    """The notices that make everything whole, as the nodes would send them."""
    controller = ledger.controller
    assert controller is not None
    if isinstance(ledger, ResumeLedger):
        copies = [
            Copy(*node.pair, node.life)
            for node, copy in controller.nodes()
            if copy.status is Status.STANDBY
        ]
        return [{"e": "noticed", "notice": ["works", *copy]} for copy in copies]
    (now,) = controller.in_hand
    waits = controller._neighbours(now.pair) - now.folded
    notices: list[Notice] = [FoldInDone(now.pair, now.attempt, node) for node in sorted(waits)]
    if now.phase is Phase.ANNOUNCED:
        notices = [CatchUpReady(now.pair, controller.failures)]
    elif now.phase is Phase.STARTED:
        notices = [CatchUpDone(now.pair, now.attempt)]
    return [{"e": "noticed", "notice": notice_to_json(notice_hosted(n))} for n in notices]

"""Spreads the sites of a stage over the executors again, after some were lost and others came.

While an executor is missing, its sites come back in those that are left, perhaps all in one, whose
loss would then take both copies of every pair. A site that is sent away from there comes back in
another executor, and the leader takes the copies of pairs apart (`Ledger`, CT-4).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

from flux_runtime.site.client import Client
from flux_runtime.site.config import Config
from flux_runtime.zookeeper.client import connect
from flux_runtime.zookeeper.nodes import app_path, delete

PATIENCE_S: Final = 5.0


def send_one_site_away(config: Config, seats: Path, *, sites: int, room: int) -> int | None:
    """Have a site leave an executor that holds too many; its place, or None if all is well.

    Args:
        config: how the stage is reached.
        seats: where sites say which executor they are in.
        sites: how many the stage has.
        room: how many an executor is to hold at most.

    Raises:
        Unreachable: no controller answers.
        DataLost: a pair has lost both copies.
        ZooKeeperProblem: ZooKeeper cannot be reached.
    """
    taken = Counter(seat.parent.name for seat in seats.glob("*/*"))
    if max(taken.values(), default=0) <= room:
        return None
    with Client(config, patience_s=PATIENCE_S) as client:
        identity = site_to_move(client.status(), sites=sites, room=room)
    if identity is None:
        return None
    assert config.zookeeper is not None
    with connect(config.zookeeper) as zookeeper:  # this fences it, as the leader would
        delete(zookeeper, [f"{app_path(config.app, 'sites')}/{identity}"])
    return int(identity.partition(".")[0])


def site_to_move(status: dict[str, Any], *, sites: int, room: int) -> str | None:
    """The identity of a site that had better be in another executor.

    None while anything recovers: until its copies are elsewhere, a pair has only one.
    """
    if not status["whole"] or len(status["sites"]) < sites:
        return None
    together: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for site in status["sites"]:
        together.setdefault((site["host"], site["executor"]), []).append(site)
    fullest = max(together.values(), key=len)
    if len(fullest) <= room:
        return None
    copies = Counter(at for *_, at, _ in status["copies"])
    identity: str = min(fullest, key=lambda site: copies[site["number"]])["id"]
    return identity

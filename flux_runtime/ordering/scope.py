"""Where an order lives in ZooKeeper, and how far it may be forgotten (OR-2, OR-5).

    /blazes/APP/order/SCOPE/places/n-...    the places (OR-2)
    /blazes/APP/order/SCOPE/base            the order up to the first place that is kept
    /blazes/APP/order/SCOPE/consumers/NAME  the first place that this consumer has not passed

SCOPE is the name of the order, of which an application may have several. Whoever wants to know the
state of the order without its history starts from `base`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from kazoo.exceptions import BadVersionError, NodeExistsError

from flux_runtime.ordering.places import Claims, Order, Verdicts, decode
from flux_runtime.zookeeper import tail
from flux_runtime.zookeeper.client import Client
from flux_runtime.zookeeper.nodes import app_path, ask, children, ensure, read, sync
from flux_runtime.zookeeper.znode_names import znode_name

ALL: Final = "all"
"""The scope of one order for everything in an application."""

Seen = Callable[[int, Claims, Verdicts], None]


class Scope:
    """One order; made by whoever proposes, reads or trims.

    Args:
        client: a session.
        app: name of the application.
        scope: its name.
    """

    def __init__(self, client: Client, app: str, scope: str = ALL) -> None:
        self.client = client
        self.name = scope
        folder = app_path(app, "order", znode_name((scope,)))
        self.places = f"{folder}/places"
        self._base = f"{folder}/base"
        self._consumers = f"{folder}/consumers"
        ensure(client, self.places)
        ensure(client, self._consumers)

    def base(self) -> Order:
        """The order up to the first place that is kept."""
        node = read(self.client, self._base)
        return Order() if node is None else Order.from_json(json.loads(node[0]))

    def register(self, consumer: str, passed: int) -> int:
        """Keep the places from `passed` on for a consumer, if they are still there.

        Returns:
            The first place that is kept for it: what it had passed when it was registered before,
            else `passed`.
        """
        path = self._consumer(consumer)
        try:
            ask(self.client, lambda: self.client.kazoo.create_async(path, b"%d" % passed))
        except NodeExistsError:
            node = read(self.client, path)
            return int(node[0]) if node else passed
        return passed

    def passed(self, consumer: str, place: int) -> None:
        """A consumer will not ask for places below this one again."""
        ask(
            self.client,
            lambda: self.client.kazoo.set_async(self._consumer(consumer), b"%d" % place),
        )

    def consumers(self) -> dict[str, int]:
        """Registered consumer -> the first place it has not passed."""
        places: dict[str, int] = {}
        for name in children(self.client, self._consumers):
            data = read(self.client, f"{self._consumers}/{name}")
            if data is not None:
                places[name] = int(data[0])
        return places

    def end(self) -> int:
        """The place that comes next, also if it was another server that gave the last one."""
        sync(self.client, self.places)
        return tail.end_of(self.client, self.places)

    def trim(self) -> int:
        """Forget what every registered consumer has passed (OR-5); how many places.

        Without a registered consumer nothing is forgotten. The base is written first, so that it
        never says less than is gone.
        """
        below = min(self.consumers().values(), default=0)
        node = read(self.client, self._base)
        order = self.base()
        if below <= order.at:
            return tail.trim(self.client, self.places, order.at)
        try:
            catch_up(self, order, to=below)
        except tail.Trimmed:
            return 0  # somebody else trims
        data = json.dumps(order.to_json()).encode()
        try:
            if node is None:
                ask(self.client, lambda: self.client.kazoo.create_async(self._base, data))
            else:
                version = node[1]
                ask(
                    self.client,
                    lambda: self.client.kazoo.set_async(self._base, data, version=version),
                )
        except (NodeExistsError, BadVersionError):
            return 0  # somebody else trims, or the answer was lost: the next call goes on
        return tail.trim(self.client, self.places, below)

    def _consumer(self, name: str) -> str:
        return f"{self._consumers}/{znode_name((name,))}"


def catch_up(
    scope: Scope, order: Order, *, to: int | None = None, seen: Seen | None = None
) -> None:
    """Read places into an order, up to one or to the end; `seen` is given every place.

    Raises:
        Trimmed: the places after `order.at` have been forgotten.
    """
    to = scope.end() if to is None else to
    reader = tail.Reader(scope.client, scope.places, order.at)
    while order.at < to:
        for place, data in reader.read():
            if place >= to:
                return
            claims = decode(data)
            verdicts = order.handle(place, claims)
            if seen is not None:
                seen(place, claims, verdicts)

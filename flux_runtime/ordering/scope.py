"""Where an order lives in ZooKeeper, and how far it may be forgotten (OR-2, OR-5, OR-6).

    /blazes/APP/order/buckets               how many gate buckets there are, for the life of the job
    /blazes/APP/order/SCOPE/places/n-...    the places (OR-2)
    /blazes/APP/order/SCOPE/base            the order up to the first place that is kept
    /blazes/APP/order/SCOPE/consumers/NAME  the first place that this consumer has not passed

SCOPE is `all`, or one of the gate's buckets. Whoever wants to know the state of the order without
its history starts from `base`; whoever wants the history reads the run's order log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kazoo.exceptions import BadVersionError, NodeExistsError

from flux_runtime.operators.rows import Batch as Rows
from flux_runtime.operators.rows import KeySplit
from flux_runtime.ordering.places import Claims, Order, Verdicts, decode
from flux_runtime.zookeeper import tail
from flux_runtime.zookeeper.client import Client
from flux_runtime.zookeeper.nodes import app_path, ask, children, delete, ensure, read, sync
from flux_runtime.zookeeper.znode_names import znode_name

ALL: Final = "all"
"""The scope of one order for everything."""

Seen = Callable[[int, Claims, Verdicts], None]


class BucketsDiffer(ValueError):  # noqa: N818 - what happened
    """The job orders by another number of buckets than before; they are fixed for its life."""


def bucket_scope(bucket: int) -> str:
    """The scope of a gate bucket.

    >>> bucket_scope(7)
    'gate-007'
    """
    return f"gate-{bucket:03d}"


def fix_buckets(client: Client, app: str, buckets: int) -> None:
    """Fix the number of gate buckets, once for the life of the job (OR-6).

    Raises:
        BucketsDiffer: another number has been fixed.
    """
    if buckets < 1:
        raise ValueError(f"at least one bucket, not {buckets}")
    path = app_path(app, "order", "buckets")
    ensure(client, path.rpartition("/")[0])
    try:
        ask(client, lambda: client.kazoo.create_async(path, b"%d" % buckets))
    except NodeExistsError:
        found = read(client, path)
        fixed = int(found[0]) if found else buckets
        if fixed != buckets:
            raise BucketsDiffer(
                f"the order of {app} has {fixed} gate buckets, not {buckets}; start afresh to "
                "change that"
            ) from None


def split_by_bucket(rows: Rows, gate: Sequence[str], buckets: int) -> Mapping[int, Rows]:
    """The rows of each bucket, in their order; the same everywhere and always (OR-6)."""
    return KeySplit({0: gate})(0, rows, buckets)


class Scope:
    """One order; made by whoever proposes, follows, records or trims.

    Args:
        client: a session.
        app: name of the application.
        scope: `all`, or one of `bucket_scope`.
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
        found = read(self.client, self._base)
        return Order() if found is None else Order.from_json(json.loads(found[0]))

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
            found = read(self.client, path)
            return int(found[0]) if found else passed
        return passed

    def passed(self, consumer: str, place: int) -> None:
        """A consumer will not ask for places below this one again."""
        ask(
            self.client,
            lambda: self.client.kazoo.set_async(self._consumer(consumer), b"%d" % place),
        )

    def unregister(self, consumer: str) -> None:
        """Nothing is kept for this consumer any more."""
        delete(self.client, [self._consumer(consumer)])

    def consumers(self) -> dict[str, int]:
        """Registered consumer -> the first place it has not passed."""
        found: dict[str, int] = {}
        for name in children(self.client, self._consumers):
            data = read(self.client, f"{self._consumers}/{name}")
            if data is not None:
                found[name] = int(data[0])
        return found

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
        found = read(self.client, self._base)
        order = self.base()
        if below <= order.at:
            return tail.trim(self.client, self.places, order.at)
        try:
            catch_up(self, order, to=below)
        except tail.Trimmed:
            return 0  # somebody else trims
        data = json.dumps(order.to_json()).encode()
        try:
            if found is None:
                ask(self.client, lambda: self.client.kazoo.create_async(self._base, data))
            else:
                version = found[1]
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

"""A site's connections to the other sites of the view, and what it tells the leader of them.

Of two sites the later one dials. Whoever is gone is missed without any accusation: its connections
are closed, or its session ends. So a site accuses another on two grounds only: a connection that
was closed, and a site that could not be reached for as long as a session lives. One that is slow,
or was paused for less than that, has lost nothing by it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from flux_runtime.site.connection import Connection, dial
from flux_runtime.site.control_messages import Introduction, LinkLost, SiteAddress, reason
from flux_runtime.site.host import LEADER
from flux_runtime.site.shell import Link, Shell

DIAL_TIMEOUT_S: Final = 5.0
"""So long an attempt to connect may take; then it is tried again."""
AGAIN_S: Final = 0.05


class Neighbours:
    """The other sites.

    Args:
        shell: of this site.
        introduce: says who this site is, on a new connection.
        spawn: runs something for as long as this site does.

    Attributes:
        addresses: of all that are in the view.
        ids: which incarnation has which number, this site's too.
        broken: sites that the leader is told to be out of reach, and why.
        waiting: connections of sites that this site's view does not know yet.
    """

    def __init__(
        self,
        shell: Shell,
        *,
        introduce: Callable[[Connection], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._shell = shell
        self._introduce = introduce
        self._spawn = spawn
        self.addresses: dict[int, tuple[str, int]] = {}
        self.ids: dict[int, str] = {}
        self.broken: dict[int, str] = {}
        self.waiting: list[tuple[Connection, Link]] = []

    def follow(self, sites: Sequence[SiteAddress]) -> None:
        """The view: who lives, and where."""
        shell = self._shell
        now = {site.number: (site.host, site.port) for site in sites}
        self.ids = {site.number: site.id for site in sites}
        for number in [n for n in self.addresses if n not in now]:
            del self.addresses[number]
            self.broken.pop(number, None)
            shell.host.disconnect(number)
            connection = shell.links.pop(number, None)
            if connection is not None:
                connection.close("removed from the view")
        for number, address in now.items():
            if number not in self.addresses and number != shell.host.me:
                self.addresses[number] = address
                shell.host.connect(number)
                if number < shell.host.me:
                    self._spawn(self._dial(number, address))
        self._seat_waiting()
        self._tell_of_broken()
        shell.host.touch_all()

    # ---- connecting

    def greeted(self, connection: Connection, link: Link) -> None:
        """Another site says who it is."""
        self.waiting.append((connection, link))
        self._seat_waiting()

    def _seat_waiting(self) -> None:
        """Other sites' greetings are answered once this site's view knows them."""
        shell = self._shell
        waiting, self.waiting = self.waiting, []
        for connection, link in waiting:
            said = link.greeting
            if connection not in shell.open or not isinstance(said, Introduction):
                continue
            number, known = said.site, self.ids.get(said.site)
            if known is None and number >= max(self.ids, default=-1):
                self.waiting.append((connection, link))
            elif known != said.id or number in shell.links:
                connection.close(f"site {number} is not, or no more, in the view")
            else:
                connection.peer = number
                link.site = number
                shell.links[number] = connection
                if not connection.dialing:
                    self._introduce(connection)
                shell.schedule()

    async def _dial(self, number: int, address: tuple[str, int]) -> None:
        """Try to reach a site for as long as a session lives; only then accuse it."""
        shell = self._shell
        patient_until = time.monotonic() + shell.config.session_timeout_s
        while self.addresses.get(number) == address and number not in self.broken:
            began = time.monotonic()
            try:
                connection = await dial(
                    shell, shell.config.key, address, peer=number, timeout_s=DIAL_TIMEOUT_S
                )
                why = await self._opening(connection, began + DIAL_TIMEOUT_S)
            except (TimeoutError, OSError) as error:
                why = type(error).__name__
            if not why:
                return  # from now on its end tells (`lost`)
            if began > patient_until:
                self.lost(number, why)
            await asyncio.sleep(AGAIN_S)

    async def _opening(self, connection: Connection, end: float) -> str:
        """Wait until both ends have proved the key; gives why they have not, else nothing."""
        while connection not in self._shell.open:
            if connection.transport is None or connection.transport.is_closing():
                return connection.why or "closed by the other end"
            if time.monotonic() > end:
                connection.close("no handshake in time")
            await asyncio.sleep(AGAIN_S)
        return ""

    # ---- out of reach

    def lost(self, number: int, why: str) -> None:
        """A site that is in the view is out of reach: the controller decides what that means."""
        if number in self.addresses:
            self.broken[number] = why
            self._tell_of_broken()

    def _tell_of_broken(self) -> None:
        """Tell whoever leads, until a view without that site comes: a leader may die over it."""
        shell = self._shell
        leader = shell.links.get(LEADER)
        if leader is not None:
            for number, why in self.broken.items():
                shell.tell(leader, LinkLost(number, reason(why)))

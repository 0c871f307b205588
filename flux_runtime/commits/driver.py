"""Drivers: the processes that run a job, one after the other, told apart by their epochs.

A job has one driver at a time. Each has an epoch greater than that of every driver before it; the
run's id decides between two that took the same number because neither saw the other.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """One process that runs a job."""

    epoch: int
    state: str
    """Id of the state folder that it works on."""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Unique to this start of the job."""
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    time: float = field(default_factory=lambda: round(time.time(), 3))
    """When it started, in seconds since 1970."""

    def replaces(self, other: Driver) -> bool:
        """Whether this driver has come after another one, which must stop.

        >>> old = Driver(epoch=7, state="s")
        >>> Driver(epoch=8, state="s").replaces(old), old.replaces(old)
        (True, False)
        """
        return (self.epoch, self.run != other.run) > (other.epoch, False)

    @property
    def label(self) -> str:
        """Names its staged files: unlike those of every other driver."""
        return f"{self.epoch:06d}-{self.run[:12]}"

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.time).astimezone().isoformat(" ", "seconds")
        return f"epoch {self.epoch}, {self.host}:{self.pid} since {since}"

    def to_bytes(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The reverse of `to_bytes`.

        Raises:
            ValueError: it is something else.
        """
        try:
            return cls.from_json(json.loads(data))
        except (TypeError, KeyError) as error:
            raise ValueError(f"no driver: {error}") from None

    @classmethod
    def from_json(cls, data: dict[str, object]) -> Self:
        """From JSON data; what a later version added is passed over."""
        names = ("epoch", "state", "run", "host", "pid", "time")
        driver = cls(**{name: data[name] for name in names})  # type: ignore[arg-type]
        if not isinstance(driver.epoch, int) or not isinstance(driver.run, str):
            raise TypeError("epoch or run")
        return driver

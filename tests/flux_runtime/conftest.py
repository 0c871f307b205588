"""Sessions with the shared server, directly and over a wire that can be cut."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from flux_runtime.zookeeper.client import Client, connect

sys.path.insert(0, str(Path(__file__).parent / "zookeeper"))

from zookeeper_wire import Wire


@pytest.fixture
def app() -> str:
    return f"app-{uuid.uuid4()}"


@pytest.fixture
def client(zookeeper_hosts: str) -> Iterator[Client]:
    with connect(zookeeper_hosts) as client:
        yield client


@pytest.fixture
def wire(zookeeper_hosts: str) -> Iterator[Wire]:
    wire = Wire(zookeeper_hosts)
    yield wire
    wire.close()


@pytest.fixture
def remote(wire: Wire) -> Iterator[Client]:
    """A session over the wire, which the server gives up after four seconds."""
    with connect(wire.hosts, session_timeout_s=4.0) as client:
        yield client
        wire.resume()

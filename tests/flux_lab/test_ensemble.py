"""Three servers that vote: the registry goes on without one of them, and not without two."""

from __future__ import annotations

from pathlib import Path

import pytest

from flux_lab.ensemble import LoopbackEnsemble
from flux_runtime.zookeeper.client import connect
from flux_runtime.zookeeper.errors import EnsembleUnreachable, ServerFailed
from flux_runtime.zookeeper.registry import ProducerRegistry

pytestmark = pytest.mark.zookeeper


def test_or7_one_server_may_die_and_two_may_not(tmp_path: Path) -> None:
    with (
        LoopbackEnsemble(tmp_path) as ensemble,
        connect(ensemble.hosts, session_timeout_s=5.0) as client,
    ):
        registry = ProducerRegistry(client, "app", timeout_s=120)
        registry.register("clicks", ("1",), ["a"])
        first = ensemble.leader()
        ensemble.kill(first)
        second = ensemble.leader()
        assert second != first
        assert registry.lookup("clicks", ("1",)) == {"a"}
        registry.register("clicks", ("2",), ["b"])
        ensemble.kill(second)
        with pytest.raises(EnsembleUnreachable):
            ProducerRegistry(client, "app", timeout_s=2).register("clicks", ("3",), ["c"])
        with pytest.raises(ServerFailed, match="no leader"):
            ensemble.leader(timeout_s=0.5)
        ensemble.restart(first)
        assert registry.lookup_many("clicks", [("1",), ("2",)]) == {("1",): {"a"}, ("2",): {"b"}}

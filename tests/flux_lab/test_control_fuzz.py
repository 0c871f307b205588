"""Attacks with control messages: a running job stands them, one with a planted mistake does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flux_lab.control_fuzz import VictimError, fuzz
from flux_runtime.site import control_messages as control
from flux_runtime.site.client_service import ClientService


def test_a_job_stands_any_control_message(tmp_path: Path) -> None:
    tried = asyncio.run(fuzz(120, 0, tmp_path))
    for pair in ("client to leader", "site to leader", "client to site", "leader to site"):
        for what in ("spoilt", "misplaced", "well-formed"):
            assert tried[f"{pair}: {what}"], f"no {what} message of a {pair}"


def unchecked_errands(self: ClientService, site: int, number: int, *, done: bool = True) -> None:
    self.errands.pop(number)


def unchecked_depth(body: memoryview, decoder: Any) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise control.Malformed(str(error)) from None


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (ClientService, "on_done", unchecked_errands),
        (control, "_decoded", unchecked_depth),
    ],
    ids=["an errand that nobody has sent", "no limit of depth"],
)
def test_a_planted_mistake_is_found(
    owner: Any,
    name: str,
    mistake: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    with pytest.raises(VictimError):
        asyncio.run(fuzz(300, 0, tmp_path))

"""Traffic of the ad-tracking network: clicks from ad servers, requests from analysts.

Blazes section I-B (figure 3) and the workload of section VIII-B: ad servers log clicks on the ads
of campaigns and say, campaign by campaign, when they have no more of them; analysts ask about
single ads while the clicks come in. In a *shared* workload every server takes part in every
campaign, in an *independent* one each campaign has one server.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, Final

from blazes.demo.files import Line, Message, Record

ANALYSTS: Final = ("amara", "bruno", "chidi", "dana", "elif", "farid", "greta", "hugo")
OPENING: Final = datetime(2026, 3, 2, 8)
HOURS: Final = 12
"""How long the traffic lasts, in windows of an hour, on the generator's clock."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much traffic there is. Servers and ads differ in speed and popularity."""

    servers: int = 5
    campaigns: int = 24
    ads: int = 10
    """In each campaign; every fifth of them comes from the next campaign and runs in both."""
    clicks: int = 40_000
    requests: int = 240
    independent: bool = False

    def __post_init__(self) -> None:
        for name in ("servers", "campaigns", "ads", "clicks", "requests"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class Traffic:
    """Messages in order of arrival, and the producers of each campaign."""

    clicks: tuple[Message, ...]
    """Clicks and punctuations, in no order: `at` is the hour of arrival."""
    requests: tuple[Message, ...]
    campaigns: Mapping[str, tuple[str, ...]]
    """Campaign -> the servers that contribute to it."""
    windows: Mapping[str, tuple[str, ...]]
    """Window -> the servers that contribute to it."""

    def click_records(self) -> list[dict[str, Any]]:
        """The clicks alone, without punctuations."""
        return [r for r in records(self.clicks) if not r["sealed"]]


def records(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The records of messages, without lines that are no records."""
    return [dict(message.line) for message in messages if not isinstance(message.line, str)]


def traffic(size: Size, *, seed: int, seal: str = "campaign") -> Traffic:
    """Clicks with punctuations on `seal` (`campaign` or `window`), and requests.

    The same arguments give the same traffic. Punctuations may overtake the last clicks they cover.
    """
    rng = random.Random(seed)
    servers = [f"ads-{number}" for number in range(1, size.servers + 1)]
    delay_h = {server: rng.uniform(0.02, 0.8) for server in servers}
    ads = _ads(size)
    mastered = {
        campaign: [servers[campaign % size.servers]] if size.independent else servers
        for campaign in ads
    }
    clicks = _clicks(size, rng, ads, mastered)
    by_server = [
        Message(hour + delay_h[server] + rng.expovariate(12), server, click)
        for hour, server, click in clicks
    ]
    windows = [*range(HOURS)]
    partitions = mastered if seal == "campaign" else dict.fromkeys(windows, servers)
    return Traffic(
        clicks=(*by_server, *_punctuations(seal, partitions, by_server, rng)),
        requests=tuple(_requests(size, rng, ads)),
        campaigns={str(key): tuple(value) for key, value in mastered.items()},
        windows={str(window): tuple(servers) for window in windows},
    )


def poor(
    clicks: Iterable[Record], requests: Iterable[Record], *, by: tuple[str, ...], below: int = 100
) -> set[int]:
    """The requests about an ad with clicks, but fewer than `below`, counted by `by` (figure 6)."""
    counts = Counter(tuple(click[name] for name in by) for click in clicks)
    return {
        request["request"]
        for request in requests
        if 0 < counts[tuple(request[name] for name in by)] < below
    }


def popular(clicks: Iterable[Record], requests: Iterable[Record], *, above: int = 1000) -> set[int]:
    """The requests about an ad with more than `above` clicks: THRESH of figure 6."""
    counts = Counter(click["id"] for click in clicks)
    return {request["request"] for request in requests if counts[request["id"]] > above}


def _ads(size: Size) -> dict[int, list[int]]:
    """Campaign -> its ads, most popular first; some ads run in two campaigns."""
    own = {c: [100 * c + ad for ad in range(size.ads)] for c in range(1, size.campaigns + 1)}
    return {
        campaign: [
            own[campaign % size.campaigns + 1][place - 1] if place % 5 == 4 else ad
            for place, ad in enumerate(ads)
        ]
        for campaign, ads in own.items()
    }


def _skewed(count: int, exponent: float) -> list[float]:
    """Cumulative weights 1/rank**exponent, for `random.choices`."""
    return list(accumulate((rank + 1) ** -exponent for rank in range(count)))


def _clicks(
    size: Size,
    rng: random.Random,
    ads: Mapping[int, list[int]],
    mastered: Mapping[int, list[str]],
) -> list[tuple[float, str, dict[str, Any]]]:
    """(hour, server, click): campaigns start one after the other, overlap, and end."""
    length_h = HOURS / 4
    start = {
        campaign: (HOURS - length_h) * place / max(1, len(ads) - 1)
        for place, campaign in enumerate(ads)
    }
    campaigns = rng.choices([*ads], cum_weights=_skewed(len(ads), 0.6), k=size.clicks)
    within = _skewed(size.ads, 1.1)
    timed = []
    for campaign in campaigns:
        hour = start[campaign] + rng.random() * length_h
        [ad] = rng.choices(ads[campaign], cum_weights=within)
        server = rng.choice(mastered[campaign])
        timed.append((hour, server, _click(campaign, ad, hour, server)))
    return timed


def _click(campaign: int, ad: int, hour: float, server: str) -> dict[str, Any]:
    return {
        "campaign": campaign,
        "id": ad,
        "window": min(int(hour), HOURS - 1),
        "clicked_at": (OPENING + timedelta(hours=hour)).isoformat(timespec="milliseconds"),
        "server": server,
        "sealed": False,
    }


def _punctuations(
    seal: str,
    partitions: Mapping[int, list[str]],
    clicks: list[Message],
    rng: random.Random,
) -> list[Message]:
    """For each partition and each of its servers: nothing more will come, and this was sent.

    The punctuation leaves with the server's last click of the partition, or soon after, and takes
    its own way: about one in three overtakes a click.
    """
    sent: Counter[tuple[int, str]] = Counter()
    last: dict[tuple[int, str], float] = {}
    for message in clicks:
        line: Line = message.line
        assert not isinstance(line, str)
        key = (line[seal], message.producer)
        sent[key] += 1
        last[key] = max(last.get(key, 0.0), message.at)
    return [
        Message(
            last.get((value, server), 0.0) + rng.gauss(0.05, 0.1),
            server,
            {seal: value, "server": server, "sealed": True, "count": sent[value, server]},
        )
        for value, servers in partitions.items()
        for server in servers
    ]


def _requests(size: Size, rng: random.Random, ads: Mapping[int, list[int]]) -> list[Message]:
    """Requests about ads, at any hour: the later campaigns are often asked about too early."""
    messages = []
    campaigns, within = _skewed(len(ads), 0.5), _skewed(size.ads, 0.4)
    for number in range(1, size.requests + 1):
        [campaign] = rng.choices([*ads], cum_weights=campaigns)
        request = {
            "request": number,
            "analyst": rng.choice(ANALYSTS),
            "id": rng.choices(ads[campaign], cum_weights=within)[0],
            "campaign": campaign,
            "window": rng.randrange(HOURS),
        }
        messages.append(Message(rng.random() * HOURS, "analysts", request))
    return messages

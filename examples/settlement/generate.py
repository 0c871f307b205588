"""Make the reports that the settlement reads: files of JSON lines in data/, in order of arrival.

    python generate.py                     3 days of 18 merchants
    python generate.py --merchants 200 --days 7
    python generate.py --follow 1          one step a second, to watch a running job
    python generate.py --clean             without what goes wrong in practice

What goes wrong: lines cut off by a crash, a test gateway that sends to the real system, refunds
booked on a day that is closed, a gateway that never closes a day, and a warehouse that reports one
parcel more than it says. The same seed gives the same files.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any

import books

from blazes.demo.files import Message, as_json, empty, land, steps, write_json

HERE = Path(__file__).parent
FIRST_DAY = datetime(2026, 3, 2)
GATEWAYS = {"eu-west": 1, "eu-central": 2, "us-east": 6, "ap-south": 4}
"""Gateway -> hours after midnight at which it closes a day."""
WAREHOUSES = {"rotterdam": 9, "leipzig": 8, "memphis": 12}
COUNTRIES = ("DE", "DE", "DE", "FR", "FR", "NL", "ES", "GB", "US", "IN")
CURRENCIES = ("GBP", "SEK", "USD")


class Market:
    """Merchants with what they sell, who takes their payments and who sends their parcels."""

    def __init__(self, rng: random.Random, merchants: int, days: int, orders: int) -> None:
        self.rng = rng
        self.days = [FIRST_DAY + timedelta(days=day) for day in range(days)]
        self.orders = orders
        self.gateways = {m: rng.sample([*GATEWAYS], rng.randint(1, 3)) for m in ids(merchants)}
        self.warehouses = {m: rng.sample([*WAREHOUSES], rng.randint(1, 2)) for m in ids(merchants)}
        self.foreign = {m: rng.choice(CURRENCIES) for m in ids(merchants)}
        self.thieves = [f"tok_{rng.randrange(16**8):08x}" for _ in range(4)]

    def payments(self) -> Iterator[tuple[float, dict[str, Any]]]:
        """(hour sent, payment): the orders of every merchant's day, refunds, and stolen cards."""
        number = 0
        for merchant, gateways in self.gateways.items():
            for day in self.days:
                for _ in range(self.rng.randint(self.orders // 2, self.orders * 3 // 2)):
                    number += 1
                    captured = self.capture(number, merchant, day, self.rng.choice(gateways))
                    hour = hours(captured["at"])
                    yield hour, captured
                    if self.rng.random() < 0.06:
                        yield hour + 0.3 * self.rng.random(), refund(self.rng, captured)

    def capture(self, number: int, merchant: int, day: datetime, gateway: str) -> dict[str, Any]:
        """One payment for one order."""
        rng = self.rng
        stolen = rng.random() < 0.04
        hour = rng.uniform(0.1, 4.5) if stolen else min(max(rng.gauss(15, 4), 0.0), 23.6)
        currency = "EUR" if rng.random() < 0.8 else self.foreign[merchant]
        country = rng.choice(COUNTRIES)
        return {
            "payment": f"pay_{rng.randrange(16**10):010x}",
            "kind": "capture",
            "order_no": f"{merchant}-{number:06d}",
            "invoice": f"INV-{day:%y%m%d}-{merchant}-{currency}",
            "merchant": merchant,
            "day": f"{day:%Y-%m-%d}",
            "currency": currency,
            "amount_cents": rng.choice([40_000, 50_000])
            if stolen
            else int(rng.paretovariate(1.3) * 1200),
            "card": rng.choice(self.thieves) if stolen else f"tok_{rng.randrange(16**8):08x}",
            "card_country": country,
            "ip_country": "BR" if stolen or rng.random() < 0.02 else country,
            "at": (day + timedelta(hours=hour)).isoformat(timespec="seconds") + "Z",
            "gateway": gateway,
        }

    def shipments(self, captures: list[dict[str, Any]]) -> Iterator[tuple[float, dict[str, Any]]]:
        """(hour sent, shipment) of most orders; some go in two parcels."""
        rng = self.rng
        for captured in captures:
            parcels = rng.choices([0, 1, 2], [4, 88, 8])[0]
            for parcel in range(parcels):
                yield (
                    hours(captured["at"]) + rng.uniform(0.5, 6),
                    {
                        "shipment": f"{captured['order_no']}/{parcel + 1}",
                        **{
                            name: captured[name]
                            for name in ("order_no", "invoice", "merchant", "day")
                        },
                        "carrier": rng.choice(["post", "post", "courier", "freight"]),
                        "weight_g": rng.randrange(100, 12_000),
                        "warehouse": rng.choice(self.warehouses[captured["merchant"]]),
                    },
                )


def main() -> int:
    """Fill the data folder as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=HERE / "data", help="folder to fill")
    parser.add_argument("--merchants", type=int, default=18)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--orders", type=int, default=24, help="of a merchant on a day, on average")
    parser.add_argument("--steps", type=int, default=45, help="files of each sender")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clean", action="store_true", help="without bad records")
    parser.add_argument("--follow", type=float, metavar="S", help="seconds between the steps")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    market = Market(rng, options.merchants, options.days, options.orders)
    streams = reports(market, clean=options.clean)
    empty(options.data)
    write_json(options.data / "gateways.json", registrations(market, market.gateways))
    write_json(options.data / "warehouses.json", registrations(market, market.warehouses))
    cut = {name: steps(messages, count=options.steps) for name, messages in streams.items()}
    together = [
        {
            f"{folder}/{file}": lines
            for folder, step in zip(cut, parts, strict=True)
            for file, lines in step.items()
        }
        for parts in zip_longest(*cut.values(), fillvalue={})
    ]
    lines = land(options.data, together, follow_s=options.follow)
    print(f"{lines:,} lines in {options.data}, {options.merchants * options.days} merchant days")
    return 0


def reports(market: Market, *, clean: bool) -> dict[str, list[Message]]:
    """Folder -> what arrives in it."""
    rng = market.rng
    payments = list(market.payments())
    captures = [payment for _, payment in payments if payment["kind"] == "capture"]
    shipments = list(market.shipments(captures))
    made = books.statements([p for _, p in payments], [s for _, s in shipments])
    streams = {
        "payments": closed(rng, payments, "gateway", GATEWAYS, market.gateways, market.days),
        "shipments": closed(
            rng, shipments, "warehouse", WAREHOUSES, market.warehouses, market.days
        ),
        "advice": bank(rng, made, market, clean=clean),
    }
    if not clean:
        spoil(rng, streams, captures, hours_of(market.days[-1]) + 60)
    return streams


def closed(
    rng: random.Random,
    sent: list[tuple[float, dict[str, Any]]],
    by: str,
    senders: dict[str, int],
    taking_part: dict[int, list[str]],
    days: list[datetime],
) -> list[Message]:
    """The records on their way, and each sender's word that a merchant's day is complete.

    Some records are sent again and again before they get through: their day is closed before.
    """
    messages = []
    count: Counter[tuple[int, str, str]] = Counter()
    for hour, record in sent:
        count[record["merchant"], record["day"], record[by]] += 1
        delay = rng.expovariate(4) + (rng.uniform(6, 20) if rng.random() < 0.01 else 0)
        messages.append(Message(hour + delay, record[by], {**record, "closed": False}))
    for merchant, members in taking_part.items():
        for day in days:
            for sender in members:
                name = f"{day:%Y-%m-%d}"
                end = {"merchant": merchant, "day": name, by: sender, "closed": True}
                end["records"] = count[merchant, name, sender]
                at = hours_of(day) + 24 + senders[sender] + rng.uniform(0, 2)
                messages.append(Message(at, sender, end))
    return messages


def bank(
    rng: random.Random, made: list[dict[str, Any]], market: Market, *, clean: bool
) -> list[Message]:
    """What the bank says it paid for each merchant's day, the day after; it makes mistakes."""
    paid: dict[books.Day, list[dict[str, Any]]] = {
        (merchant, f"{day:%Y-%m-%d}"): [] for merchant in market.gateways for day in market.days
    }
    for statement in made:
        line = {name: statement[name] for name in ("invoice", "merchant", "day")}
        line |= {"paid_cents": statement["net_cents"], "bank": "giro", "closed": False}
        luck = 1.0 if clean else rng.random()
        if luck < 0.04:
            continue
        if luck < 0.10:
            line["paid_cents"] += rng.choice([-100, 1, 2500])
        paid[books.day_of(line)].append(line)
        if 0.10 <= luck < 0.12:
            paid[books.day_of(line)].append({**line, "invoice": line["invoice"] + "-BIS"})
    messages = []
    for (merchant, day), lines in paid.items():
        at = hours_of(datetime.fromisoformat(day)) + 24 + rng.uniform(14, 20)
        messages += [Message(at, "giro", line) for line in lines]
        end = {"merchant": merchant, "day": day, "bank": "giro", "closed": True}
        messages.append(Message(at + rng.uniform(-0.5, 0.5), "giro", end | {"records": len(lines)}))
    return messages


def spoil(
    rng: random.Random,
    streams: dict[str, list[Message]],
    captures: list[dict[str, Any]],
    late_at: float,
) -> None:
    """Add what goes wrong in practice."""
    payments, shipments = streams["payments"], streams["shipments"]
    for message in rng.sample([m for m in payments if not m.line["closed"]], 6):
        cut_off = as_json(message.line)[: rng.randrange(20, 120)]
        payments.append(Message(message.at - 0.01, message.producer, cut_off))
    for captured in rng.sample(captures, 5):
        test = {**captured, "payment": f"test_{rng.randrange(16**6):06x}", "gateway": "eu-staging"}
        at = hours(captured["at"]) + 1
        payments.append(Message(at, "eu-staging", {**test, "closed": False}))
    first = min(captured["day"] for captured in captures)
    for captured in rng.sample([c for c in captures if c["day"] == first], 4):
        message = refund(rng, captured) | {"closed": False}
        payments.append(Message(late_at + rng.random(), captured["gateway"], message))
    never = rng.choice([m for m in payments if is_end(m) and m.line["day"] > first])
    payments.remove(never)
    one_more = rng.choice([m for m in shipments if not is_end(m) and in_time(m, after=first)])
    twice = {**one_more.line, "shipment": one_more.line["shipment"] + "-reprint"}
    shipments.append(Message(one_more.at, one_more.producer, twice))


def is_end(message: Message) -> bool:
    """True for the word that a day is complete."""
    return not isinstance(message.line, str) and message.line["closed"]


def in_time(message: Message, *, after: str) -> bool:
    """True for a record of a day after that one which arrived before its day was over."""
    day = message.line["day"]
    return day > after and message.at < hours_of(datetime.fromisoformat(day)) + 24


def refund(rng: random.Random, captured: dict[str, Any]) -> dict[str, Any]:
    """A refund of a part of the payment, or of all of it."""
    part = rng.choice([captured["amount_cents"], captured["amount_cents"] // 2])
    number = f"pay_{rng.randrange(16**10):010x}"
    return {**captured, "payment": number, "kind": "refund", "amount_cents": part}


def registrations(market: Market, taking_part: dict[int, list[str]]) -> list[dict[str, Any]]:
    """Who reports on which merchant's day."""
    return [
        {"key": {"merchant": merchant, "day": f"{day:%Y-%m-%d}"}, "producers": sorted(members)}
        for merchant, members in taking_part.items()
        for day in market.days
    ]


def ids(merchants: int) -> range:
    """The numbers of the merchants."""
    return range(1001, 1001 + merchants)


def hours(at: str) -> float:
    """Hours from the first day to an instant."""
    return hours_of(datetime.fromisoformat(at.removesuffix("Z")))


def hours_of(instant: datetime) -> float:
    """Hours from the first day to an instant."""
    return (instant - FIRST_DAY) / timedelta(hours=1)


if __name__ == "__main__":
    sys.exit(main())

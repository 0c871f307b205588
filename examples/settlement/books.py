"""The rules of the settlement in plain Python: what the compiled job is compared with.

The generator uses them too, to know what the bank ought to pay.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Record = Mapping[str, Any]
Day = tuple[int, str]
"""A merchant's day: what the gateways, the warehouses and the bank close."""

CHEAP = {"DE", "ES", "FR", "NL"}
LIMIT_CENTS = 100_000
CARRIERS = {"post": 390, "courier": 690}


@dataclass
class Report:
    """What came from the producers of one stream about each merchant's day, in their order."""

    complete: dict[Day, list[Record]] = field(default_factory=dict)
    late: list[Record] = field(default_factory=list)
    unknown: list[Record] = field(default_factory=list)
    """Records of producers that do not take part in the day."""


def report(lines: Iterable[Record], by: str, registered: Mapping[Day, set[str]] | None) -> Report:
    """Follow the lines in order: a day is complete when all who take part kept their promise.

    `by` is the attribute that names the producer; without `registered` there is one.
    """
    found = Report()
    received: dict[Day, list[Record]] = defaultdict(list)
    count: Counter[tuple[Day, str]] = Counter()
    promised: dict[tuple[Day, str], int] = {}
    for line in lines:
        day, who = day_of(line), line[by]
        members = registered.get(day, set()) if registered is not None else {who}
        if who not in members:
            found.unknown.append(line)
        elif day in found.complete:
            found.late.append(line)
        elif line["closed"]:
            promised[day, who] = line["records"]
        else:
            received[day].append(line)
            count[day, who] += 1
        if members and all(promised.get((day, m)) == count[day, m] for m in members):
            found.complete.setdefault(day, received[day])
    return found


def day_of(line: Record) -> Day:
    """The merchant's day that a line belongs to."""
    return line["merchant"], line["day"]


def amount(payment: Record) -> int:
    """What a payment changes, in cents."""
    return -payment["amount_cents"] if payment["kind"] == "refund" else payment["amount_cents"]


def fee(payment: Record) -> int:
    """What the marketplace keeps of a payment, in cents."""
    if payment["kind"] == "refund":
        return 0
    rate = 14 if payment["card_country"] in CHEAP else 29
    return 25 + payment["amount_cents"] * rate // 1000


def freight(shipment: Record) -> int:
    """What a parcel cost, in cents."""
    return CARRIERS.get(shipment["carrier"], 1250) + shipment["weight_g"] // 1000 * 45


def risk(payment: Record) -> int:
    """How suspicious a payment looks, in points up to 100."""
    cents = amount(payment)
    return (
        35 * (cents >= 40_000)
        + 30 * (payment["card_country"] != payment["ip_country"])
        + 20 * (int(payment["at"][11:13]) < 5)
        + 15 * (cents % 10_000 == 0)
    )


def alerts(payments: Iterable[Record]) -> set[tuple[str, str]]:
    """(card, day) with at least three suspicious payments."""
    seen = Counter((p["card"], p["day"]) for p in payments if risk(p) >= 70)
    return {key for key, count in seen.items() if count >= 3}


def held(batches: Iterable[list[Record]]) -> list[dict[str, Any]]:
    """The payments that do not fit under their card's limit, in the order of arrival.

    `batches` are the micro-batches; inside one, the earlier payment goes first.
    """
    spent: Counter[tuple[str, str]] = Counter()
    found = []
    for batch in batches:
        for payment in sorted(batch, key=lambda p: (p["at"], p["payment"])):
            card = payment["card"], payment["day"]
            if payment["kind"] != "capture":
                continue
            if spent[card] + payment["amount_cents"] <= LIMIT_CENTS:
                spent[card] += payment["amount_cents"]
            else:
                names = ("payment", "card", "day", "amount_cents")
                found.append({n: payment[n] for n in names} | {"spent_cents": spent[card]})
    return found


def statements(payments: Iterable[Record], shipments: Iterable[Record]) -> list[dict[str, Any]]:
    """A statement for each invoice that has payments."""
    sent: Counter[str] = Counter()
    for shipment in shipments:
        sent[shipment["order_no"]] += freight(shipment)
    orders: dict[str, Counter[str]] = defaultdict(Counter)
    heads: dict[str, dict[str, Any]] = {}
    fees: Counter[str] = Counter()
    for payment in payments:
        invoice, order = payment["invoice"], payment["order_no"]
        heads[invoice] = {name: payment[name] for name in ("merchant", "day", "currency")}
        orders[invoice][order] += amount(payment)
        fees[order] += fee(payment)
    made = []
    for invoice, paid in orders.items():
        shipped = [order for order in paid if order in sent]
        made.append(
            {
                "invoice": invoice,
                **heads[invoice],
                "orders": len(paid),
                "shipped": len(shipped),
                "gross_cents": paid.total(),
                "fees_cents": sum(fees[order] for order in paid),
                "freight_cents": sum(sent[order] for order in shipped),
                "net_cents": sum(paid[order] - fees[order] - sent[order] for order in shipped),
            }
        )
    return made


def compare(made: Iterable[Record], advice: Iterable[Record]) -> list[dict[str, Any]]:
    """Each invoice with what the statement says, what the bank paid, and a verdict."""
    net = {statement["invoice"]: statement for statement in made}
    paid = {line["invoice"]: line for line in advice}
    lines = []
    for invoice in {**net, **paid}:
        head = net.get(invoice) or paid[invoice]
        should = net[invoice]["net_cents"] if invoice in net else None
        did = paid[invoice]["paid_cents"] if invoice in paid else None
        verdict = "agrees" if should == did else "differs"
        verdict = "not paid" if did is None else "no statement" if should is None else verdict
        lines.append(
            {
                "invoice": invoice,
                "merchant": head["merchant"],
                "day": head["day"],
                "net_cents": should,
                "paid_cents": did,
                "verdict": verdict,
            }
        )
    return lines

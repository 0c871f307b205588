"""Make the messages of regions and payment gateways: data/messages.jsonl, in the order of sending.

    python generate.py                     12 days of 6 shops
    python generate.py --shops 40 --days 30
    python generate.py --seed 2

Each line is a message: its topic, its sender, its value. What goes wrong in practice is there too:
gateways send some payments twice, orders are paid in part or not at all, and some values are no
JSON. The same seed gives the same messages.
"""

import argparse
import json
import random
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MESSAGES = HERE / "data" / "messages.jsonl"
REGIONS = ("eu", "us")
GATEWAYS = ("cards", "transfers")
FIRST_DAY = date(2026, 3, 2)
SENT_TWICE = 0.05
"""Share of payments."""
TORN = 0.005
"""Share of messages after which one comes that cannot be read."""


def messages(seed: int, shops: int, days: int, orders: int) -> Iterator[dict[str, str]]:
    """What is sent to both topics, in that order: topic, sender and value of each message.

    Args:
        seed: decides everything.
        shops: how many there are.
        days: of each shop.
        orders: of a shop's day, about.
    """
    rng = random.Random(seed)
    sent = [
        (number + hour / 24, message)
        for number in range(days)
        for shop in range(shops)
        for hour, message in shop_day(rng, f"shop-{shop}", FIRST_DAY + timedelta(number), orders)
    ]
    for _, message in sorted(sent, key=lambda timed: timed[0]):
        yield message
        if rng.random() < TORN:
            yield {**message, "value": message["value"][: rng.randint(1, 20)]}


def shop_day(
    rng: random.Random, shop: str, day: date, orders: int
) -> Iterator[tuple[float, dict[str, str]]]:
    """A shop's day: the hour at which each message is sent, and the message."""
    of_day = {"shop": shop, "day": f"{day}"}
    closes = dict.fromkeys([*REGIONS, *GATEWAYS], 0)
    for number in range(rng.randint(orders // 2, orders * 3 // 2)):
        region, order_no = rng.choice(REGIONS), f"{shop}/{day}/{number}"
        hour, cents = rng.uniform(0, 24), round(1000 * rng.paretovariate(1.3))
        order = {"order_no": order_no, **of_day, "cents": cents}
        closes[region] += 1
        yield hour, message("orders", region, order)
        parts = rng.choices((0, 1, 2), (1, 8, 2))[0]
        for part in range(parts):
            gateway = rng.choice(GATEWAYS)
            closes[gateway] += 1
            paid = {
                "payment": f"{order_no}/{part}",
                "order_no": order_no,
                **of_day,
                "cents": cents // parts + (cents % parts if part == 0 else 0),
            }
            hour += rng.expovariate(1 / 4)
            yield hour, message("payments", gateway, paid)
            if rng.random() < SENT_TWICE:
                yield hour + rng.expovariate(2), message("payments", gateway, paid)
    for sender, count in closes.items():
        topic = "orders" if sender in REGIONS else "payments"
        yield rng.uniform(20, 48), message(topic, sender, {**of_day, "closes": count})


def message(topic: str, sender: str, value: dict[str, Any]) -> dict[str, str]:
    """A message as a line of the file has it."""
    return {"topic": topic, "sender": sender, "value": json.dumps(value)}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shops", type=int, default=6)
    parser.add_argument("--days", type=int, default=12)
    parser.add_argument("--orders", type=int, default=30, help="of a shop's day, about")
    options = vars(parser.parse_args())
    MESSAGES.parent.mkdir(exist_ok=True)
    lines = [json.dumps(message) + "\n" for message in messages(**options)]
    MESSAGES.write_text("".join(lines))
    print(f"{len(lines):,} messages in {MESSAGES}")


if __name__ == "__main__":
    main()

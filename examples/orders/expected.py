"""What the statements must say, computed from the messages in plain Python.

    python expected.py            the first statements
    python expected.py --broker 127.0.0.1:9092
                                  compare the table and the topic with them, and the dead
                                  letters with the messages that cannot be read

Status 1 where one of them differs.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from benchmarks.sink_servers import committed_messages  # noqa: E402

MESSAGES = HERE / "data" / "messages.jsonl"
TABLE = HERE / "data" / "statements"
TOPIC = "statements"
DEAD_LETTERS = HERE / "target" / "orders" / "state" / "dead_letters"
COLUMNS = ("shop", "day", "orders", "settled", "ordered_cents", "paid_cents")

Statement = tuple[Any, ...]
"""The values of `COLUMNS`."""


def sent() -> list[dict[str, str]]:
    """The messages that were generated: topic, sender and value of each."""
    return [json.loads(line) for line in MESSAGES.read_text().splitlines()]


def statements(messages: Iterable[dict[str, str]]) -> Iterator[Statement]:
    """The statement of each shop and day; payments that were sent twice count once."""
    orders: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    payments: dict[str, tuple[str, int]] = {}
    for message in messages:
        value = readable(message["value"])
        if value is None or "closes" in value:
            continue
        if message["topic"] == "orders":
            orders[value["shop"], value["day"]][value["order_no"]] = value["cents"]
        else:
            payments[value["payment"]] = (value["order_no"], value["cents"])
    paid: Counter[str] = Counter()
    for order_no, cents in payments.values():
        paid[order_no] += cents
    for (shop, day), placed in orders.items():
        settled = sum(order in paid and paid[order] == cents for order, cents in placed.items())
        of_orders = sum(paid[order] for order in placed)
        yield shop, day, len(placed), settled, sum(placed.values()), of_orders


def readable(value: str) -> dict[str, Any] | None:
    """The value of a message; None: it is no JSON object."""
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def in_table() -> Iterator[Statement]:
    """The rows of the Delta table."""
    from deltalake import DeltaTable

    for row in DeltaTable(str(TABLE)).to_pyarrow_table().to_pylist():
        yield tuple(str(row[name]) if name == "day" else row[name] for name in COLUMNS)


def in_topic(broker: str) -> Iterator[Statement]:
    """The messages of the topic, as a consumer reads it that reads committed ones."""
    for value in map(json.loads, committed_messages(broker, TOPIC)):
        yield tuple(value[name] for name in COLUMNS)


def unreadable() -> Iterator[str]:
    """The texts of the dead letters that could not be read."""
    for file in DEAD_LETTERS.rglob("*.jsonl"):
        for letter in map(json.loads, file.read_text().splitlines()):
            if letter["reason"] == "unreadable":
                yield letter["record"]


def compared(found: Iterable[Any], truth: Counter[Any]) -> tuple[bool, str]:
    """Whether all that is true was found once, and nothing else; and a sentence about it.

    >>> compared(["a"], Counter(["a"]))
    (True, '1, each once')
    >>> compared(["a", "a", "c"], Counter(["a", "b"]))
    (False, '3 in place of 2: 1 missing, 2 too many or wrong')
    """
    have = Counter(found)
    if have == truth:
        return True, f"{truth.total()}, each once"
    missing, more = (truth - have).total(), (have - truth).total()
    return False, (
        f"{have.total()} in place of {truth.total()}: {missing} missing, {more} too many or wrong"
    )


def check(broker: str) -> bool:
    """Whether the job has put out what it must; prints it."""
    messages = sent()
    truth = Counter(statements(messages))
    torn = Counter(m["value"] for m in messages if readable(m["value"]) is None)
    outcomes = {
        "statements in the table": compared(in_table(), truth),
        "statements in the topic": compared(in_topic(broker), truth),
        "dead letters of unreadable messages": compared(unreadable(), torn),
    }
    for what, (_, sentence) in outcomes.items():
        print(f"{what}: {sentence}")
    return all(equal for equal, _ in outcomes.values())


def main() -> int:
    """Print statements, or compare a job's with them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--broker", help="host:port of the broker that has the topic")
    broker = parser.parse_args().broker
    if broker is not None:
        return 0 if check(broker) else 1
    for statement in sorted(statements(sent()))[:10]:
        print(*statement, sep="\t")
    return 0


if __name__ == "__main__":
    sys.exit(main())

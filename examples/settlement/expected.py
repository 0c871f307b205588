"""What the settlement must say, computed from the generated reports in plain Python.

python expected.py                                   a summary
python expected.py --check ../../target/settlement/results
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import books
import yaml

from blazes.demo.files import difference, lines, read_records, read_results

HERE = Path(__file__).parent


def expected(data: Path) -> dict[str, list[Any]]:
    """Sink -> its rows; and under `late` and `unknown` the payments that get nowhere."""
    payments = list(read_records(data / "payments"))
    paid = books.report(payments, "gateway", registered(data / "gateways.json"))
    shipments = read_records(data / "shipments")
    sent = books.report(shipments, "warehouse", registered(data / "warehouses.json"))
    advised = books.report(read_records(data / "advice"), "bank", None)
    days = paid.complete.keys() & sent.complete.keys()
    made = books.statements(
        (payment for day in days for payment in paid.complete[day]),
        (shipment for day in days for shipment in sent.complete[day]),
    )
    advice = (line for day in days for line in advised.complete[day])
    alerts = books.alerts(payment for payment in payments if not payment["closed"])
    return {
        "ledger": made,
        "reconciliation": books.compare(made, advice),
        "alerts": [{"card": card, "day": day} for card, day in alerts],
        "held": books.held(batches(data / "payments")),
        "late": paid.late + sent.late,
        "unknown": paid.unknown + sent.unknown,
        "not settled": sorted(registered(data / "gateways.json").keys() - days),
    }


def batches(folder: Path) -> Iterator[list[dict[str, Any]]]:
    """The payments of each micro-batch of a job that finds all files there when it starts."""
    settings = yaml.safe_load((HERE / "settlement.yaml").read_text())
    size = settings["streams"]["payments"]["source"]["options"]["maxFilesPerTrigger"]
    files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    for start in range(0, len(files), size):
        records = (record for file in files[start : start + size] for record in lines(file))
        yield [record for record in records if not record["closed"]]


def registered(file: Path) -> dict[books.Day, set[str]]:
    """Merchant's day -> who reports on it."""
    return {books.day_of(e["key"]): set(e["producers"]) for e in json.loads(file.read_text())}


def as_row(record: Mapping[str, Any]) -> Hashable:
    """What is compared of a row: JSON leaves nulls out, Parquet has dates."""
    return tuple(sorted((k, str(v)) for k, v in record.items() if v is not None))


def as_rows(records: Iterable[Mapping[str, Any]]) -> list[Hashable]:
    """What is compared of rows."""
    return [as_row(record) for record in records]


def main() -> int:
    """Print what is expected, or compare a job's results with it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--check", type=Path, metavar="RESULTS", help="folder that a job wrote")
    options = parser.parse_args()
    should = expected(options.data)
    if options.check is None:
        for name, rows in should.items():
            print(f"{len(rows):5}  {name}")
        print("verdicts:", dict(Counter(row["verdict"] for row in should["reconciliation"])))
        return 0
    failed = False
    for sink in ("ledger", "reconciliation", "alerts", "held"):
        got = as_rows(read_results(options.check / sink))
        if sink in ("alerts", "held"):  # said again whenever the card has a further payment
            got = list(set(got))
        found = difference(as_rows(should[sink]), got)
        print(f"{sink}: {found}")
        failed = failed or not found.equal
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

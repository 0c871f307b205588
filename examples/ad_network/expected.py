"""What the ad network must answer, computed from the generated traffic in plain Python.

python expected.py CAMPAIGN
python expected.py CAMPAIGN --check ../../target/ad-network/results/results
"""

import argparse
import sys
from pathlib import Path

from blazes.demo.ads import poor, popular
from blazes.demo.files import Record, difference, read_records, read_results

HERE = Path(__file__).parent
COUNTED_BY = {"POOR": ("id",), "WINDOW": ("id", "window"), "CAMPAIGN": ("id", "campaign")}


def answered(query: str, clicks: list[Record], requests: list[Record]) -> set[int]:
    """The requests that get an answer once all clicks are in."""
    if query == "THRESH":
        return popular(clicks, requests)
    return poor(clicks, requests, by=COUNTED_BY[query])


def rows(query: str, data: Path) -> list[tuple[int, int, int, int]]:
    """(request, id, campaign, window) of every request that must be answered, once."""
    clicks = [click for click in read_records(data / "clicks") if not click["sealed"]]
    requests = list(read_records(data / "requests"))
    yes = answered(query, clicks, requests)
    return [as_row(request) for request in requests if request["request"] in yes]


def as_row(record: Record) -> tuple[int, int, int, int]:
    """What is compared of an answer."""
    return (record["request"], record["id"], record["campaign"], record["window"])


def main() -> int:
    """Print the expected answers, or compare a job's with them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("query", choices=["THRESH", *COUNTED_BY])
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--check", type=Path, metavar="RESULTS", help="folder that a job wrote")
    options = parser.parse_args()
    should = rows(options.query, options.data)
    if options.check is None:
        print(f"{len(should)} requests are answered:", *sorted(row[0] for row in should))
        return 0
    found = difference(should, map(as_row, read_results(options.check)))
    print(found)
    return 0 if found.equal else 1


if __name__ == "__main__":
    sys.exit(main())

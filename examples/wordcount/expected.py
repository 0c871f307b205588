"""What the word count must say, computed from the generated tweets in plain Python.

    python expected.py                                         the most frequent words
    python expected.py --check ../../target/wordcount/results/db
    python expected.py --check ../../target/wordcount-unsealed/results/db --updates

`--updates` reads a store to which a count was appended every time it changed, and says how many of
those rows were wrong when they were committed.
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

from blazes.demo.files import difference, read_records, read_results

HERE = Path(__file__).parent
WORD = re.compile(r"[#@]?[a-z0-9]+(?:['_-][a-z0-9]+)*")


def counts(data: Path) -> Counter[tuple[int, str]]:
    """(batch, word) -> how often the word occurs in the batch."""
    return Counter(
        (tweet["batch"], word)
        for tweet in read_records(data / "tweets")
        if not tweet["sealed"]
        for word in WORD.findall(tweet["text"].lower())
    )


def main() -> int:
    """Print the expected counts, or compare a job's with them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--check", type=Path, metavar="RESULTS", help="folder that a job wrote")
    parser.add_argument("--updates", action="store_true", help="the last count of a word is it")
    options = parser.parse_args()
    should = counts(options.data)
    if options.check is None:
        for (batch, word), frequency in should.most_common(20):
            print(f"{frequency:6}  {word}  (batch {batch})")
        return 0
    rows = [(r["batch"], r["word"], r["frequency"]) for r in read_results(options.check)]
    if options.updates:
        early = sum(frequency < should[batch, word] for batch, word, frequency in rows)
        print(f"{early:,} of {len(rows):,} committed rows were counted too early")
        last: Counter[tuple[int, str]] = Counter()
        for batch, word, frequency in rows:
            last[batch, word] = max(last[batch, word], frequency)
        rows = [(*key, frequency) for key, frequency in last.items()]
    found = difference([(*key, frequency) for key, frequency in should.items()], rows)
    print(found)
    return 0 if found.equal else 1


if __name__ == "__main__":
    sys.exit(main())

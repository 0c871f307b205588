"""Make the tweets that the word count reads: files of JSON lines in data/, in order of arrival.

    python generate.py                     20,000 tweets in 40 batches from 5 producers
    python generate.py --text              real text of this machine: licences, documentation
    python generate.py --follow 1          one step a second, to watch a running job

The same seed gives the same files. Every producer says in the stream when it has sent its last
tweet of a batch, and how many it sent; the producers have different speeds, batches overlap in
time, and about one such punctuation in three overtakes a tweet.
"""

import argparse
import pydoc_data.topics
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import distributions
from itertools import accumulate
from pathlib import Path

from blazes.demo.files import Message, empty, land, steps, write_json

HERE = Path(__file__).parent

WORDS = (HERE / "words.txt").read_text(encoding="utf-8").split()
"""Words of English tweets, the most frequent first."""
HASHTAGS = ("#news", "#music", "#football", "#rain", "#love", "#jobs", "#photo", "#coffee")
NAMES = ("anna", "ben", "carla", "deniz", "emil", "fatma", "gino", "hana", "ivo", "jun", "kofi")
LICENCES = Path("/usr/share/common-licenses")


def main() -> int:
    """Fill the data folder as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=HERE / "data", help="folder to fill")
    parser.add_argument("--tweets", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--producers", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="files of each producer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", action="store_true", help="real text found on this machine")
    parser.add_argument("--follow", type=float, metavar="S", help="seconds between the steps")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    batches = (
        real_text()[: options.batches]
        if options.text
        else invented(rng, tweets=options.tweets, batches=options.batches)
    )
    written = generate(
        options.data,
        batches,
        rng,
        producers=options.producers,
        files=options.steps,
        follow_s=options.follow,
    )
    print(f"{written:,} lines in {options.data / 'tweets'}, {len(batches)} batches")
    return 0


def generate(
    folder: Path,
    batches: list[list[str]],
    rng: random.Random,
    *,
    producers: int = 5,
    files: int = 40,
    follow_s: float | None = None,
) -> int:
    """Write the batches (lists of texts) as tweets and punctuations; the number of lines."""
    names = [f"relay-{number}" for number in range(1, producers + 1)]
    empty(folder)
    registered = {str(batch): names for batch in range(len(batches))}
    write_json(folder / "producers.json", registered)
    arriving = steps(messages(batches, names, rng), count=files)
    return land(folder / "tweets", arriving, follow_s=follow_s)


def messages(
    batches: list[list[str]], producers: list[str], rng: random.Random
) -> Iterator[Message]:
    """Tweets and punctuations with their times of arrival; a batch starts every unit of time."""
    delay = {producer: rng.uniform(0.0, 3.0) for producer in producers}
    share = [rng.uniform(0.3, 2.0) for _ in producers]
    for batch, texts in enumerate(batches):
        sent: Counter[str] = Counter()
        last = dict.fromkeys(producers, float(batch))
        for text in texts:
            [producer] = rng.choices(producers, share)
            at = batch + 2.5 * rng.random() + delay[producer] + rng.expovariate(3)
            user = f"@{rng.choice(NAMES)}{rng.randrange(1000)}"
            tweet = {"batch": batch, "user": user, "text": text, "producer": producer}
            sent[producer] += 1
            last[producer] = max(last[producer], at)
            yield Message(at, producer, {**tweet, "sealed": False})
        for producer in producers:
            end = {"batch": batch, "producer": producer, "sealed": True, "count": sent[producer]}
            yield Message(last[producer] + rng.gauss(0.1, 0.3), producer, end)


def invented(rng: random.Random, *, tweets: int, batches: int) -> list[list[str]]:
    """Tweets of common words; how often a word is used follows Zipf's law."""
    weights = list(accumulate(1 / (rank + 2.7) for rank in range(len(WORDS))))

    def tweet() -> str:
        text = rng.choices(WORDS, cum_weights=weights, k=rng.randint(3, 14))
        if rng.random() < 0.3:
            text.append(rng.choice(HASHTAGS))
        if rng.random() < 0.2:
            text.insert(0, f"@{rng.choice(NAMES)}{rng.randrange(50)}")
        return " ".join(text).capitalize() + rng.choice(["", ".", "!", " :)", "..."])

    each, more = divmod(tweets, batches)
    return [[tweet() for _ in range(each + (batch < more))] for batch in range(batches)]


def real_text() -> list[list[str]]:
    """Documents of this machine, a batch each, its lines as tweets: licences, documentation."""
    texts = [pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)]
    if LICENCES.is_dir():
        texts += [file.read_text(errors="replace") for file in sorted(LICENCES.iterdir())]
    for package in sorted(distributions(), key=lambda package: str(package.name)):
        for file in package.files or ():
            if ".dist-info" in str(file) and re.search(r"LICEN[SC]E|COPYING|METADATA", file.name):
                texts.append(Path(str(file.locate())).read_text(errors="replace"))
    documents = [[line.strip() for line in text.splitlines() if line.strip()] for text in texts]
    unique = {tuple(document): None for document in documents if document}
    return sorted(map(list, unique), key=len, reverse=True)


if __name__ == "__main__":
    sys.exit(main())

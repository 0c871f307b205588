"""Write packets as parquet files, in order of arrival, for the job on Spark.

python generate.py                        40 files of 5,000 packets
python generate.py --follow 0.5           one file every half second, until Ctrl-C
python generate.py --follow 0.1 --rows 2000 --files 600
"""

import argparse
import os
import shutil
import time
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from packets import packets

HERE = Path(__file__).resolve().parent
MODIFIED = 1_700_000_000
"""Time of the first file; Spark reads files in the order of their times, given in seconds."""


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--out", type=Path, default=HERE / "data" / "packets")
    add("--files", type=int, help="how many (default: 40, or no end with --follow)")
    add("--rows", type=int, default=5000, help="packets of a file")
    add("--pairs", type=int, default=20_000, help="pairs of hosts")
    add("--seed", type=int, default=0)
    add("--follow", type=float, metavar="SECONDS", help="from one file to the next")
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)
    files = args.files or (None if args.follow else 40)
    stream = islice(packets(args.rows, pairs=args.pairs, seed=args.seed), files)
    began = time.monotonic()
    for number, batch in enumerate(stream):
        if args.follow:
            time.sleep(max(0.0, began + number * args.follow - time.monotonic()))
        temporary = args.out / f".{number:08d}"
        pq.write_table(pa.Table.from_batches([batch]), temporary)
        os.utime(temporary, (MODIFIED + number, MODIFIED + number))
        temporary.rename(args.out / f"{number:08d}.parquet")


if __name__ == "__main__":
    main()

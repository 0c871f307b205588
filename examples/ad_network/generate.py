"""Make the traffic that the ad network reads: clicks and requests in data/, in order of arrival.

    python generate.py                     40,000 clicks from 5 servers, 240 requests
    python generate.py --servers 10        Blazes figure 13
    python generate.py --independent       each campaign at one server ("independent seal")
    python generate.py --follow 1          one step a second, to watch a running job

data/clicks and data/hourly_clicks hold the same clicks; in the first each server says when it has
sent its last click of a campaign, in the second of an hour. The same seed gives the same files.
"""

import argparse
import sys
from itertools import zip_longest
from pathlib import Path

from blazes.demo.ads import Size, Traffic, traffic
from blazes.demo.files import Step, empty, land, steps, write_json

HERE = Path(__file__).parent


def main() -> int:
    """Fill the data folder as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=HERE / "data", help="folder to fill")
    for name in ("servers", "campaigns", "ads", "clicks", "requests"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Size(), name))
    parser.add_argument("--independent", action="store_true", help="each campaign at one server")
    parser.add_argument("--steps", type=int, default=40, help="files of each server")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--follow", type=float, metavar="S", help="seconds between the steps")
    options = vars(parser.parse_args())
    data, count, seed, follow = (options.pop(n) for n in ("data", "steps", "seed", "follow"))
    try:
        size = Size(**options)
    except ValueError as error:
        parser.error(str(error))
    by_campaign = traffic(size, seed=seed)
    by_window = traffic(size, seed=seed, seal="window")
    empty(data)
    write_json(data / "campaigns.json", by_campaign.campaigns)
    write_json(data / "windows.json", by_window.windows)
    lines = land(data, arriving(by_campaign, by_window, count), follow_s=follow)
    print(f"{lines:,} lines in {data}, {size.campaigns} campaigns at {size.servers} servers")
    return 0


def arriving(by_campaign: Traffic, by_window: Traffic, count: int) -> list[Step]:
    """What arrives together in all three folders, step by step."""
    folders = {
        "clicks": steps(by_campaign.clicks, count=count),
        "hourly_clicks": steps(by_window.clicks, count=count),
        "requests": steps(by_campaign.requests, count=count),
    }
    together = zip_longest(*folders.values(), fillvalue={})
    return [
        {
            f"{folder}/{name}": lines
            for folder, step in zip(folders, parts, strict=True)
            for name, lines in step.items()
        }
        for parts in together
    ]


if __name__ == "__main__":
    sys.exit(main())

"""Meter readings of three gateways over six hours; each closes an hour when it has sent it all."""

import json
import os
import random
from pathlib import Path

FOLDER = Path("data/readings")
FIRST_S = 1_767_225_600
"""When the first file was sent; each is a second younger than the one before."""
rng = random.Random(7)
FOLDER.mkdir(parents=True, exist_ok=True)
for number, (hour, gateway) in enumerate(
    (hour, gateway) for hour in range(6) for gateway in ("north", "south", "west")
):
    sent = [
        {
            "site": f"site-{rng.randrange(8)}",
            "hour": hour,
            "meter": f"m{rng.randrange(400)}",
            "wh": rng.randrange(20, 320),
            "gateway": gateway,
        }
        for _ in range(rng.randrange(60, 110))
    ]
    over = {"hour": hour, "gateway": gateway, "over": True, "sent": len(sent)}
    lines = [json.dumps(line) for line in (*sent, over)]
    staged = FOLDER / f".{number:03d}.json"
    staged.write_text("\n".join(lines) + "\n")
    os.utime(staged, (FIRST_S + number, FIRST_S + number))  # Spark takes the oldest first
    staged.rename(FOLDER / f"{number:03d}-{gateway}.json")

"""One site or controller as a process of its own: `python -m flux_runtime.site.process`.

The configuration comes pickled on standard input, so that the job's key appears neither among the
arguments nor in the environment. Each line on standard output is a JSON object: `ready`, then at
most one `ended`.
"""

from __future__ import annotations

import json
import logging
import pickle
import sys
from typing import Any

import pyarrow as pa

from flux_runtime.site.config import ControllerConfig, Fenced, SiteConfig
from flux_runtime.site.controller import run_controller
from flux_runtime.site.worker import run_site

FENCED_STATUS = 3


def main() -> int:
    """Run what standard input says; 3 if this incarnation was fenced."""
    config: SiteConfig | ControllerConfig = pickle.load(sys.stdin.buffer)
    warm_up()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        if isinstance(config, SiteConfig):
            run_site(config, started=lambda number: _say(ready=number))
        else:
            run_controller(config, started=lambda host, port: _say(ready=[host, port]))
    except Fenced as fenced:
        _say(ended=str(fenced))
        return FENCED_STATUS
    _say(ended="stopped")
    return 0


def warm_up() -> None:
    """Load what the first batch would otherwise wait for (pyarrow looks for pandas)."""
    pa.array([0]).to_numpy(zero_copy_only=False)
    pa.record_batch({"a": [0]}).take(pa.array([0])).serialize()


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    sys.exit(main())

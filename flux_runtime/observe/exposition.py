"""A run's newest values in Prometheus' text format: units, Flux stages and their sites.

`serving` gives them to whoever fetches `/metrics`, on 127.0.0.1 only. They are read from the run
folder, so that they are what `blazes top` says.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Literal

from flux_runtime.observe.metrics import escaped, prometheus_text
from flux_runtime.observe.reader import Follower, Run
from flux_runtime.observe.stages import Site, Stage, StagesFollower

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StageMetric:
    """A number of a stage."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    value: Callable[[Stage], float]


@dataclass(frozen=True, slots=True)
class SiteMetric:
    """A number of a site."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    report: str
    """What it is called in the site's report."""


def _value(name: str) -> Callable[[Stage], float]:
    return lambda stage: stage.values.get(name, 0)


STAGE_METRICS: Final = (
    StageMetric("rows_total", "counter", "Rows numbered by the ingress.", _value("rows")),
    StageMetric("batches_total", "counter", "Batches numbered.", _value("batches")),
    StageMetric("rows_per_second", "gauge", "Rows numbered per second.", _value("rows_per_s")),
    StageMetric(
        "batches_under_way",
        "gauge",
        "Batches that not every copy of the first operator has.",
        _value("under_way"),
    ),
    StageMetric("batches_waiting", "gauge", "Batches that wait for a number.", _value("waiting")),
    StageMetric(
        "committed_offset",
        "gauge",
        "Batches whose results have been committed.",
        _value("committed"),
    ),
    StageMetric("sites", "gauge", "Sites in the view.", lambda stage: len(stage.sites)),
    StageMetric(
        "copies_active",
        "gauge",
        "Copies of partitions that are up to date.",
        lambda stage: sum(copy.status == "ACTIVE" for copy in stage.copies),
    ),
    StageMetric("whole", "gauge", "1 while every pair has both copies.", lambda s: int(s.whole)),
    StageMetric("site_failures_total", "counter", "Sites that failed.", lambda s: s.failures),
    StageMetric(
        "recoveries_total",
        "counter",
        "Times that all pairs were made whole again.",
        lambda stage: stage.recoveries,
    ),
    StageMetric("moves_total", "counter", "Moves that were ordered.", lambda s: s.moves),
    StageMetric("losses_total", "counter", "Partitions that lost both copies.", lambda s: s.losses),
)
SITE_METRICS: Final = (
    SiteMetric("rows_per_second", "gauge", "Rows received per second.", "rows_per_s"),
    SiteMetric("busy_ratio", "gauge", "Part of the time that operators worked.", "busy"),
    SiteMetric("cpu_ratio", "gauge", "Cores used by the process.", "cpu"),
    SiteMetric("buffered_units", "gauge", "Units held for consumers.", "buffered_units"),
    SiteMetric("state_bytes", "gauge", "Bytes of operators' state.", "state_bytes"),
    SiteMetric("copies", "gauge", "Copies of partitions that stand here.", "copies"),
    SiteMetric("bytes_in_total", "counter", "Bytes received on open connections.", "bytes_in"),
    SiteMetric("bytes_out_total", "counter", "Bytes sent on open connections.", "bytes_out"),
)


class Exposition:
    """Follows a run folder; each `text` is what is known at that moment."""

    def __init__(self, folder: Path) -> None:
        self._run = Follower(folder)
        self._stages = StagesFollower(folder)

    def text(self) -> str:
        """The newest values."""
        run = self._run.poll()
        return exposition(run, self._stages.poll(run))


def exposition(run: Run, stages: Mapping[str, Stage]) -> str:
    """Units, then stages, then sites."""
    units = prometheus_text({unit: sample.values for unit, sample in run.units.items()})
    lines = [*_stage_lines(stages), *_site_lines(stages)]
    return units + "".join(f"{line}\n" for line in lines)


def _stage_lines(stages: Mapping[str, Stage]) -> Iterator[str]:
    if not stages:
        return
    for metric in STAGE_METRICS:
        name = f"blazes_flux_{metric.name}"
        yield f"# HELP {name} {metric.help}"
        yield f"# TYPE {name} {metric.kind}"
        for stage in stages.values():
            yield f'{name}{{stage="{escaped(stage.name)}"}} {metric.value(stage):.10g}'
    yield "# HELP blazes_flux_latency_ms From numbering a batch to committing its results."
    yield "# TYPE blazes_flux_latency_ms gauge"
    for stage in stages.values():
        for quantile, value in stage.latency_ms.items():
            labels = f'stage="{escaped(stage.name)}",quantile="{escaped(quantile)}"'
            yield f"blazes_flux_latency_ms{{{labels}}} {value:.10g}"


def _site_lines(stages: Mapping[str, Stage]) -> Iterator[str]:
    reporting = [(st, site) for st in stages.values() for site in st.sites if site.report]
    for metric in SITE_METRICS if reporting else ():
        name = f"blazes_flux_site_{metric.name}"
        yield f"# HELP {name} {metric.help}"
        yield f"# TYPE {name} {metric.kind}"
        for stage, site in reporting:
            yield f"{name}{{{_labels(stage, site)}}} {site.value(metric.report):.10g}"


def _labels(stage: Stage, site: Site) -> str:
    return f'stage="{escaped(stage.name)}",site="{site.number}",host="{escaped(site.host)}"'


@contextlib.contextmanager
def serving(folder: Path, port: int | None) -> Iterator[int | None]:
    """Serve a run folder's metrics; gives the port. `None` serves nothing, 0 takes a free port.

    Raises:
        OSError: the port is taken.
    """
    if port is None:
        yield None
        return
    exposition, lock = Exposition(folder), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "the metrics are at /metrics")
                return
            with lock:
                body = exposition.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            log.debug(format, *args)

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()

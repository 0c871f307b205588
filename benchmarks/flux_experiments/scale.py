"""Beyond the papers' sizes: what the controller's rounds and the connections cost."""

# ruff: noqa: E501  (rows of tables stay on one line)

from __future__ import annotations

import time
import tracemalloc

from flux_runtime.observe.charts import Chart, Series
from flux_runtime.protocol.balancing import SIMULATED
from flux_runtime.protocol.controller import Controller, chained
from flux_runtime.protocol.vocabulary import Shape
from flux_runtime.simulation.share import ShareModel, balance, even

from .experiment import Experiment, Result, Row
from .skew import LEFT

PER_SITE = 16
"""Partition copies on every site, so eight pairs per site in each of two stages."""


def scale(quick: bool) -> Result:
    """Rounds of the policy, memory of the controller, connections per site."""
    rows: list[Row] = []
    rounds, links = [], []
    for sites in (32, 256) if quick else (32, 256, 1024):
        model = ShareModel(even(sites, PER_SITE), share=dict.fromkeys(range(sites // 8), LEFT))
        before = model.rate()
        started = time.process_time()
        found = balance(model, SIMULATED, move_seconds=0.05)
        cpu = (time.process_time() - started) / len(found.rates) * 1e3
        pairs = sites * PER_SITE // 2
        shape = Shape(widths=(pairs,))
        tracemalloc.start()
        controller = Controller(shape, chained(shape, sites), frozenset(range(sites)))
        held = tracemalloc.get_traced_memory()[0] / 1e6
        tracemalloc.stop()
        per_site = 2 * 4 * pairs * pairs / sites
        rounds.append((float(sites), cpu))
        links.append((float(sites), per_site))
        rows += [
            Row(what=f"{sites} sites: processor time of a round of the policy, ms", ours=cpu,
                within=(0.0, 1000.0)),
            Row(what=f"{sites} sites: messages of a round without moves", ours=3.0 * sites),
            Row(what=f"{sites} sites: moves; {found.rounds} rounds", ours=found.moves),
            Row(what=f"{sites} sites: balanced / static", ours=model.rate() / before,
                within=(1.5, 2.4)),
            Row(what=f"{sites} sites: controller for {len(controller.pairs):,} pairs, MB",
                ours=held),
            Row(what=f"{sites} sites: connections per site, one per pair of operators",
                ours=per_site),
            Row(what=f"{sites} sites: connections per site, one per pair of sites",
                ours=float(sites - 1)),
        ]  # fmt: skip
    return Result(
        rows=tuple(rows),
        charts=(
            Chart(title="SCALE  a round of the policy", x="sites (log)",
                  y="processor time, ms (log)", log_x=True, log_y=True,
                  series=(Series("ours", tuple(rounds), True),)),
            Chart(title="SCALE  connections per site, 8 pairs per site and stage",
                  x="sites (log)", y="connections (log)", log_x=True, log_y=True,
                  series=(Series("per pair of operators", tuple(links), True),
                          Series("per pair of sites", tuple((s, s - 1) for s, _ in links), True))),
        ),
    )  # fmt: skip


EXPERIMENTS = (
    Experiment(
        id="SCALE",
        title="32, 256 and 1,024 sites",
        source="beyond the papers; 4 n m connections: specification 7.4",
        setup="16 copies on every site, an eighth of the sites loaded, thresholds of the simulation",
        derived=("sites are the share model; connections are counted by formula, two stages",),
        run=scale,
    ),
)

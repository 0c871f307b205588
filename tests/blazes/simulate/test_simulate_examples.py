"""The ad network under many schedules: what the labels predict is seen, under the plan nothing."""

from __future__ import annotations

from pathlib import Path

from annotations.file import load
from annotations.vocabulary import Label
from blazes.simulate import repro
from blazes.simulate.simulation import Simulation

ROOT = Path(__file__).parents[3]


def test_poor_diverges_uncoordinated_and_not_under_the_plan(tmp_path: Path) -> None:
    file = ROOT / "examples/ad_network/ad_network.yaml"
    dataflow, _ = load(file, variants={"Report": "POOR"})
    simulation = Simulation(dataflow)
    found = simulation.simulate(inputs=6, time_s=120.0)
    seen = {(anomaly.kind, anomaly.stream) for anomaly in found.free.witnesses}
    assert {(Label.INST, "answers"), (Label.DIVERGE, "gossip")} <= seen
    assert not found.unexpected
    assert found.planned is not None
    assert not found.planned.witnesses
    witness = next(w for a, w in found.free.witnesses.items() if a.kind is Label.DIVERGE)
    assert sum(map(len, witness.given.values())) == 2  # a click, and a request that misses it
    repro.save(witness, tmp_path / "w.json")
    networks = {planned: simulation.network(coordinated=planned) for planned in (False, True)}
    again = repro.load(tmp_path / "w.json", networks)
    assert again.runs[-1].end == witness.runs[-1].end

"""The experiments of the Flux papers, re-run: one module per family."""

from __future__ import annotations

from .cluster import EXPERIMENTS as CLUSTER
from .experiment import Experiment
from .memory import EXPERIMENTS as MEMORY
from .mttf import EXPERIMENTS as MTTF
from .recovery import EXPERIMENTS as RECOVERY
from .scale import EXPERIMENTS as SCALE
from .simulated import EXPERIMENTS as SIMULATED
from .skew import EXPERIMENTS as SKEW

CATALOGUE: tuple[Experiment, ...] = (
    *RECOVERY,
    *SKEW,
    *SIMULATED,
    *MEMORY,
    *CLUSTER,
    *MTTF,
    *SCALE,
)

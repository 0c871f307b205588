"""The annotation pass: from a plan (`ir`) to what each source does to the output (`derivation`).

One function for every front end:

    annotate(plan, output_mode="update", lateness={"clicks": 600.0}, fds=(...)) -> Derivation
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from annotations.dataflow import EMPTY
from annotations.vocabulary import FunctionalDependency
from annotations.whitebox.derivation import Derivation
from annotations.whitebox.ir import Relation


def annotate(
    plan: Relation,
    *,
    output_mode: str = "update",
    lateness: Mapping[str, float] = EMPTY,
    fds: Sequence[FunctionalDependency] = (),
) -> Derivation:
    """What each source of `plan` does to its output.

    `output_mode` is Spark's (`append`, `update`, `complete`); `lateness` promises for a source that
    no record is more than so many seconds of event time behind the newest; `fds` hold for the
    attributes of all sources. Never raises: what is not known is `OW[*]`, with the reason.
    """
    raise NotImplementedError

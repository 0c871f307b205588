"""Written annotations held against those that the code of the components gives.

A claim that is weaker than what the code shows is fine: it costs coordination, not correctness. One
that lets pass more than the code shows is told with both (BLZ084; BLZ077 for what repeats do),
unless `why:` accepts it; so is what is left to chance on a path that does not say so (BLZ083).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from annotations.dataflow import Component, Dataflow, Path
from annotations.delivery import repeats_of
from annotations.dependencies import PathDependencies, closure
from annotations.diagnostics import CODES, Diagnostic
from annotations.vocabulary import FunctionalDependency, Repeats, Rows, Within
from annotations.whitebox.code import Code
from annotations.whitebox.components import Output

if TYPE_CHECKING:
    from annotations.whitebox.sandbox import Limits

_SEVERITY: Final = list(Repeats)


def unshown_claims(dataflow: Dataflow, *, execute: Limits | None = None) -> tuple[Diagnostic, ...]:
    """The claims that the code does not show, as far as there is code that can be read.

    Args:
        dataflow: whose claims.
        execute: what functions may take when they are run to be read; None: nothing is run.
    """
    code = Code(dataflow, execute=execute)
    dependencies = PathDependencies(dataflow)
    return tuple(
        diagnostic
        for component in dataflow.components.values()
        if any(path.derived is None for path in component.paths)
        for output in code.outputs(component)
        if not output.undescribed
        for diagnostic in _of_output(component, output, dependencies)
    )


def _of_output(
    component: Component, output: Output, dependencies: PathDependencies
) -> Iterator[Diagnostic]:
    name = component.name
    written = {path.source: path for path in component.paths if path.target == output.name}
    for shown in output.paths():
        claim = written.get(shown.source)
        if claim is None or claim.derived is not None or claim.why is not None:
            continue
        if claim.nondeterministic is None and shown.nondeterministic is not None:
            message = f"{name} {claim} does not say `nondeterministic`: {shown.nondeterministic}"
            yield Diagnostic(CODES["BLZ083"], message, claim.position)
            shown = replace(shown, nondeterministic=None)
        if difference := _of_repeats(claim, shown):
            message = (
                f"{name} {claim} is written `{difference[0]}`, and its code gives `{difference[1]}`"
            )
            yield Diagnostic(CODES["BLZ077"], message, claim.position)
        if copies := _of_lineage(claim, shown, output):
            message = f"{name} {claim} is written to copy {copies}, which its code does not show"
            yield Diagnostic(CODES["BLZ084"], message, claim.position)
        if more_than_shown(claim, shown, dependencies.of(component, claim)):
            claimed, derived = annotation_text(claim), annotation_text(shown)
            message = f"{name} {claim} is written {claimed}, and its code gives {derived}"
            why = "; ".join(
                f"{reason.text} ({reason.position})" if reason.position else reason.text
                for reason in shown.derived or ()
            )
            yield Diagnostic(CODES["BLZ084"], f"{message}: {why}", claim.position)


def _of_repeats(claim: Path, shown: Path) -> tuple[str, str] | None:
    """Repeats or rows as written and as the code gives them, where the code's are worse."""
    written, actual = repeats_of(claim), repeats_of(shown)
    if claim.repeats is not None and _SEVERITY.index(written) < _SEVERITY.index(actual):
        return f"repeats: {written.value}", f"repeats: {actual.value}"
    if claim.rows is Rows.ONE and shown.rows is Rows.MANY:
        return "rows: one", "rows: many"
    return None


def _of_lineage(claim: Path, shown: Path, output: Output) -> str:
    """The copies that are written and that the code, where it is read as a whole, does not make."""
    if claim.lineage is None or shown.lineage is None or output.query.problem is not None:
        return ""
    missing = claim.lineage.items() - shown.lineage.items()
    return ", ".join(f"`{source}` as `{target}`" for target, source in sorted(missing))


def annotation_text(path: Path) -> str:
    """The annotation of the path, on one line."""
    order = " within: sequence" if path.within is Within.SEQUENCE else ""
    chance = " nondeterministic" if path.nondeterministic is not None else ""
    return f"{path.annotation}{order}{chance}"


def more_than_shown(claim: Path, shown: Path, fds: Sequence[FunctionalDependency] = ()) -> bool:
    """True where the claim would let pass what the code does not show to be safe."""
    if claim.nondeterministic is None and shown.nondeterministic is not None:
        return True
    if claim.annotation.kind < shown.annotation.kind:
        return True
    if shown.annotation.kind.confluent:
        return False
    claimed, derived = claim.annotation.gate, shown.annotation.gate
    assert claimed is not None
    assert derived is not None
    if claimed.attributes is None:
        return False  # of its partitions nothing is said, nor of the order in them
    if shown.within is Within.SEQUENCE and claim.within is not Within.SEQUENCE:
        return True
    return derived.attributes is None or not claimed.attributes <= closure(derived.attributes, fds)

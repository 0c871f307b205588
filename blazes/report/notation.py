"""Labels and derivations of an analysis as parts of a document."""

from __future__ import annotations

from annotations.vocabulary import Label, StreamLabel
from blazes.analysis import Derivation, Step
from blazes.document import blocks as b


def role_of(label: Label) -> str:
    """The colour of a severity."""
    return label.name.lower()


def label_span(label: StreamLabel | Label) -> b.Span:
    """A label in the colour of its severity."""
    return b.Span(str(label), role_of(label if isinstance(label, Label) else label.label))


def derivation_block(derivation: Derivation, *, most: int | None = None) -> b.Derivation:
    """The inference steps of an output interface, reconciled and merged to its label.

    Args:
        derivation: what is shown.
        most: at most so many steps, those that add something first; None: all.
    """
    steps = list(derivation.steps)
    if most is not None and len(steps) > most:
        chosen = sorted(range(len(steps)), key=lambda i: (not steps[i].adds, i))[:most]
        steps = [steps[i] for i in sorted(chosen)]
    words = [derivation.component, *(["Rep"] if derivation.rep else [])]
    rules = f" ({', '.join(derivation.reconciled)})" if derivation.reconciled else ""
    return b.Derivation(
        premises=tuple(map(_step, steps)),
        by=", ".join(words) + rules,
        conclusion=label_span(derivation.label),
        more=len(derivation.steps) - len(steps),
    )


def _step(step: Step) -> b.Derivation:
    """One inference step: input label and annotation, the rule, and what follows.

    Where it adds nothing, the label follows that leaves the path.
    """
    added = b.Span(", ".join(map(str, step.adds)), "strong")
    return b.Derivation(
        premises=(label_span(step.input), b.Span(str(step.path.annotation))),
        by=f"({', '.join(rules_of(step))})",
        conclusion=added if step.adds else label_span(step.leaves),
    )


def rules_of(step: Step) -> tuple[str, ...]:
    """The rule of a step, and S3 where a seal passes an order-sensitive path."""
    passes = bool(step.leaves.keys) and not step.path.annotation.kind.confluent
    return (step.rule, "S3") if passes else (step.rule,)

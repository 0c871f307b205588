"""`blazes derive --write`: derived annotations put into the file, which stays as it is otherwise.

The lines are inserted as text before the first key of the component, so that comments, order,
quotes and anchors stay. What was written is read again: it must say what was derived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from annotations.dataflow import EMPTY, Component, Dataflow, Path
from annotations.delivery import repeats_of
from annotations.file.insertions import (
    CannotWrite,
    Insertion,
    below,
    body_of,
    first_key,
    inserted,
    newline_of,
    read_again,
    tree_of,
)
from annotations.file.unannotated import COMPUTES
from annotations.positions import Map, Node
from annotations.vocabulary import Rows
from annotations.whitebox.code import Code
from annotations.whitebox.components import lineage_to_write
from annotations.whitebox.path_text import path_text

if TYPE_CHECKING:
    from annotations.whitebox.sandbox import Limits

_UNKNOWN: Final = "--execute runs it to be read; what fails then has to be annotated by hand"


def with_annotations(
    dataflow: Dataflow,
    names: Iterable[str],
    *,
    variants: Mapping[str, str] = EMPTY,
    execute: Limits | None = None,
) -> str:
    """The text of the dataflow's file with the derived annotations of these components in it."""
    for name in names:
        if not all(path.annotated for path in dataflow.components[name].paths):
            raise CannotWrite(f"nothing is known of the code of {name}", remedy=_UNKNOWN)
    assert dataflow.file is not None
    mark, body = body_of(dataflow.file)
    root = tree_of(body, str(dataflow.file))
    code = Code(dataflow, body, execute=execute)
    insertions = [_insertion(body, root, dataflow.components[name], code) for name in names]
    body = inserted(body, insertions)
    _check(dataflow, body, names, variants, execute)
    return mark + body


def _insertion(text: str, root: Node | None, component: Component, code: Code) -> Insertion:
    mapping = _mapping(root, component)
    first, before = first_key(text, mapping, component.name)
    written = [
        (path, path_text(path, _lineage(path, component.name, code))) for path in component.paths
    ]
    if before.strip():
        items = ", ".join(text for _, text in written)
        return Insertion(first, f"annotation: [{items}], ")
    indent = before
    newline = newline_of(text)
    lines = [f"{indent}annotation:"]
    for path, item in written:
        lines += [f"{indent}  # {reason.text}" for reason in path.derived or ()]
        lines.append(f"{indent}  - {item}")
    return Insertion(first - len(indent), "".join(line + newline for line in lines))


def _lineage(path: Path, name: str, code: Code) -> Mapping[str, str] | None:
    """The lineage that the file has to declare for the path; None where it can be left out."""
    if path.lineage is None:
        return None
    component = code.dataflow.components[name]
    output = next(
        candidate for candidate in code.outputs(component) if candidate.name == path.target
    )
    given = code.inputs(component, path.target)[path.source].schema
    columns = [column.name for column in output.derivation.columns]
    return lineage_to_write(path.lineage, columns, given)


def _mapping(root: Node | None, component: Component) -> Map:
    """The mapping that the annotation belongs into: the component's, or its variant's."""
    components = below(root, "components") or root
    own = below(components, component.name)
    if component.variant is not None:
        variant = below(below(own, "variants"), component.variant)
        if variant is None:
            variant = below(root, component.variant)
        if isinstance(variant, Map) and not COMPUTES.isdisjoint(variant.entries):
            return variant
    if not isinstance(own, Map):
        raise CannotWrite(f"{component.name} is not where its name stands")
    return own


def _check(
    dataflow: Dataflow,
    body: str,
    names: Iterable[str],
    variants: Mapping[str, str],
    execute: Limits | None,
) -> None:
    """The text says what was derived, of these components and of all others."""
    written = read_again(body, dataflow.file, variants, execute)
    for name, component in dataflow.components.items():
        again = written.components[name]
        if _bare(again.paths) != _bare(component.paths):
            raise CannotWrite(f"the paths of {name} would change")
        if name in names and any(path.derived is not None for path in again.paths):
            raise CannotWrite(f"the annotation of {name} would not be seen")


def _bare(paths: Sequence[Path]) -> list[Path]:
    """The paths without what a file need not, or cannot, say of them."""
    return [
        replace(
            path,
            lineage=None,
            variant=None,
            repeats=repeats_of(path),
            rows=Rows.MANY if path.rows is Rows.JOINED else path.rows,
        )
        for path in paths
    ]

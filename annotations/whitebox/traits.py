"""The roles of a plan's sources for its rows: asked for once, or kept; and whether files are
those of a path."""

from __future__ import annotations

from annotations.whitebox.ir import Relation, Source, Store, inputs_of


def overlap(files: str, path: str) -> bool:
    """Whether some of the files lie below a path, or it below one of theirs."""
    one = path.rstrip("/*") + "/"
    others = [file.rstrip("/*") + "/" for file in files.split(", ")]
    return any(one.startswith(other) or other.startswith(one) for other in others)


def asks(relation: Relation) -> frozenset[str]:
    """The requests that take part in the rows, by name."""
    return _sources(relation, stored=False)


def keeps(relation: Relation) -> frozenset[str]:
    """The sources whose records are kept in a table below."""
    return _sources(relation, stored=True)


def _sources(relation: Relation, *, stored: bool) -> frozenset[str]:
    names: set[str] = set()
    todo = [(relation, False)]
    met: set[tuple[int, bool]] = set()
    while todo:
        node, inside = todo.pop()
        inside = inside or isinstance(node, Store)
        if (id(node), inside) in met:
            continue
        met.add((id(node), inside))
        if isinstance(node, Source) and node.comes:
            if inside == stored:
                names.add(node.name)
            continue
        todo += [(below, inside) for below in inputs_of(node)]
    return frozenset(names)

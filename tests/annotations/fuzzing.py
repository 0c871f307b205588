"""Hypothesis strategies for the text of dataflow files: right, nearly right, and noise."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeAlias

from hypothesis import strategies as st

Tree: TypeAlias = Any
"""A str is YAML text of a scalar; a list is a sequence; `Pairs` is a mapping."""


class Pairs(list[tuple[str, Any]]):
    """A mapping, as pairs of key and value, so that keys can be there twice."""


COMPONENTS = ("A", "B", "Report", "größe")
INTERFACES = ("in", "out", "x-y", "request")
ATTRIBUTES = ("id", "campaign", "window.start", "y")
WORDS = (
    "on", "no", "12:30", "1e3", "0o17", "~", "2024-01-01", "''", '"quoted"', "'it''s'", "-1", "0",
    "[]", "{}", "[[a]]", "{a: b}", "*a", "&a b", "!!int 3", "!x", "<<", "a.b", "A.in", "A.", ".in",
    "| a", "OW[", "OW[a,", "Seal[", "->", "a ->", "|\n      text\n", "a: b", "- a", "#", "é", "\t",
)  # fmt: skip
"""Values that are out of place nearly everywhere."""
KEYS = (
    "name", "components", "streams", "fds", "deployment", "annotation", "Rep", "variants", "sql",
    "python", "replicas", "engine", "order_by", "from", "to", "label", "subscript", "state",
    "within", "lineage", "seal", "schema", "source", "sink", "format", "options", "producers",
    "<<", "x-a", "on", "12", "", "componets", "Report", "POOR",
)  # fmt: skip


def maybe(draw: st.DrawFn, pairs: Pairs, key: str, *values: Tree) -> None:
    """Add the key with one of the values, or do not."""
    if draw(st.integers(0, 3)) == 0:
        pairs.append((key, draw(st.sampled_from(values))))


def names(pool: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(pool), min_size=1, max_size=3, unique=True)


@st.composite
def paths(draw: st.DrawFn, source: str, target: str) -> Pairs:
    pairs = Pairs([("from", source), ("to", target)])
    label = draw(st.sampled_from(["CR", "CW", "OR", "OW", "'OR[*]'", '"OW[id, campaign]"']))
    pairs.append(("label", label))
    if label in ("OR", "OW"):
        maybe(draw, pairs, "subscript", draw(names(ATTRIBUTES)), "id", '"*"')
        maybe(draw, pairs, "within", "set", "sequence")
    maybe(draw, pairs, "state", "log")
    maybe(draw, pairs, "nondeterministic", "rolls dice", "'yes'")
    maybe(draw, pairs, "why", "a set is a set")
    maybe(draw, pairs, "lineage", Pairs([("id", "campaign")]))
    return pairs


@st.composite
def components(draw: st.DrawFn) -> tuple[Pairs, set[str], set[str]]:
    """A component with its inputs and outputs."""
    ends = st.tuples(st.sampled_from(INTERFACES), st.sampled_from(INTERFACES))
    between = draw(st.lists(ends, min_size=1, max_size=3, unique=True))
    drawn = [draw(paths(*end)) for end in between]
    alone = len(drawn) == 1 and draw(st.booleans())
    pairs = Pairs([("annotation", drawn[0] if alone else drawn)])
    outputs = {target for _, target in between}
    if draw(st.booleans()):
        pairs.append(("Rep", draw(st.sampled_from(["true", "True", "false"]))))
    if ("Rep", "true") in pairs:
        maybe(draw, pairs, "replicas", "3")
    if len(outputs) == 1:
        maybe(draw, pairs, "sql", "SELECT 1", "|\n      SELECT 1,\n        2\n")
    else:
        maybe(draw, pairs, "python", Pairs([(draw(st.sampled_from(sorted(outputs))), "m.n:f")]))
    if draw(st.integers(0, 3)) == 0:
        variant = draw(paths(*between[0]))
        shapes = [variant, [variant], Pairs([("annotation", variant)])]
        pairs.append(("variants", Pairs([("POOR", draw(st.sampled_from(shapes)))])))
    maybe(draw, pairs, "engine", "spark", "flux")
    maybe(draw, pairs, "availability", "single", "pairs")
    maybe(draw, pairs, "output_mode", "append", "update")
    maybe(draw, pairs, "order_by", ["id"], "id")
    maybe(draw, pairs, "description", "does things", '"12"')
    return pairs, {source for source, _ in between}, outputs


@st.composite
def streams(draw: st.DrawFn, producer: str | None, consumer: str | None) -> Pairs:
    pairs = Pairs()
    if producer is not None:
        pairs.append(("from", producer))
    if consumer is not None:
        pairs.append(("to", consumer))
    schema = Pairs([("id", "int"), ("campaign", "'decimal(10,2)'"), ("y", "string")])
    schema += [("sealed", "boolean"), ("n", "bigint")]
    end = Pairs([("format", "json"), ("path", "a/b"), ("options", Pairs([("x.y", "true")]))])
    if producer is None:
        maybe(draw, pairs, "label", "Run", "Inst", "Diverge")
        maybe(draw, pairs, "source", end, Pairs([("format", "rate")]), Pairs([("format", "kafka")]))
        maybe(draw, pairs, "id", "id", ["id", "y"])
        maybe(draw, pairs, "delivery", "once", "may-repeat")
    if consumer is None:
        maybe(draw, pairs, "sink", end)
    maybe(draw, pairs, "seal", ["id"], [["id"], ["campaign", "y"]], "'Seal[id] Seal[y]'", "id")
    maybe(draw, pairs, "Rep", "true", "false")
    maybe(draw, pairs, "schema", schema)
    maybe(draw, pairs, "producer", "id")
    maybe(draw, pairs, "punctuation", Pairs([("when", "sealed"), ("count", "n")]))
    registered = Pairs([("registered", "who.json")])
    maybe(draw, pairs, "producers", "one", "registered", registered, ["a", "'10.0.0.1'"])
    maybe(draw, pairs, "late", "fail", "dead-letter")
    maybe(draw, pairs, "seal_timeout", "600", "1.5", "10 minutes", "'1 hour 30 seconds'")
    maybe(draw, pairs, "remember", "forever", "3600", "7 days", "'2 weeks 1 hour'")
    maybe(draw, pairs, "lateness", "5 minutes")
    maybe(draw, pairs, "description", "text")
    return pairs


@st.composite
def dataflows(draw: st.DrawFn) -> Tree:
    """A file that is right, or nearly (attributes that a schema lacks are left to chance)."""
    found = {name: draw(components()) for name in draw(names(COMPONENTS))}
    declared = Pairs((name, pairs) for name, (pairs, _, _) in found.items())
    if draw(st.integers(0, 4)) == 0:
        return Pairs([*declared, ("fds", ["id -> campaign"])])
    tree = Pairs([("components", declared)])
    if draw(st.booleans()):
        ends = [(None, f"{name}.{it}") for name, (_, ins, _) in found.items() for it in ins]
        ends += [(f"{name}.{it}", None) for name, (_, _, outs) in found.items() for it in outs]
        several = [(f"s{i}", draw(streams(*end))) for i, end in enumerate(sorted(ends, key=str))]
        tree.append(("streams", Pairs(several)))
    maybe(draw, tree, "name", "ad-network", '"1"')
    maybe(draw, tree, "fds", ["id -> campaign", '"id, y <-> campaign"'], [], "id->y")
    conf = Pairs([("spark.sql.shuffle.partitions", "4"), ("a", "true"), ("b", "1.5")])
    deployment = Pairs([("master", "local[2]"), ("zookeeper", "h:2181,i:2181"), ("conf", conf)])
    maybe(draw, tree, "deployment", deployment, Pairs([("trigger", "10 seconds")]), Pairs())
    maybe(draw, tree, "x-anchors", ["free"])
    return tree


@st.composite
def mutated(draw: st.DrawFn, trees: st.SearchStrategy[Tree] | None = None) -> Tree:
    """A right file, of `trees`, in which up to four places have been spoilt."""
    tree = deepcopy(draw(dataflows() if trees is None else trees))
    junk = st.one_of(
        st.sampled_from(WORDS),
        st.sampled_from(KEYS),
        st.text(max_size=8),
        st.just(Pairs([("from", "in"), ("to", "out")])),
        st.lists(st.sampled_from(WORDS), max_size=3),
    )
    for _ in range(draw(st.integers(1, 4))):
        node = tree
        while isinstance(node, list) and node:
            index = draw(st.integers(0, len(node) - 1))
            inner = node[index][1] if isinstance(node, Pairs) else node[index]
            if draw(st.integers(0, 3)) == 0 or not isinstance(inner, list):
                _spoil(draw, node, index, deepcopy(draw(junk)))
                break
            node = inner
    return tree


def _spoil(draw: st.DrawFn, node: list[Any], index: int, junk: Tree) -> None:
    change = draw(st.sampled_from(["value", "key", "remove", "repeat", "insert"]))
    if change == "remove":
        del node[index]
    elif change == "repeat":
        node.append(deepcopy(node[index]))
    elif isinstance(node, Pairs):
        key, value = node[index]
        other = draw(st.sampled_from(KEYS))
        if change == "key":
            node[index] = (other, value)
        elif change == "insert":
            node.insert(index, (other, junk))
        else:
            node[index] = (key, junk)
    else:
        node[index] = junk


def text_of(tree: Tree, indent: int = 0) -> str:
    """The tree as YAML: block style outside, whatever its scalars are inside."""
    pad = "  " * indent
    if isinstance(tree, Pairs):
        if not tree:
            return " {}\n"
        return "\n" + "".join(f"{pad}{key}:{text_of(value, indent + 1)}" for key, value in tree)
    if isinstance(tree, list):
        if not tree:
            return " []\n"
        return "\n" + "".join(f"{pad}-{text_of(item, indent + 1)}" for item in tree)
    return f" {tree}\n"


def texts(trees: st.SearchStrategy[Tree]) -> st.SearchStrategy[str]:
    """The trees as YAML text."""
    return trees.map(lambda tree: text_of(tree).removeprefix("\n"))


NOISE = st.one_of(
    st.text(),
    st.text(alphabet="abAB:-, \n\t[]{}*&!|>'\"#%@`<?.=01~\u2028\ufeff\x00\ud800"),
    st.lists(st.sampled_from([*WORDS, *KEYS, ": ", "\n", "\n  ", ", ", "- "]), max_size=30).map(
        "".join
    ),
)
"""Text that is hardly ever YAML, and hardly ever a dataflow where it is."""

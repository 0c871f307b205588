"""The compact language: `OW[word, batch]`, `Seal[campaign]`, `a, b -> c`.

The grammar is `compact.lark`. Importing this module imports lark, which takes longer than analysing
a small file; the YAML front end does so only when it meets such a string.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final, NamedTuple

from lark import Lark, Token, Tree, UnexpectedInput, UnexpectedToken

from annotations.diagnostics import did_you_mean
from annotations.vocabulary import (
    STAR,
    Annotation,
    AnnotationKind,
    FunctionalDependency,
    Gate,
    Key,
)


class CompactError(ValueError):
    """A text that is not in the compact language."""

    def __init__(self, message: str, text: str, offset: int) -> None:
        self.message = message
        self.text = text
        self.offset = offset
        """Where in the text, in characters from its start."""
        super().__init__(f"{message}, at column {offset + 1} of {text!r}")


class Attribute(NamedTuple):
    """An attribute and the offset at which it stands."""

    name: str
    offset: int


class ParsedAnnotation(NamedTuple):
    """An annotation whose gate may not fit its kind yet."""

    kind: AnnotationKind
    gate: tuple[Attribute, ...] | None
    """None: not given; empty: `*`."""
    gate_offset: int


class ParsedDependency(NamedTuple):
    """A functional dependency with the places of its attributes."""

    determinant: tuple[Attribute, ...]
    dependent: tuple[Attribute, ...]
    injective: bool


def parse_annotation(text: str) -> Annotation:
    """The annotation that `text` stands for; `CompactError` where it is none.

    >>> str(parse_annotation("OW[word, batch]"))
    'OW[batch,word]'
    >>> str(parse_annotation("OR")), str(parse_annotation("OR[`order id`]"))
    ('OR[*]', 'OR[`order id`]')
    """
    kind, gate, offset = read_annotation(text)
    if kind.confluent and gate is not None:
        raise CompactError(f"{kind.name} is confluent and has no gate", text, offset)
    if kind.confluent:
        return Annotation(kind)
    return Annotation(kind, Gate(_key(gate)) if gate else STAR)


def parse_seal(text: str) -> tuple[Key, ...]:
    """The keys of one or more `Seal[...]`; `CompactError` where `text` is none.

    >>> [sorted(key) for key in parse_seal("Seal[campaign] Seal[day, hour]")]
    [['campaign'], ['day', 'hour']]
    """
    return tuple(_key(attributes) for attributes in read_seals(text))


def parse_dependency(text: str) -> FunctionalDependency:
    """The dependency that `text` stands for; `CompactError` where it is none.

    >>> str(parse_dependency("id,day->campaign"))
    'day, id -> campaign'
    """
    parsed = read_dependency(text)
    return FunctionalDependency(_key(parsed.determinant), _key(parsed.dependent), parsed.injective)


@lru_cache(maxsize=4096)
def read_annotation(text: str) -> ParsedAnnotation:
    """As `parse_annotation`, with offsets, and without a look at whether the gate fits."""
    kind, *gate = _parse("annotation", text).children
    assert isinstance(kind, Token)
    if not gate:
        return ParsedAnnotation(AnnotationKind[kind], None, 0)
    inner = _subtree(gate[0]).children[0]
    attributes = () if isinstance(inner, Token) else _attributes(inner, text)
    return ParsedAnnotation(AnnotationKind[kind], attributes, text.index("["))


@lru_cache(maxsize=4096)
def read_seals(text: str) -> tuple[tuple[Attribute, ...], ...]:
    """As `parse_seal`, with offsets."""
    children = _parse("seals", text).children
    return tuple(_attributes(child, text) for child in children if isinstance(child, Tree))


@lru_cache(maxsize=4096)
def read_dependency(text: str) -> ParsedDependency:
    """As `parse_dependency`, with offsets."""
    left, arrow, right = _parse("dependency", text).children
    return ParsedDependency(_attributes(left, text), _attributes(right, text), arrow == "<->")


def _key(attributes: tuple[Attribute, ...]) -> Key:
    return frozenset(attribute.name for attribute in attributes)


def _subtree(child: Token | Tree[Token]) -> Tree[Token]:
    assert isinstance(child, Tree)
    return child


def _attributes(child: Token | Tree[Token], text: str) -> tuple[Attribute, ...]:
    attributes: dict[str, Attribute] = {}
    for token in _subtree(child).children:
        assert isinstance(token, Token)
        assert token.start_pos is not None
        attribute = Attribute(token.strip("`"), token.start_pos)
        if attributes.setdefault(attribute.name, attribute) is not attribute:
            raise CompactError(f"`{attribute.name}` is there twice", text, attribute.offset)
    return tuple(attributes.values())


@cache
def _parser(start: str) -> Lark:
    return Lark.open("compact.lark", rel_to=__file__, parser="lalr", start=start)


def _parse(start: str, text: str) -> Tree[Token]:
    try:
        return _parser(start).parse(text)
    except UnexpectedInput as error:
        raise _explain(error, start, text) from None


_TERMINALS: Final = {
    "KIND": "CR, CW, OR or OW",
    "SEAL": "`Seal`",
    "ATTRIBUTE": "an attribute",
    "STAR": "`*`",
    "ARROW": "`->` or `<->`",
    "LSQB": "`[`",
    "COMMA": "`,`",
    "RSQB": "`]`",
    "$END": "the end",
}
"""What the terminals of the grammar are called in messages, in the order they are listed."""


def _explain(error: UnexpectedInput, start: str, text: str) -> CompactError:
    """The error that says what was expected, where, and what was found."""
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        offset = len(text)
    elif isinstance(error, UnexpectedToken):
        offset = error.token.start_pos or 0
    else:
        offset = error.pos_in_stream or 0
    parser = _parser(start).parse_interactive(text[:offset])
    parser.exhaust_lexer()
    allowed: set[str] = parser.accepts()  # type: ignore[no-untyped-call]
    expected = " or ".join(words for name, words in _TERMINALS.items() if name in allowed)
    word = re.match(r"\w+|<?->|\S|", text[offset:])
    unexpected = word.group() if word else ""
    near = (
        did_you_mean(unexpected, AnnotationKind.__members__)
        if "KIND" in allowed and unexpected
        else ""
    )
    message = f"expected {expected}, found {f'`{unexpected}`' if unexpected else 'the end'}{near}"
    return CompactError(message, text, offset)

"""Rules for what looks at several rows of one input: groups, duplicates, windows, limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from annotations.dataflow import Position
from annotations.vocabulary import Within
from annotations.whitebox.context import (
    Context,
    classes_of,
    define,
    effect,
    keep,
    look,
    moved,
    sensitive,
    use,
)
from annotations.whitebox.datatypes import UNKNOWN, Family
from annotations.whitebox.derivation import Assumption
from annotations.whitebox.facts import Copies, Facts, unique
from annotations.whitebox.functions import (
    AGGREGATES,
    EVERY,
    FUNCTIONS,
    NONE,
    NUMBERINGS,
    RANKS,
    Aggregation,
    Direction,
    Null,
)
from annotations.whitebox.ir import (
    Aggregate,
    Call,
    Column,
    Deduplicate,
    Expression,
    Lambda,
    Limit,
    Ref,
    Unknown,
    Window,
    references,
    walk,
)
from annotations.whitebox.monotone import bits_of, sign_of, type_of
from annotations.whitebox.words import listed, text_of

OF_THE_SET: Final = frozenset(
    {"sort_array", "array_sort", "size", "cardinality", "array_size", "array_contains"}
    | {"array_max", "array_min"}
)
"""Functions of an array that do not depend on the order of its elements: which of two that are
equal comes first does not matter where equal elements are the same."""
OF_THE_NUMBER: Final = frozenset({"size", "cardinality", "array_size"})
"""Those for which equal elements need not be the same."""


def aggregate(context: Context, node: Aggregate, facts: Facts) -> Facts:
    """One row for each group: the row stays, its aggregates move (rows 9 to 14 and 21)."""
    facts = use(facts, *node.keys)
    common = _in_every_set(node)
    classes = [
        copies
        for at, key in enumerate(node.keys)
        if at in common
        for copies in classes_of(key, facts)
    ]
    by = f"each {listed(node.keys)}" if node.keys else "the whole stream"
    facts = keep(facts, "aggregate", f"rows are kept for {by}", node.position)
    grouping = _Grouping(context, node, facts, classes, by)
    grouping.ask()
    grouping.drop_late()
    grouping.merge()
    grouping.outputs()
    return grouping.facts


def _in_every_set(node: Aggregate) -> frozenset[int]:
    """The keys that every grouping set has; the others are NULL in some rows (row 21)."""
    if node.sets is None:
        return frozenset(range(len(node.keys)))
    return frozenset.intersection(*node.sets) if node.sets else frozenset()


def _sets(node: Aggregate) -> tuple[frozenset[int], ...]:
    return (frozenset(range(len(node.keys))),) if node.sets is None else node.sets


class _Grouping:
    """One aggregate on its way from the facts about its input to those about its rows."""

    def __init__(
        self, context: Context, node: Aggregate, facts: Facts, classes: list[Copies], by: str
    ) -> None:
        self.context, self.node, self.inner = context, node, facts
        self.classes, self.by = classes, by
        self.final = False
        """True where a group leaves once, when it is complete."""
        self.single = False
        """True where a group has one row of requests and nothing else."""
        self.made: set[Column] = set()
        """Columns that stand for a key or for the result of an aggregate."""
        fixed = facts.fixed or not all(_sets(node))
        self.facts = replace(facts, copies={}, moving={}, fixed=fixed, repeats=None, again=None)

    def ask(self) -> None:
        """Where requests are grouped, each group should belong to one request."""
        asked = self.inner.asked
        if not asked or self._whole():
            return
        if not self.inner.mixed and self.context.determines(self.classes, asked):
            self.single = not self.inner.retained
            return
        text = f"requests are put together by {self.by}, whichever came in time"
        self.facts = sensitive(
            self.facts, effect(self.inner, "requests", text, self.node.position, gate=None)
        )

    def _whole(self) -> bool:
        """True where requests only choose groups, and each group as a whole."""
        chosen = self.inner.linked
        return chosen is not None and all(
            any(copies <= key for key in self.classes) for copies in chosen
        )

    def drop_late(self) -> None:
        """Rows behind the watermark may be dropped, unless a promise says that there are none."""
        promised, broken = _promises(self.context, self.inner)
        for position in broken:
            text = "which rows the watermark drops depends on the batches"
            late = effect(self.inner, "watermark", text, position, gate=self.classes)
            self.facts = sensitive(self.facts, late)
        if broken or not promised:
            return
        closing = any(_closes(key, self.inner) for key in self.node.keys)
        self.final = self.context.mode == "append" and closing
        self.facts = replace(self.facts, assumptions=unique((*self.facts.assumptions, *promised)))

    def merge(self) -> None:
        """Sessions: one that gains a record takes the place of those that it is made of."""
        for key in self.node.keys:
            merging = [part for part in walk(key) if isinstance(part, Call) and _merges(part)]
            if merging and not self.final:
                text = f"`{text_of(merging[0])}` grows while records come that belong to it"
                growth = effect(
                    self.inner, "aggregate-value", text, self.node.position, gate=self.classes
                )
                self.facts = sensitive(self.facts, growth)

    def outputs(self) -> None:
        """The columns, and whether a row may leave again when its group changes."""
        temporary = replace(self.inner, copies=dict(self.inner.copies), moving={})
        for column, expression in self.node.outputs:
            reduced = self._reduced(expression, temporary)
            if self.inner.live and not references(reduced) <= self.made | _parameters(reduced):
                self._unknown(column, expression)
                continue
            self.facts = _noted(self.facts, look(self.inner, expression))
            define(self.facts, column, reduced, temporary)
        if not self.final and self.inner.live:
            self.facts.again = _put_out_again(self.context) or self.facts.again

    def _unknown(self, column: Column, expression: Expression) -> None:
        """Neither a key nor made by a known aggregate: perhaps an aggregate of the user."""
        text = f"{text_of(expression)} is neither a key of the group nor a known aggregate"
        position = getattr(expression, "position", None) or self.node.position
        unknown = effect(self.inner, "unknown-aggregate", text, position, gate=None)
        self.facts = sensitive(self.facts, unknown)
        self.facts.copies[column] = frozenset()

    def _reduced(self, expression: Expression, temporary: Facts) -> Expression:
        """The expression with keys and aggregates replaced by columns that stand for them."""
        for at, key in enumerate(self.node.keys):
            if expression == key:
                column = self._stand_in(Column(text_of(key), type_of(key)))
                copied = self.inner.copies.get(key.column) if isinstance(key, Ref) else None
                everywhere = at in _in_every_set(self.node)
                temporary.copies[column] = (copied or frozenset()) if everywhere else frozenset()
                if column.type.collated:
                    text = f"`{text_of(key)}` is shown as the row that comes first writes it"
                    shown = effect(
                        self.inner,
                        "first-row",
                        text,
                        self.node.position,
                        gate=self.classes,
                        within=Within.SEQUENCE,
                    )
                    temporary.copies[column] = frozenset()
                    temporary.moving |= moved(column, Direction.ANY, shown)
                return Ref(column)
        match expression:
            case Call(function=name, user=None, arguments=(first, *rest)) if (
                name in OF_THE_SET and (collected := collected_by(expression))
            ):
                first = Ref(self._aggregated(collected, temporary, in_order=True))
                others = [self._reduced(argument, temporary) for argument in rest]
                return replace(expression, arguments=(first, *others))
            case Call(function=name, user=None) if name in AGGREGATES:
                return Ref(self._aggregated(expression, temporary))
            case Call(arguments=arguments):
                inner = tuple([self._reduced(argument, temporary) for argument in arguments])
                return replace(expression, arguments=inner)
            case Lambda(body=body):
                return replace(expression, body=self._reduced(body, temporary))
            case Unknown(arguments=arguments):
                inner = tuple([self._reduced(argument, temporary) for argument in arguments])
                return replace(expression, arguments=inner)
        return expression

    def _aggregated(self, call: Call, temporary: Facts, *, in_order: bool = False) -> Column:
        """A column that stands for the result of an aggregate."""
        row = aggregation_of(call)
        assert row is not None
        used = use(self.inner, *call.arguments, call.condition)
        self.facts = _noted(self.facts, used)
        self._count_twice(call, row)
        if call.arguments and type_of(call.arguments[0]) in row.assumed and self.inner.live:
            text = (
                f"no `{text_of(call)}` leaves BIGINT on the way: with ANSI mode on Spark stops "
                "then, in some orders of the records and not in others"
            )
            self._assume(text, call.position)
        nullable = FUNCTIONS[call.function].null is not Null.NEVER
        column = self._stand_in(Column(text_of(call), call.type, nullable, bits_max=row.bits_max))
        temporary.copies[column] = frozenset()
        depends = self._order(call, row, in_order)
        if self.single or (self.final and depends is None):
            return column
        construct, text = (
            "aggregate-value",
            f"`{text_of(call)}` is used before {self.by} is complete",
        )
        within = Within.SET
        if depends is not None:
            (construct, text), within = depends, Within.SEQUENCE
        one = effect(self.inner, construct, text, call.position, gate=self.classes, within=within)
        if one is not None and one.reordered and row.adds:
            text = f"how `{text_of(call)}` rounds does not matter: {one.reordered} below leaves "
            self._assume(f"{text}the rows in any order", call.position)
            one = replace(one, reordered="")
        temporary.moving |= moved(column, direction_of(call, row), one)
        return column

    def _assume(self, text: str, position: Position | None) -> None:
        assumed = (*self.facts.assumptions, Assumption(text, position))
        self.facts = replace(self.facts, assumptions=unique(assumed))

    def _stand_in(self, column: Column) -> Column:
        self.made.add(column)
        return column

    def _order(self, call: Call, row: Aggregation, in_order: bool) -> tuple[str, str] | None:
        """Why the result depends on the order inside the group; None where it does not."""
        if of_the_set(call, row) or in_order or _sorted_by_itself(call):
            return None
        name = text_of(call)
        if not row.adds:
            return "order-aggregate", f"`{name}` depends on the order of the rows in {self.by}"
        kind = type_of(call.arguments[0]) if call.arguments else UNKNOWN
        if kind.family is Family.DECIMAL:
            return "order-aggregate", f"`{name}` may need too many digits, in some orders of rows"
        if kind.family is Family.INTEGER and call.function == "try_sum":
            return "order-aggregate", f"`{name}` may leave BIGINT, in some orders of the rows"
        if kind.family is Family.INTEGER and row.of_the_set is not NONE:
            return "float-sum", f"`{name}` adds floating-point numbers, exact up to 2^53 only"
        about = "numbers that may be floating-point"
        if row.of_the_set is NONE or kind.family is Family.FLOAT:
            about = "floating-point numbers"
        return "float-sum", f"`{name}` of {about} depends on their order"

    def _count_twice(self, call: Call, row: Aggregation) -> None:
        """A record that may come twice counts twice (set-only streams, row 11)."""
        if not row.duplicates or call.distinct or self.inner.repeats is None:
            return
        text = f"`{text_of(call)}` counts a record each time it comes, but {self.inner.repeats}"
        duplicate = effect(self.inner, "set-only", text, call.position, gate=None)
        self.facts = sensitive(self.facts, duplicate)


def aggregation_of(call: Call) -> Aggregation | None:
    """The claims about an aggregate call; None where its function is no known aggregate."""
    row = FUNCTIONS.get(call.function)
    return None if row is None or call.user is not None else row.aggregation


def direction_of(call: Call, row: Aggregation) -> Direction:
    """How the result of an aggregate moves while its group gains rows."""
    if row.of_never_negative and call.arguments:
        argument = call.arguments[0]
        type_ = type_of(argument)
        # A sum of as many rows as there can be leaves no BIGINT; one of decimals has digits enough.
        integral = type_.family is Family.INTEGER
        fits = bits_of(argument) <= 32 if integral else type_ in row.of_the_set
        return Direction.UP if type_.exact and fits and sign_of(argument) == 1 else row.direction
    return row.direction


def of_the_set(call: Call, row: Aggregation) -> bool:
    """Whether the result depends on the rows of a group alone, not on their order."""
    return row.of_the_set is EVERY or (
        bool(call.arguments) and type_of(call.arguments[0]) in row.of_the_set
    )


def _parameters(expression: Expression) -> frozenset[Column]:
    lambdas = [part for part in walk(expression) if isinstance(part, Lambda)]
    return frozenset(column for function in lambdas for column in function.parameters)


def _noted(facts: Facts, used: Facts) -> Facts:
    """The facts with what using values of the input brought to light."""
    return replace(
        facts,
        effects=unique((*facts.effects, *used.effects)),
        chances=unique((*facts.chances, *used.chances)),
        stores=unique((*facts.stores, *used.stores)),
        assumptions=unique((*facts.assumptions, *used.assumptions)),
    )


def collected_by(call: Call) -> Call | None:
    """The aggregate that collects what is the first argument, if it is one."""
    inner = call.arguments[0]
    if not isinstance(inner, Call) or inner.user is not None or _has_lambda(call):
        return None
    row = aggregation_of(inner)
    element = type_of(inner.arguments[0]) if inner.arguments else UNKNOWN
    if row is None or row.direction is not Direction.COLLECTS:
        return None
    return inner if call.function in OF_THE_NUMBER or element.identical else None


def _has_lambda(call: Call) -> bool:
    return any(isinstance(argument, Lambda) for argument in call.arguments)


def _sorted_by_itself(call: Call) -> bool:
    """LISTAGG in the order of what is listed: equal elements are equal texts."""
    ordered = tuple(key.expression for key in call.order)
    same = bool(ordered) and type_of(ordered[0]).identical
    listed_ = call.function in ("listagg", "string_agg")
    return listed_ and same and ordered[:1] == call.arguments[:1]


def _promises(
    context: Context, facts: Facts
) -> tuple[tuple[Assumption, ...], tuple[Position | None, ...]]:
    """Watermarks below that a promise covers, and the places of those that none covers."""
    promised, broken = [], []
    for occurrence, attribute, delay_s, position in facts.watermarks:
        source = context.names[occurrence].name
        promise = context.lateness.get(source)
        if promise is None or delay_s is None or attribute is None or promise > delay_s:
            broken.append(position)
            continue
        text = (
            f"no record of {source} is more than {promise:g} seconds behind the newest by "
            f"{attribute}, so that the watermark of {delay_s:g} seconds drops none"
        )
        promised.append(Assumption(text, position))
    return tuple(promised), tuple(dict.fromkeys(broken))


def late(context: Context, facts: Facts, gate: Iterable[Copies]) -> Facts:
    """The facts where state above a watermark drops what comes late (rows 5 and 10)."""
    promised, broken = _promises(context, facts)
    for position in broken:
        text = "which rows the watermark drops depends on the batches"
        facts = sensitive(facts, effect(facts, "watermark", text, position, gate=tuple(gate)))
    return replace(facts, assumptions=unique((*facts.assumptions, *promised)))


def _closes(key: Expression, facts: Facts) -> bool:
    """True where a watermark closes the groups of this key: an event time, or a window of one."""
    marked = {(occurrence, name) for occurrence, name, *_ in facts.watermarks if name is not None}
    if {occurrence for occurrence, _ in marked} < facts.live:
        return False
    columns = references(key)
    times = all(facts.copies.get(column, frozenset()) & marked for column in columns)
    known = all(
        call.function == "field" or _rises_with_time(call)
        for call in walk(key)
        if isinstance(call, Call)
    )
    return bool(columns) and times and known


def _rises_with_time(call: Call) -> bool:
    row = FUNCTIONS.get(call.function)
    return row is not None and (row.rises_with_time or row.merges)


def _merges(call: Call) -> bool:
    row = FUNCTIONS.get(call.function)
    return row is not None and row.merges


def _put_out_again(context: Context) -> str | None:
    """Why a row leaves again when its group changes; None where it leaves once."""
    if context.mode == "append":
        return None
    return f"{context.mode} mode sends a row again whenever its group changes"


def deduplicate(context: Context, node: Deduplicate, facts: Facts) -> Facts:
    """One row for each value of the keys; the rest of it is whichever came first (rows 2 to 4)."""
    keys = tuple(Ref(column) for column in node.keys)
    facts = use(facts, *keys)
    by = listed(keys)
    facts = keep(facts, "distinct", f"what was seen is kept for each {by}", node.position)
    classes = [copies for key in keys for copies in classes_of(key, facts)]
    exact = {column for column in node.keys if not column.type.collated}
    rest = [column for column in node.columns if column not in exact]
    text = f"of several rows with the same {by} the one that comes first is kept"
    gate = None if facts.asked else classes
    first = effect(facts, "first-row", text, node.position, gate=gate, within=Within.SEQUENCE)
    moving = {column: movement for column, movement in facts.moving.items() if column in exact}
    for column in rest:
        moving |= moved(column, Direction.ANY, *facts.raised([column]), first)
    again = _put_out_again(context) if node.grouped and facts.live else None
    distinct = replace(late(context, facts, classes), moving=moving, repeats=None, again=again)
    if node.expires:
        text = "what was seen is forgotten after a time, so that a row may come again"
        expiry = effect(facts, "expiring-distinct", text, node.position, gate=None)
        distinct = replace(sensitive(distinct, expiry), repeats=text)
    return distinct


def window(context: Context, node: Window, facts: Facts) -> Facts:
    """Columns over the rows of a partition (row 16)."""
    facts = use(facts, *node.partition, *(key.expression for key in node.order))
    by = f"each {listed(node.partition)}" if node.partition else "the whole stream"
    facts = keep(facts, "window", f"rows are kept for {by}", node.position)
    classes = [copies for key in node.partition for copies in classes_of(key, facts)]
    order = (key.expression for key in node.order)
    total = _tells_apart(context, (*node.partition, *order), facts, node.input.columns)
    facts = use(facts, *(argument for _, call in node.outputs for argument in _arguments(call)))
    windowed = replace(facts, copies=dict(facts.copies), moving=dict(facts.moving))
    for column, call in node.outputs:
        name = text_of(call)
        within = Within.SET if total or _peers_agree(call, node) else Within.SEQUENCE
        text = f"`{name}` is used before {by} is complete"
        if within is Within.SEQUENCE:
            text = f"`{name}` tells rows of equal order in {by} apart by which came first"
        gate: list[Copies] | None = classes
        if not isinstance(call, Call) or not _window_function(call) or facts.asked:
            gate, text = None, f"`{name}` over a window is not understood"
        windowed.copies[column] = frozenset()
        one = effect(facts, "window-value", text, _place(call, node), gate=gate, within=within)
        windowed.moving |= moved(column, Direction.ANY, one)
    return windowed


def _tells_apart(
    context: Context, keys: Iterable[Expression], facts: Facts, columns: Iterable[Column]
) -> bool:
    """True where rows whose keys are equal are the same; 0.0 and -0.0 are equal and differ. Of
    rows of tables alone only keys that are all of their columns say so."""
    exact = [key for key in keys if type_of(key).identical]
    if not facts.live:
        return {*columns} <= {key.column for key in exact if isinstance(key, Ref)}
    return context.determines(
        (copies for key in exact for copies in classes_of(key, facts)), facts.live
    )


def _place(call: Expression, node: Window) -> Position | None:
    return getattr(call, "position", None) or node.position


def _arguments(call: Expression) -> Sequence[Expression]:
    return call.arguments if isinstance(call, Call) else (call,)


def _window_function(call: Call) -> bool:
    return call.user is None and (
        call.function in RANKS or call.function in NUMBERINGS or call.function in AGGREGATES
    )


def _peers_agree(call: Expression, node: Window) -> bool:
    """True where rows of equal order get the same result, whichever came first."""
    if not isinstance(call, Call):
        return False
    if call.function in RANKS:
        return True
    row = aggregation_of(call)
    return row is not None and not node.rows and of_the_set(call, row)


def limit(context: Context, node: Limit, facts: Facts) -> Facts:
    """Some rows of all: the whole stream is one partition (row 15)."""
    facts = use(facts, *(key.expression for key in node.order))
    facts = keep(facts, "limit", "rows are counted", node.position)
    total = bool(node.order) and _tells_apart(
        context, (k.expression for k in node.order), facts, node.input.columns
    )
    text = "which rows come first of all depends on every row of the stream"
    if not node.order:
        text = "rows are taken as they come until there are enough"
    elif not total:
        text += ", and rows of equal order are taken as they come"
    within = Within.SET if total else Within.SEQUENCE
    gate = None if facts.asked else ()
    return sensitive(facts, effect(facts, "limit", text, node.position, gate=gate, within=within))

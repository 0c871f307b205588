"""The rules of delivery, as data: what becomes of records that come again (D1 to D14).

Order and number are two questions. A path may give the same answer for every order and still a
wrong one where a record comes twice: `count(*) > 1000` is confluent. Rules of passage look at one
path and what enters it; of those that fit, the first one applies. The others say what holds between
paths, and `blazes.deliveries` implements them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from annotations.vocabulary import Delivery, Repeats
from blazes.rule_kinds import Rule

SETS: Final = ("blazes",)
ONCE, REPEAT_ID, REPEAT, CORRUPT = Delivery
AGAIN: Final = frozenset({REPEAT_ID, REPEAT})
EVERY: Final = frozenset(Delivery)


class Copies(NamedTuple):
    """What a condition may ask about a path and what enters it."""

    repeats: Repeats
    writes: bool
    nondeterministic: bool
    gate: bool
    """The path waits for whole partitions and counts what enters it."""
    identified: bool
    """Every stream that enters and may repeat has an id."""
    sealed_state: bool
    """The path reads state that it waits for."""


class Leaves(enum.Enum):
    """The delivery behind a path."""

    AS_ENTERED = enum.auto()
    ABSORBED = enum.auto()
    """As entered; `Once` where the path absorbs."""
    ONCE = enum.auto()
    AGAIN = enum.auto()
    """`Repeat[id]` with all attributes of the row, or `Repeat`."""
    CORRUPT = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage(Rule):
    """A rule about one path."""

    enters: frozenset[Delivery]
    holds: Callable[[Copies], bool]
    leaves: Leaves
    harms: bool = False
    """The order label gets worse: `Taint` where the path writes, else `Rep ? Inst : Run`."""
    origin: bool = False
    """A repair in front of the path silences the rule."""


_HARM: Final = "Taint, where the path writes; else Rep ? Inst : Run"
_OURS: Final = "ours; the paper takes repeats for harmless (section III-B)"

D9: Final = Passage(
    id="D9",
    sets=SETS,
    when="Corrupt into any path",
    adds=_HARM,
    text="What is computed from wrong rows is wrong.",
    why="`DISTINCT` of wrong rows is wrong, too: nothing behind can tell which they are.",
    example="A ranking of counts that have counted a repeated click.",
    source=_OURS,
    enters=frozenset({CORRUPT}),
    holds=lambda copies: True,
    leaves=Leaves.CORRUPT,
    harms=True,
)
D5: Final = Passage(
    id="D5",
    sets=SETS,
    when="Repeat into a nondeterministic path",
    adds=_HARM,
    text="Each copy of a record draws anew, so that one record becomes two different rows.",
    why="No later step recognises the second row as a copy of the first.",
    example="An enricher that stamps each record with the time.",
    source=_OURS,
    enters=AGAIN,
    holds=lambda copies: copies.nondeterministic,
    leaves=Leaves.CORRUPT,
    harms=True,
    origin=True,
)
D6: Final = Passage(
    id="D6",
    sets=SETS,
    when="Repeat[id] into a path that waits for a seal, every repeating stream has an id",
    adds="nothing",
    text="A gate drops the records that it knows before it counts, stream by stream.",
    why="The punctuation promises how many records there are, and a known id is none of them. A "
    "released partition takes nothing more (SE-5).",
    example="Clicks with `id: [click]`, sealed on campaign, counted per campaign.",
    source=_OURS,
    enters=AGAIN,
    holds=lambda copies: copies.gate and copies.identified,
    leaves=Leaves.ONCE,
)
D7: Final = Passage(
    id="D7",
    sets=SETS,
    when="Repeat into a path that waits for a seal, a repeating stream has no id",
    adds="Taint; nothing where the punctuation has a digest",
    text="A gate that does not know a copy counts it: the count is reached too early.",
    why="Two records are promised, A comes twice while B is on its way: {A, A} is released, and B "
    "is late. With a digest the partition goes into quarantine instead, and is withheld.",
    example="Words of repeated tweets, sealed on their batch: words have no id.",
    source=_OURS,
    enters=AGAIN,
    holds=lambda copies: copies.gate,
    leaves=Leaves.CORRUPT,
    harms=True,
    origin=True,
)
D8: Final = Passage(
    id="D8",
    sets=SETS,
    when="Repeat into OR[g] that is protected by a seal",
    adds="nothing",
    text="A request that comes again gets the same answer again.",
    why="The state that answers it is sealed and does not change any more.",
    example="A repeated request for the clicks of a campaign that is complete.",
    source=_OURS,
    enters=AGAIN,
    holds=lambda copies: copies.sealed_state,
    leaves=Leaves.AS_ENTERED,
)
D3: Final = Passage(
    id="D3",
    sets=SETS,
    when="Repeat into CR or OR that repeats corrupt",
    adds="Rep ? Inst : Run",
    text="A copy gives a second answer that is not the first one.",
    why="Whether there is a copy differs from run to run, and replicas get different ones.",
    example="A running number for each record.",
    source=_OURS,
    enters=AGAIN,
    holds=lambda copies: copies.repeats is Repeats.CORRUPT and not copies.writes,
    leaves=Leaves.CORRUPT,
    harms=True,
    origin=True,
)
D4: Final = Passage(
    id="D4",
    sets=SETS,
    when="Repeat into CW or OW that repeats corrupt",
    adds="Taint",
    text="A copy changes the state for good.",
    why="It has been counted, and nothing takes it off again: a replay without the copy ends in "
    "another state.",
    example="The ads that were clicked more than 1000 times: one is named too early.",
    source=_OURS,
    enters=AGAIN,
    holds=lambda copies: copies.repeats is Repeats.CORRUPT,
    leaves=Leaves.CORRUPT,
    harms=True,
    origin=True,
)
D2: Final = Passage(
    id="D2",
    sets=SETS,
    when="anything into a path that repeats make, and does not wait for a seal",
    adds="nothing",
    text="The path itself emits a row again.",
    why="A group is put out in every micro-batch that touches it, also where its row is the same.",
    example="max(price) by product in update mode.",
    source=_OURS,
    enters=EVERY,
    holds=lambda copies: copies.repeats is Repeats.MAKE and not copies.gate,
    leaves=Leaves.AGAIN,
)
D1: Final = Passage(
    id="D1",
    sets=SETS,
    when="anything else",
    adds="nothing",
    text="The path passes copies on, or absorbs them.",
    why="That is what `pass` and `absorb` mean.",
    example="A filter passes copies on; DISTINCT absorbs them.",
    source=_OURS,
    enters=EVERY,
    holds=lambda copies: True,
    leaves=Leaves.ABSORBED,
)

PASSAGES: Final = (D9, D5, D6, D7, D8, D3, D4, D2, D1)
"""In the order in which they are tried."""

D10: Final = Rule(
    id="D10",
    sets=SETS,
    when="paths end in an output, or write the state that it shows",
    adds="the most severe",
    text="An output's delivery is the most severe of its paths', and that of the state it shows.",
    why="A row of the output may come from any of them.",
    example="Clicks that may repeat, and requests that may not, make the answers of one report.",
    source=_OURS,
)
D11: Final = Rule(
    id="D11",
    sets=SETS,
    when="an id meets a path",
    adds="the id, where its attributes survive",
    text="An id goes on through a path of `rows: one`; a group that is put out once has its gate, "
    "a row that is made again all attributes, and a join the ids of both sides together. Where "
    "outputs of replicas meet, `replica` is part of it.",
    why="Two rows of equal id must be copies of one row.",
    example="Orders with id o joined with payments with id p: rows have the id o, p.",
    source=_OURS,
)
D12: Final = Rule(
    id="D12",
    sets=SETS,
    when="streams meet in an interface, paths meet in an output, or in a cycle",
    adds="the id is lost",
    text="Where rows of several origins meet, an id is lost, and in every cycle.",
    why="Two different rows may have the same one.",
    example="Orders of two shops, each of which numbers its own.",
    source=_OURS,
)
D13: Final = Rule(
    id="D13",
    sets=SETS,
    when="a sink that may append its last batch again",
    adds="at least Repeat",
    text="A sink that does not know what it has taken takes a batch again after a failure.",
    why="Spark writes a batch before it notes that it did; killed in between, it writes it again.",
    example="Rows that are appended to a table by JDBC.",
    source=_OURS,
)
D14: Final = Rule(
    id="D14",
    sets=SETS,
    when="a sink with an upsert key",
    adds="Once, where the key determines the id; else Rep ? Diverge : Run, and Corrupt for Repeat",
    text="An upsert replaces a row by itself where equal keys mean equal rows. Else the last write "
    "wins, and a late copy of an old row overwrites a newer one.",
    why="Which row is written last depends on the order of arrival.",
    example="Running totals by product, upserted by product.",
    source=_OURS,
)

DELIVERY_RULES: Final[dict[str, Rule]] = {
    rule.id: rule for rule in (D1, D2, D3, D4, D5, D6, D7, D8, D9, D10, D11, D12, D13, D14)
}
"""Every rule by its id."""


def passage(enters: Delivery, copies: Copies) -> Passage:
    """The first rule that fits the path and what enters it; D1 fits everything."""
    return next(rule for rule in PASSAGES if enters in rule.enters and rule.holds(copies))

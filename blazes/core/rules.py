"""The rules of the analysis, as tables of data: the sets `blazes` (the default) and `icde14` (the
paper), and the rules of delivery.

The analyser interprets these tables, `blazes rule R2` and the reference pages print them. Rules of
inference look at one path and what enters it (figure 9 of the paper), rules of reconciliation at
one output interface and all that ends there (figure 10), rules of transfer at what becomes of a
seal, rules of sharing at what one path's writes mean for the readers of the same state.

Order and number are two questions: `count(*) > 1000` is confluent, and still wrong where a record
comes twice. The rules of delivery (D1 to D14) say what becomes of records that come again.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from annotations.vocabulary import AnnotationKind, Delivery, Label, Repeats
from blazes.core.rule_kinds import (
    Conclusion,
    Condition,
    Copies,
    Cycles,
    Inference,
    Keeps,
    Leaves,
    Passage,
    Reconciliation,
    Rendezvous,
    Rule,
    RuleSet,
    Sharing,
    StateFault,
    Transfer,
)

__all__ = [
    "BLAZES",
    "DELIVERY_RULES",
    "ICDE14",
    "RULES",
    "RULE_SETS",
    "Condition",
    "Inference",
    "P",
    "Reconciliation",
    "Rule",
    "RuleSet",
    "Sharing",
    "Transfer",
    "rule_set",
]

BLAZES: Final = "blazes"
ICDE14: Final = "icde14"
BOTH: Final = (BLAZES, ICDE14)

CR, CW, OR, OW = AnnotationKind
SEAL, ASYNC, RUN, INST, DIVERGE = Label
ONCE, REPEAT_ID, REPEAT, CORRUPT = Delivery
AGAIN: Final = frozenset({REPEAT_ID, REPEAT})
EVERY: Final = frozenset(Delivery)


R1: Final = Inference(
    id="R1",
    sets=BOTH,
    when="Async or Run into OR[g]",
    adds="NDRead[g]",
    text="An order-sensitive read of input whose order is not fixed may answer differently each "
    "time.",
    why="The answer depends on which of the other inputs arrived before the request did. Whether "
    "it matters is decided at the output (C2): a read of sealed state can wait until the state is "
    "complete.",
    example="A report that lists the ads with fewer than 100 clicks, asked while clicks still "
    "come in: request -> response is OR[id].",
    source="figure 9 (1)",
    labels=frozenset({ASYNC, RUN}),
    kinds=frozenset({OR}),
    conclusion=Conclusion.ND_READ,
    origin=True,
)
R2: Final = Inference(
    id="R2",
    sets=BOTH,
    when="Async or Run into OW[g]",
    adds="Taint",
    text="An order-sensitive write of input whose order is not fixed makes the state depend on "
    "the order of arrival.",
    why="Another order leaves other contents behind, for good: a replay ends in another state "
    "than the run it repeats, and replicas stay different.",
    example="Counting words per batch and handing the counts on before the batch is complete: "
    "words -> counts is OW[word, batch].",
    source="figure 9 (2)",
    labels=frozenset({ASYNC, RUN}),
    kinds=frozenset({OW}),
    conclusion=Conclusion.TAINT,
    origin=True,
)
_R3_TEXT: Final = (
    "Input that differs between replicas and is written to state makes the difference lasting."
)
_R3_WHY: Final = (
    "Even a confluent writer keeps what it was given: replicas that were given different records "
    "hold different state from then on. Ordering the writer does not help; what made the records "
    "differ must be repaired."
)
_R3_EXAMPLE: Final = (
    "A cache that stores the answers of replicated reports: response -> response is CW, and the "
    "reports' answers are Inst."
)
R3: Final = Inference(
    id="R3",
    sets=(BLAZES,),
    when="Inst or Diverge into CW or OW[g] (icde14: Inst only)",
    adds="Taint",
    text=_R3_TEXT,
    why=_R3_WHY,
    example=_R3_EXAMPLE,
    source="figure 9 (3); Diverge is ours, without it a worse input could give a better label",
    labels=frozenset({INST, DIVERGE}),
    kinds=frozenset({CW, OW}),
    conclusion=Conclusion.TAINT,
)
R3_ICDE14: Final = Inference(
    id="R3",
    sets=(ICDE14,),
    when="Inst into CW or OW[g]",
    adds="Taint",
    text=_R3_TEXT,
    why=_R3_WHY,
    example=_R3_EXAMPLE,
    source="figure 9 (3)",
    labels=frozenset({INST}),
    kinds=frozenset({CW, OW}),
    conclusion=Conclusion.TAINT,
)
R4: Final = Inference(
    id="R4",
    sets=BOTH,
    when="Seal[k] into OW[g], no key compatible with g",
    adds="Taint",
    text="A seal that does not fit the gate does not help an order-sensitive writer.",
    why="One gate partition takes records from several sealed partitions, so that none of them "
    "being complete says that the gate partition is.",
    example="Clicks sealed on campaign, counted per ad, where an ad may be in several campaigns: "
    "OW[id] with Seal[campaign].",
    source="figure 9 (4)",
    labels=frozenset({SEAL}),
    kinds=frozenset({OW}),
    condition=Condition.SEAL_DOES_NOT_FIT,
    conclusion=Conclusion.TAINT,
    origin=True,
)
S1: Final = Inference(
    id="S1",
    sets=(BLAZES,),
    when="Seal[k] into OR[g], no key compatible with g or the state it reads not sealed "
    "compatibly with g",
    adds="NDRead[g]",
    text="A sealed request is still an unsafe read where its seal does not fit the gate, or where "
    "the state it reads is still being written.",
    why="That the requests are complete says nothing about the state that answers them. The paper "
    "has no rule for a sealed read and would let it pass.",
    example="Requests sealed on campaign, answered by OR[campaign] from clicks that are not "
    "sealed.",
    source="ours; closes a gap in figure 9",
    labels=frozenset({SEAL}),
    kinds=frozenset({OR}),
    condition=Condition.SEAL_DOES_NOT_FIT_OR_STATE_IS_OPEN,
    conclusion=Conclusion.ND_READ,
    origin=True,
)
S2: Final = Inference(
    id="S2",
    sets=(BLAZES,),
    when="Seal[k] into OW[g], k compatible with g, another writer of the state not sealed "
    "compatibly with g",
    adds="Taint",
    text="An order-sensitive writer that waits for its own seal still races with an unsealed "
    "writer of the same state.",
    why="Its partition is complete, but the state that the partition lands in is not.",
    example="Orders sealed on day are applied to stock levels per day (OW[day]) that unsealed "
    "corrections change too.",
    source="ours; the paper has one writer per component",
    labels=frozenset({SEAL}),
    kinds=frozenset({OW}),
    condition=Condition.SEAL_FITS_BUT_STATE_IS_OPEN,
    conclusion=Conclusion.TAINT,
    origin=True,
)
N1: Final = Inference(
    id="N1",
    sets=(BLAZES,),
    when="anything into CR or OR[g] declared nondeterministic",
    adds="Rep ? Inst : Run",
    text="What a nondeterministic reader emits differs from run to run, and between replicas. "
    "Applies beside the other rules.",
    why="No order and no seal makes a clock, a random number or a call to the outside repeatable.",
    example="An enricher that adds the current exchange rate to each record.",
    source="ours; the paper assumes deterministic components",
    labels=frozenset(Label),
    kinds=frozenset({CR, OR}),
    condition=Condition.NONDETERMINISTIC,
    conclusion=Conclusion.RUN_OR_INST,
)
N2: Final = Inference(
    id="N2",
    sets=(BLAZES,),
    when="anything into CW or OW[g] declared nondeterministic",
    adds="Taint",
    text="A nondeterministic writer leaves state behind that no replay and no replica has. "
    "Applies beside the other rules.",
    why="What it writes is not a function of what it read.",
    example="A store that stamps each row with the time at which it was written.",
    source="ours; the paper assumes deterministic components",
    labels=frozenset(Label),
    kinds=frozenset({CW, OW}),
    condition=Condition.NONDETERMINISTIC,
    conclusion=Conclusion.TAINT,
)
P: Final = Inference(
    id="p",
    sets=BOTH,
    when="anything else",
    adds="nothing",
    text="The path preserves what enters it.",
    why="A confluent path gives the same records for every order of its input; an order-sensitive "
    "one that waits for complete partitions does too.",
    example="A splitter of lines into words: CR.",
    source="section V-A4, the default rule (p)",
    labels=frozenset(Label),
    kinds=frozenset(AnnotationKind),
    conclusion=Conclusion.NOTHING,
)
S3: Final = Transfer(
    id="S3",
    sets=(BLAZES,),
    when="Seal[k] through OR[g] or OW[g], k compatible with g",
    adds="Seal on the compatible keys whose attributes survive (else Async)",
    text="A seal passes an order-sensitive path on the keys that fit its gate.",
    why="Sealing releases whole partitions and passes their punctuations on, so that what follows "
    "can wait for the same partitions. The paper forgets the seal there (Async).",
    example="Counts per word and batch, sealed on batch, are sealed on batch again, and a ranking "
    "per batch behind them needs no coordination.",
    source="ours; the paper's figure 9 leaves Async",
    kinds=frozenset({OR, OW}),
    keeps=Keeps.COMPATIBLE,
)
C1: Final = Reconciliation(
    id="C1",
    sets=BOTH,
    when="Taint among the labels",
    adds="Rep ? Diverge : Run",
    text="Tainted state shows at the output: as another result in another run, or, where the "
    "component is replicated, as replicas that never agree again.",
    why="The state holds what the order of arrival made of it, and outputs come from the state.",
    example="Word counts of an unsealed stream differ when a batch is replayed (Run).",
    source="figure 10",
    trigger=Conclusion.TAINT,
    replicated=DIVERGE,
    single=RUN,
)
C2: Final = Reconciliation(
    id="C2",
    sets=BOTH,
    when="NDRead[g] among the labels, and not protected",
    adds="Rep ? Inst : Run",
    text="An unsafe read shows at the output, unless all that it can meet is sealed on keys "
    "compatible with its gate: then it waits until that is complete. The request itself need not "
    "be sealed.",
    why="Replicas that answer from state that is still changing answer differently, for a while. "
    "A read that meets nothing is not protected.",
    example="Three report servers asked for the same campaign while clicks still come in (Inst).",
    source="figure 10; `protected` as its derivation for CAMPAIGN uses it",
    trigger=Conclusion.ND_READ,
    replicated=INST,
    single=RUN,
)
S4: Final = Sharing(
    id="S4",
    sets=(BLAZES,),
    when="a path of a state group got Taint",
    adds="Taint, at every output interface with an OR or OW path, or a path that names the group, "
    "in that group",
    text="Taint reaches every output that reads the tainted state, not only the one that the "
    "tainting path ends in.",
    why="The state is the same whoever reads it.",
    example="A count that is fed in an arbitrary order and read through another output interface.",
    source="ours; the paper has one output per component",
    trigger=StateFault.TAINTED,
)
S5: Final = Sharing(
    id="S5",
    sets=(BLAZES,),
    when="a write path of a state group reads Run, or is ordered anew in every run",
    adds="Run, at every output interface with an OR or OW path, or a path that names the group, in "
    "that group",
    text="State made of records that differ from run to run shows at every output that reads it.",
    why="An unordered order-sensitive reader is caught by R1 or R2 anyway; without S5 a confluent "
    "reader of the state, or one that the plan orders, would be called deterministic although its "
    "answers come from different state in each run.",
    example="A store filled from a feed declared Run, read by a confluent look-up that has an "
    "output interface of its own.",
    source="ours; the paper has one output per component",
    trigger=StateFault.UNREPEATABLE,
)


_HARM: Final = "Taint, where the path writes; else Rep ? Inst : Run"
_OURS: Final = "ours; the paper takes repeats for harmless (section III-B)"

D9: Final = Passage(
    id="D9",
    sets=(BLAZES,),
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
    sets=(BLAZES,),
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
    sets=(BLAZES,),
    when="Repeat[id] into a path that waits for a seal, every repeating stream has an id",
    adds="nothing",
    text="A gate drops the records that it knows before it counts, stream by stream.",
    why="The punctuation promises how many records there are, and a known id is none of them. A "
    "released partition takes nothing more (SE-5).",
    example="Clicks with `id: [click]`, sealed on campaign, counted per campaign.",
    source=_OURS,
    enters=AGAIN,
    holds=lambda copies: copies.gate and copies.counted and copies.identified,
    leaves=Leaves.ONCE,
)
D7: Final = Passage(
    id="D7",
    sets=(BLAZES,),
    when="Repeat into a path that waits for a seal, a repeating stream has no id",
    adds=_HARM + "; nothing where the punctuation has a digest",
    text="A gate that does not know a copy counts it: the count is reached too early. So does a "
    "path that would absorb copies, and hands its seal on to one that waits.",
    why="Two records are promised, A comes twice while B is on its way: {A, A} is released, and B "
    "is late. With a digest the partition goes into quarantine instead, and is withheld.",
    example="Words of repeated tweets, sealed on their batch: words have no id.",
    source=_OURS,
    enters=AGAIN,
    holds=lambda copies: copies.counted,
    leaves=Leaves.CORRUPT,
    harms=True,
    origin=True,
)
D8: Final = Passage(
    id="D8",
    sets=(BLAZES,),
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
    sets=(BLAZES,),
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
    sets=(BLAZES,),
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
    sets=(BLAZES,),
    when="anything into a path that repeats make, or whose groups are put out in update mode, and "
    "that does not wait for a seal",
    adds="nothing",
    text="The path itself emits a row again.",
    why="A group is put out in every micro-batch that touches it, also where its row is the same.",
    example="max(price) by product in update mode.",
    source=_OURS,
    enters=EVERY,
    holds=lambda copies: copies.makes and not copies.gate,
    leaves=Leaves.AGAIN,
)
D1: Final = Passage(
    id="D1",
    sets=(BLAZES,),
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
    sets=(BLAZES,),
    when="paths end in an output, or write the state that it shows",
    adds="the most severe",
    text="An output's delivery is the most severe of its paths', and that of the state it shows.",
    why="A row of the output may come from any of them.",
    example="Clicks that may repeat, and requests that may not, make the answers of one report.",
    source=_OURS,
)
D11: Final = Rule(
    id="D11",
    sets=(BLAZES,),
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
    sets=(BLAZES,),
    when="streams meet in an interface, paths meet in an output, or in a cycle",
    adds="the id is lost",
    text="Where rows of several origins meet, an id is lost, and in every cycle.",
    why="Two different rows may have the same one.",
    example="Orders of two shops, each of which numbers its own.",
    source=_OURS,
)
D13: Final = Rule(
    id="D13",
    sets=(BLAZES,),
    when="a sink that may append its last batch again",
    adds="at least Repeat",
    text="A sink that does not know what it has taken takes a batch again after a failure.",
    why="Spark writes a batch before it notes that it did; killed in between, it writes it again.",
    example="Rows that are appended to a table by JDBC.",
    source=_OURS,
)
D14: Final = Rule(
    id="D14",
    sets=(BLAZES,),
    when="a sink with an upsert key",
    adds="Once, where the key determines the id; else Rep ? Diverge : Run, and Corrupt for Repeat",
    text="An upsert replaces a row by itself where equal keys mean equal rows. Else the last write "
    "wins, and a late copy of an old row overwrites a newer one.",
    why="Which row is written last depends on the order of arrival.",
    example="Running totals by product, upserted by product.",
    source=_OURS,
)

DELIVERY_RULES: Final = (D1, D2, D3, D4, D5, D6, D7, D8, D9, D10, D11, D12, D13, D14)
"""Those of delivery. Of D1 to D9 the first that fits is applied; D10 to D14, which say what holds
between paths, are implemented by `blazes.core.deliveries`."""

RULE_SETS: Final[Mapping[str, RuleSet]] = MappingProxyType(
    {
        BLAZES: RuleSet(
            name=BLAZES,
            text="Sound for several outputs, several writers and cycles; accepts more seals than "
            "the paper.",
            inference=(R1, R2, R3, R4, S1, S2, N1, N2),
            default=P,
            reconciliation=(C1, C2),
            transfer=(S3,),
            sharing=(S4, S5),
            rendezvous=Rendezvous.STATE_GROUP,
            cycles=Cycles.FIXPOINT,
            splitting=True,
            delivery=True,
        ),
        ICDE14: RuleSet(
            name=ICDE14,
            text="The paper, to the letter where the letter is consistent: reproduces its "
            "published derivations.",
            inference=(R1, R2, R3_ICDE14, R4),
            default=P,
            reconciliation=(C1, C2),
            transfer=(),
            sharing=(),
            rendezvous=Rendezvous.SAME_OUTPUT,
            cycles=Cycles.COLLAPSE,
            splitting=False,
            delivery=False,
        ),
    }
)

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {rule.id: rule for rule in (R1, R2, R3, R4, S1, S2, S3, N1, N2, P, C1, C2, S4, S5)}
    | {rule.id: rule for rule in DELIVERY_RULES}
)
"""Every rule by its id, in the order in which the documentation lists them."""


def rule_set(name: str) -> RuleSet:
    """The rule set of that name; ValueError for another."""
    try:
        return RULE_SETS[name]
    except KeyError:
        raise ValueError(f"no rule set {name!r}; there are {', '.join(RULE_SETS)}") from None


def rule_text(rule: str, rule_set: str) -> str:
    """The text of a rule, as the rule set has it."""
    for candidate in RULE_SETS[rule_set].rules:
        if candidate.id == rule:
            return candidate.text
    return RULES[rule].text


def passage(enters: Delivery, copies: Copies) -> Passage:
    """The first rule that fits the path and what enters it; D1 fits everything."""
    return next(rule for rule in PASSAGES if enters in rule.enters and rule.holds(copies))

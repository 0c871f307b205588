"""One model of a mistake, for every front end and every renderer.

A kind of mistake has one home, the `CODES` table: code, severity, title, why it matters and what
to do. `blazes rule CODE` and the reference pages print it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Final, Protocol

from annotations.dataflow import Position


class Severity(enum.IntEnum):
    """How bad a finding is; an `ERROR` stops everything that would come after."""

    NOTE = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of mistake: what every report of it has in common."""

    id: str
    severity: Severity
    title: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake at one place."""

    code: Code
    message: str
    position: Position | None = None
    remedy: str | None = None
    """What to do in this very case; else the code's general remedy."""

    def __str__(self) -> str:
        where = f"{self.position} " if self.position else ""
        return f"{where}{self.code.id} {self.message}\n    {self.remedy or self.code.remedy}"


class BadInput(Exception):  # noqa: N818
    """The input was refused; `diagnostics` are all of its mistakes, in the order of the file."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(map(str, self.diagnostics)))


SEARCHED_MAX: Final = 2_000
"""Among more known words than this, `did_you_mean` looks only at those that begin alike."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The nearest known words, as the end of a sentence; empty where none is near.

    >>> did_you_mean("subscrpt", ["subscript", "label"])
    '; did you mean subscript?'
    """
    import difflib

    words = list(known)
    if len(words) > SEARCHED_MAX:
        head = word[:2].lower()
        words = list(islice((w for w in words if w[:2].lower() == head), SEARCHED_MAX))
    same = [w for w in words if w.lower() == word.lower()]
    near = same or difflib.get_close_matches(word, words, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


class Mark(Protocol):
    """A place in a text; `line` and `column` count from 0, as YAML parsers do."""

    @property
    def line(self) -> int: ...  # noqa: D102

    @property
    def column(self) -> int: ...  # noqa: D102


def errors_among(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Those that are errors."""
    return [diagnostic for diagnostic in diagnostics if diagnostic.code.severity is Severity.ERROR]


class Findings:
    """Collects the mistakes of one file. The same mistake at the same place is kept once."""

    SUGGESTIONS_MAX: Final = 50
    """Looking for a near word is slow beside everything else; past this it is left out."""

    def __init__(self, file: str, text: str = "") -> None:
        self.file = file
        self.text = text
        self.errors = 0
        """How often something was found that stops the analysis."""
        self.key = ""
        """The key whose value is being read: messages about the value begin with it."""
        self._diagnostics: dict[Diagnostic, None] = {}
        self._suggested = 0

    def position(self, mark: Mark) -> Position:
        """The position that `mark` stands for."""
        return Position(self.file, mark.line + 1, mark.column + 1)

    def add(
        self, code: str, message: str, where: Mark | Position | None, remedy: str | None = None
    ) -> None:
        """Note a mistake; `where` is None if it stands in no file (a choice of variants)."""
        if where is not None and not isinstance(where, Position):
            where = self.position(where)
        diagnostic = Diagnostic(CODES[code], message, where, remedy)
        self._diagnostics[diagnostic] = None
        self.errors += diagnostic.code.severity is Severity.ERROR

    def add_value(self, code: str, message: str, mark: Mark, remedy: str | None = None) -> None:
        """Note a mistake in the value of the current key."""
        self.add(code, f"`{self.key}`: {message}" if self.key else message, mark, remedy)

    def only(self, codes: Collection[str]) -> bool:
        """True where every error so far is of one of these kinds."""
        if not self.errors:
            return True
        errors = (
            diagnostic.code
            for diagnostic in self._diagnostics
            if diagnostic.code.severity is Severity.ERROR
        )
        return all(code.id in codes for code in errors)

    def suggest(self, word: str, known: Collection[str]) -> str:
        """As `did_you_mean`, within the limits of a run that finds many mistakes."""
        if self._suggested >= self.SUGGESTIONS_MAX:
            return ""
        self._suggested += 1
        return did_you_mean(word, known)

    def sorted(self) -> tuple[Diagnostic, ...]:
        """Everything found, in the order of the file; what stands in no file comes first."""
        nowhere = Position("", 0, 0)
        return tuple(
            sorted(self._diagnostics, key=lambda diagnostic: diagnostic.position or nowhere)
        )


def _table(*rows: tuple[str, Severity, str, str, str]) -> Mapping[str, Code]:
    return MappingProxyType({row[0]: Code(*row) for row in rows})


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE

# fmt: off
CODES: Final = _table(
    # ---- the file
    ("BLZ001", _E, "file cannot be read",
     "Nothing can be said about a dataflow that cannot be read; guessing an encoding would "
     "change names.",
     "Give the path of a readable UTF-8 text file."),
    ("BLZ002", _E, "not YAML",
     "The text does not parse, so nothing after this place can be trusted.",
     "Correct the YAML at this place; what stands after it has not been checked."),
    ("BLZ003", _E, "not a dataflow",
     "A dataflow is a mapping from names to components, or has its components under `components`.",
     "Write `components:` and under it a name for each component."),
    ("BLZ004", _E, "more than one document",
     "One file describes one dataflow; which of several documents is meant would be a guess.",
     "Put each document into a file of its own."),
    ("BLZ005", _E, "too deep or too large",
     "A dataflow is a few levels deep; a file that is not, or whose aliases multiply, is a "
     "mistake or an attack.",
     "Write the structure out, without aliases that contain each other."),
    ("BLZ006", _E, "duplicate",
     "Only one of the two could count, and YAML parsers disagree about which.",
     "Remove or rename one of them."),
    ("BLZ007", _E, "YAML reads this word as something else",
     "Unquoted, YAML parsers turn words such as `on`, `no`, `12:30` or `2024-01-01` into truth "
     "values, numbers and dates, each parser in its own way.",
     "Put it in quotes."),
    ("BLZ008", _E, "tag",
     "The file is data; a tag asks the parser to build something else.",
     "Remove the tag."),
    ("BLZ009", _E, "merge that cannot be done",
     "`<<` merges the keys of a mapping, or of each mapping in a list, into the mapping it "
     "stands in.",
     "Write `<<: *name`, or `<<: [*one, *two]`, where each name is the anchor of a mapping."),
    # ---- keys and values
    ("BLZ010", _E, "unknown key",
     "A misspelt key would be silently without effect.",
     "Correct or remove the key."),
    ("BLZ011", _E, "value of another kind",
     "What was written cannot be what was meant.",
     "The reference of the file format lists every key and its values."),
    ("BLZ012", _E, "missing key",
     "Without it the meaning is open, and nothing is guessed.",
     "Add the key."),
    ("BLZ013", _E, "value that is not allowed",
     "Only certain values have a meaning here.",
     "The reference of the file format lists every key and its values."),
    ("BLZ014", _E, "not a name",
     "Names become names of SQL views, Python functions and folders, and `.` separates a "
     "component from its interface.",
     "Use letters, digits, `_`, and `-` between them; attributes may also have `.` or a space "
     "between them."),
    # ---- annotations
    ("BLZ020", _E, "annotation that does not parse",
     "An annotation decides the verdict; a half-understood one would decide it wrongly.",
     "Write CR, CW, OR[gate] or OW[gate]; Seal[key]; `a, b -> c` or `a <-> b`."),
    ("BLZ021", _E, "subscript on a confluent path",
     "A confluent path gives the same set of outputs for every order of its input: it has no gate.",
     "Remove the subscript, or write OR (reads) or OW (writes) if the order of the input matters."),
    ("BLZ022", _E, "subscript given twice or without a label",
     "The gate belongs to one OR or OW, and is said once.",
     "Write either `label: OW[a, b]`, or `label: OW` and `subscript: [a, b]`."),
    ("BLZ023", _W, "path without an annotation",
     "What nobody vouches for is taken for the worst there is: order-sensitive, writing, of "
     "unknown gate.",
     "Write `label: CR`, CW, OR or OW: does the path write state, and does the order of its "
     "input matter?"),
    ("BLZ024", _E, "`within` on a confluent path",
     "`within` says whether the order inside a gate partition matters; for a confluent path no "
     "order does.",
     "Remove `within`, or write OR or OW."),
    ("BLZ025", _E, "component without a path",
     "A component is described by its paths; one without would be taken for harmless.",
     "Give at least one path: `annotation: {from: input, to: output, label: OW}`; or code."),
    # ---- variants
    ("BLZ030", _E, "unknown variant",
     "Analysing something else than what was asked for would answer another question.",
     "Choose a variant that the file has: --variant Component=VARIANT."),
    ("BLZ031", _W, "no variant chosen",
     "The verdict depends on which variant runs.",
     "Choose one: --variant Component=VARIANT."),
    ("BLZ032", _E, "variant without a component",
     "A path at top level is a variant of the component above it.",
     "Put it below its component, or under the component's `variants`."),
    ("BLZ033", _N, "stream of another variant",
     "It ends at an interface that the chosen variant does not have.",
     "Nothing is wrong if the stream is meant for another variant."),
    # ---- streams
    ("BLZ040", _E, "unknown component",
     "A stream to a component that does not exist would carry its records nowhere.",
     "Correct the name, or add the component."),
    ("BLZ041", _E, "interface that no path has",
     "Records would enter where nothing reads, or come from where nothing writes.",
     "Correct the name, or add a path from or to the interface."),
    ("BLZ042", _E, "stream without ends",
     "A stream comes from a component or goes to one.",
     "Add `from: Component.output`, `to: Component.input`, or both."),
    ("BLZ043", _E, "key that does not belong to this stream",
     "What comes from outside has a source, what leaves has a sink, and the label of everything "
     "else is derived.",
     "Remove the key, or the end that makes the stream an inner one."),
    ("BLZ044", _E, "input without a stream",
     "An input that nothing feeds looks harmless; a forgotten stream would give too good a "
     "verdict.",
     "Add a stream to it; one without `from` comes from outside."),
    ("BLZ045", _W, "output without a stream",
     "What leaves there is thrown away, and does not count in the verdict.",
     "Add a stream from it; one without `to` is a result."),
    ("BLZ046", _W, "component that nothing reaches",
     "No stream from outside leads to it, so it will never get a record.",
     "Add a stream without `from`, or, where equal names connected too much, write the `streams`."),
    ("BLZ047", _E, "name that connects too much",
     "Interfaces of equal name are connected, every output with every input.",
     "Write the `streams`, or give the interfaces different names."),
    ("BLZ048", _W, "declaration without effect",
     "A component does not punctuate what it sends unless the stream declares a seal, and "
     "partitions are released, and remembered, only of a sealed stream into a component.",
     "Remove the key, add `seal`, or declare it where the records come in, without `from`."),
    ("BLZ049", _W, "names that nearly match",
     "Without `streams` equal names are connected; names that are only alike are not, and the "
     "verdict is that of a dataflow in pieces.",
     "Use one name if they are meant to be connected; else write the `streams`."),
    # ---- attributes
    ("BLZ050", _E, "attribute that the schema lacks",
     "A gate, key or column that no record has cannot partition or order anything.",
     "Correct the attribute, or add it to the schema."),
    ("BLZ051", _E, "dependency on an unknown attribute",
     "Every stream declares its schema, and none has the attribute: the dependency says nothing.",
     "Correct the attribute."),
    ("BLZ052", _W, "dependency without effect",
     "No gate, key, schema or other dependency names the attribute.",
     "Correct the attribute, or remove the dependency."),
    ("BLZ053", _E, "type that Spark SQL does not have",
     "A job with this schema would not start.",
     "Correct the type: BIGINT, DOUBLE, STRING, TIMESTAMP, DECIMAL(10, 2), ARRAY<INT>, ..."),
    # ---- code
    ("BLZ054", _E, "name in SQL that nothing has",
     "Spark resolves every name when the job starts, against the columns that the inputs then "
     "have, and refuses the query.",
     "Correct the name; or add the attribute to the schema of the stream that has it."),
    ("BLZ055", _E, "function that Spark does not have",
     "Spark looks every function up when the job starts, and refuses the query.",
     "Correct the name; docs/reference/functions.md lists Spark's functions."),
    ("BLZ056", _E, "column that is neither grouped by nor aggregated",
     "A group has several rows and so several values of the column; Spark refuses to choose.",
     "Add the column to GROUP BY, or say which value is meant: max(c), any_value(c), ..."),
    ("BLZ057", _E, "function where Spark allows none",
     "WHERE is asked of single rows, before there are groups or windows; an aggregate takes the "
     "values of rows; and a rank is one in the order of a window.",
     "Ask with HAVING or QUALIFY, or of a query around this one; or say OVER (... ORDER BY ...)."),
    ("BLZ058", _E, "queries that do not have as many columns as they should",
     "Columns are put together by their places, one by one.",
     "Make the numbers of columns equal, or say UNION BY NAME."),
    ("BLZ059", _E, "text that is no query",
     "The SQL of a component is one query, whose rows are its output.",
     "Correct the text, or write the statement as a query."),
    # ---- for the compiler
    ("BLZ060", _E, "replicas of a component that is not replicated",
     "Replicas can disagree, and the analysis looks for that only where it knows of them.",
     "Add `Rep: true`, or remove `replicas`."),
    ("BLZ061", _E, "implementation of an unknown output",
     "It would never run.",
     "Name an output that a path of the component has."),
    ("BLZ062", _E, "output implemented twice",
     "Only one of `sql`, `python`, `operator`, `processor` and `bloom` can say how an output is "
     "computed.",
     "Remove one of the two."),
    ("BLZ063", _E, "implementation that fits several outputs",
     "Each output is computed by its own query or function.",
     "Write a mapping from output to implementation."),
    ("BLZ064", _W, "format that is not known",
     "Spark looks the format up when the job starts, among its own and those in the jars that it "
     "is given.",
     "Correct the name; or take care that the jars of the format are on the job's path."),
    ("BLZ065", _E, "option that the format does not have",
     "Spark passes options on unread: one that is misspelt is without effect, and nothing says so.",
     "Correct or remove the option."),
    ("BLZ066", _W, "secret in the file",
     "The value stands in this file, in job.py and in plan.json, and in every copy of them.",
     "Write ${env:NAME} or ${file:PATH}, which get their value when the job runs."),
    ("BLZ067", _W, "sink that is a function",
     "A function of foreachBatch sees how the rows are divided into commits, one of foreach in "
     "which order they come; both may get the rows of the last commit again. The verdict ends "
     "before it.",
     "Write to a sink of another format, or see that the function does the same again, and for "
     "every division."),
    ("BLZ068", _E, "Avro schema that messages cannot have",
     "Values are decoded and encoded by this schema, and each of its fields is a column: all of "
     "their types have to be ones of Spark.",
     "Correct the schema, or the attributes; what has no column can be left out of a reader's "
     "schema."),
    # ---- records that come twice
    ("BLZ070", _N, "source that may repeat, by its format",
     "Spark reads each record of a topic once, but the topic may hold it twice: a producer that "
     "retries, or is restarted, sends it again.",
     "Write `delivery: once` if its producers send nothing twice, else `may-repeat`."),
    ("BLZ071", _W, "path that may be harmed by repeats",
     "Records may come again here, and nobody says what that does. So the worst is assumed: that "
     "the answers are wrong then.",
     "Write `repeats: absorb` or `repeats: pass` on the path, if that holds."),
    ("BLZ072", _W, "repeats that do harm and cannot be told",
     "A copy changes an answer, and no attributes tell it from a new record, so that nothing can "
     "drop it.",
     "Declare what identifies a record, `id: [attribute, ...]`, on the source; or write "
     "`delivery: once` if it promises that."),
    ("BLZ073", _W, "de-duplication without a bound",
     "Every id that ever came has to be remembered, so that the state grows for as long as the "
     "job lives.",
     "Write `repeat_within` on the source, or seal it on a key that the id determines."),
    ("BLZ074", _W, "seal on a repeating stream without an id",
     "A seal counts. Of two records that were promised one comes twice, the count is reached while "
     "the other is on its way, and the partition is released with wrong rows; the good record is "
     "late. A digest notices, and the partition stays in quarantine. With an id the copy is "
     "dropped before it counts.",
     "Declare what identifies a record, `id: [attribute, ...]`; or give the punctuation a "
     "`digest`; or write `delivery: once`, if the source promises it."),
    ("BLZ075", _W, "upsert key that does not determine the row",
     "Different rows have the same key, and the last one that is written stays: which that is "
     "depends on the order of arrival, and a late copy overwrites a newer row.",
     "Give the sink a `key` that has, or determines, the id of its rows."),
    ("BLZ076", _E, "`id` or `delivery` that cannot hold",
     "They say what a source promises: what identifies a record, and whether it may come again. "
     "What a component sends follows from its input, and attributes that no record has identify "
     "nothing.",
     "Declare them on a stream without `from`, with attributes of its schema."),
    ("BLZ077", _W, "`repeats` or `rows` that the code does not show",
     "The analysis believes what is written; where the code counts copies, or makes several rows "
     "of a record, rows may be wrong although nobody is warned.",
     "Remove the key, so that it is derived; or say in `why:` how it is known to hold."),
    # ---- existing code
    ("BLZ080", _E, "code that cannot be read",
     "The code was run, without Spark and in a process of its own, to learn what it describes; "
     "where it fails nothing is known.",
     "Correct the code at this place; it must describe queries without needing data."),
    ("BLZ081", _W, "code that was read in part",
     "What stands after this place, or in this statement, is missing from the dataflow, or taken "
     "for the worst that it may be.",
     "Look at this place in the dataflow, and add what is missing to the imported file."),
    ("BLZ082", _W, "code that is not understood",
     "What the code does to its input cannot be told, so the path is taken for the worst there is: "
     "order-sensitive, of unknown gate.",
     "Write the `annotation` of the component, with `why:`; or write the query in another way."),
    ("BLZ083", _W, "nondeterministic expression",
     "The result is not a function of the input: a replay or another replica gets another one, and "
     "no coordination repairs that.",
     "Compute it where the record is made, and let it come in as an attribute."),
    ("BLZ084", _W, "annotation that the code does not show",
     "The analysis believes what is written; where the code shows less, coordination may be "
     "missing that is needed.",
     "Write the derived annotation; or say in `why:` how it is known that the written one holds."),
    ("BLZ085", _N, "records that may come twice",
     "The stream is right as a set: a record may be sent again. A count or a sum of it counts the "
     "record again, and no seal repairs that.",
     "Put `SELECT DISTINCT` before it, or count DISTINCT keys."),
    ("BLZ086", _N, "watermark without a promise of lateness",
     "Records behind a watermark are dropped, and which ones depends on how the stream was cut "
     "into batches. Only where the sources promise not to be later does it drop none.",
     "Declare `lateness` on the stream that comes in, if the sources keep it."),
    ("BLZ087", _N, "sum of floating-point numbers",
     "Floating-point addition is not associative: the sum depends on the order of the records, "
     "even of a complete partition.",
     "Sum decimals: `sum(CAST(x AS DECIMAL(18, 2)))`; else the records are sorted before."),
    ("BLZ088", _N, "promise that a derivation relies on",
     "It cannot be read off the code; where it is broken, the derived annotation does not hold.",
     "Nothing, if it is kept; else write an annotation by hand that holds without it, `OW[*]` for "
     "example."),
    ("BLZ089", _W, "function that was not run",
     "A command that reads runs nothing unasked. A Python function is followed without being run; "
     "here that does not tell all that it does. Its paths are taken for the worst there is: "
     "order-sensitive, of unknown gate, and left to chance. The verdict is that of a component "
     "that may do anything, and the component cannot be compiled.",
     "Write the `annotation`, or add --execute: the function is then run in a process of its own."),
    ("BLZ093", _W, "function that cannot be read",
     "It was run, without Spark and in a process of its own, to learn what it describes, and that "
     "failed. Nothing is known of it: its paths are taken for the worst there is, order-sensitive, "
     "of unknown gate and left to chance, and it cannot be compiled.",
     "Correct the function at this place; it must describe a query without needing data."),
    ("BLZ094", _E, "project that was not run",
     "A command that reads runs nothing unasked. A script, and the files of a pipeline, are "
     "followed without being run; here that does not show what they define.",
     "Add --execute: it is then run in a process of its own, without Spark."),
    ("BLZ095", _E, "declaration that cannot be read",
     "A module that declares a dataflow is read and not run: what its declarations say has to be "
     "written down in it.",
     "Write the value as a constant, or as a name that the module binds once, to one."),
    # ---- Bloom
    ("BLZ090", _E, "not Bloom",
     "A rule that does not parse says nothing, and what is left would be another program.",
     "Correct the text at this place; docs/reference/bloom.md has the grammar."),
    ("BLZ091", _E, "unknown name in a Bloom module",
     "A rule over a collection or column that does not exist gives nothing.",
     "Correct the name, or declare it in a `state` block."),
    ("BLZ092", _E, "rule that Bloom does not allow",
     "Bloom would refuse it when it is run, or it has no defined result.",
     "Correct the rule; docs/reference/bloom.md says what each kind of collection and each "
     "method takes."),
)
# fmt: on
"""Every kind of mistake that the front end reports, by code."""

OF_DELIVERY: Final = frozenset({"BLZ074"})
"""Warnings about records that come twice, of which the paper's rule set says nothing."""

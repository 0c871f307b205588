"""A small dataflow for every rule and every code; each is run when it is printed.

So an example cannot say something else than the program does. A test checks that each shows the
rule or code that it is there for.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from annotations.diagnostics import BadInput, Diagnostic

FILE: Final = "dataflow.yaml"


@dataclass(frozen=True, slots=True)
class Example:
    """A dataflow file, and the component whose derivation shows the rule (none for a code)."""

    text: str
    component: str = ""
    variants: Mapping[str, str] = field(default_factory=dict, hash=False)


def _rule(component: str, text: str) -> Example:
    return Example(textwrap.dedent(text).strip("\n") + "\n", component)


def _code(text: str, **variants: str) -> Example:
    return Example(textwrap.dedent(text).strip("\n") + "\n", variants=variants)


def _bloom(rule: str) -> Example:
    """A module with one rule, in a dataflow."""
    return _code(
        "components:\n"
        "  Report:\n"
        "    bloom: |\n"
        "      module Report\n"
        "        state do\n"
        "          interface input, :click, [:id, :campaign]\n"
        "          interface output, :seen, [:id]\n"
        "        end\n"
        "        bloom do\n"
        f"          {rule}\n"
        "        end\n"
        "      end\n"
        "streams:\n"
        "  clicks: {to: Report.click}\n"
        "  seen: {from: Report.seen}"
    )


_KEEP: Final = """\
components:
  Keep: {annotation: {from: click, to: kept, label: CR, rows: one}}
streams:
"""
_TALLY: Final = """\
components:
  Tally: {annotation: {from: click, to: tallies, label: "OW[ad]"}}
streams:
"""
_REPORT: Final = """\
components:
  Report:
    annotation:
      - {from: click, to: response, label: CW}
      - {from: request, to: response, label: OR, subscript: [campaign]}
streams:
"""

RULE_EXAMPLES: Final[Mapping[str, Example]] = {
    "R1": _rule(
        "Report",
        """
        components:
          Report:
            annotation:
              - {from: click, to: response, label: CW}
              - {from: request, to: response, label: "OR[id]"}
        """,
    ),
    "R2": _rule(
        "Count",
        """
        components:
          Count:
            annotation: {from: words, to: counts, label: "OW[word, batch]"}
        """,
    ),
    "R3": _rule(
        "Cache",
        """
        components:
          Cache:
            Rep: true
            annotation: {from: answers, to: results, label: CW}
        streams:
          answers: {to: Cache.answers, label: Inst}
          results: {from: Cache.results}
        """,
    ),
    "R4": _rule(
        "Count",
        """
        components:
          Count:
            annotation: {from: clicks, to: counts, label: "OW[id]"}
        streams:
          clicks: {to: Count.clicks, seal: [campaign]}
          counts: {from: Count.counts}
        """,
    ),
    "S1": _rule(
        "Report",
        """
        components:
          Report:
            annotation:
              - {from: click, to: response, label: CW}
              - {from: request, to: response, label: "OR[campaign]"}
        streams:
          clicks: {to: Report.click}
          requests: {to: Report.request, seal: [campaign]}
          answers: {from: Report.response}
        """,
    ),
    "S2": _rule(
        "Stock",
        """
        components:
          Stock:
            annotation:
              - {from: orders, to: levels, label: "OW[day]"}
              - {from: corrections, to: levels, label: CW}
        streams:
          orders: {to: Stock.orders, seal: [day]}
          corrections: {to: Stock.corrections}
          levels: {from: Stock.levels}
        """,
    ),
    "S3": _rule(
        "Count",
        """
        components:
          Count:
            annotation: {from: words, to: counts, label: "OW[word, batch]"}
        streams:
          words: {to: Count.words, seal: [batch]}
          counts: {from: Count.counts}
        """,
    ),
    "N1": _rule(
        "Enrich",
        """
        components:
          Enrich:
            annotation:
              {from: payments, to: priced, label: CR, nondeterministic: "today's rate"}
        """,
    ),
    "N2": _rule(
        "Store",
        """
        components:
          Store:
            annotation:
              {from: rows, to: stored, label: CW, nondeterministic: "stamped with the time"}
        """,
    ),
    "p": _rule(
        "Splitter",
        """
        components:
          Splitter:
            annotation: {from: tweets, to: words, label: CR}
        """,
    ),
    "C1": _rule(
        "Ledger",
        """
        components:
          Ledger:
            Rep: true
            annotation: {from: bookings, to: balances, label: "OW[account]"}
        """,
    ),
    "C2": _rule(
        "Report",
        """
        components:
          Report:
            Rep: true
            annotation:
              - {from: click, to: response, label: CW}
              - {from: request, to: response, label: "OR[campaign]"}
        """,
    ),
    "S4": _rule(
        "Ledger",
        """
        components:
          Ledger:
            annotation:
              - {from: bookings, to: receipts, label: "OW[account]", state: accounts}
              - {from: asked, to: balance, label: CR, state: accounts}
        """,
    ),
    "S5": _rule(
        "Rates",
        """
        components:
          Rates:
            annotation:
              - {from: feed, to: stored, label: CW, state: rates}
              - {from: asked, to: rate, label: CR, state: rates}
        streams:
          feed: {to: Rates.feed, label: Run}
          asked: {to: Rates.asked}
          stored: {from: Rates.stored}
          rate: {from: Rates.rate}
        """,
    ),
    "D1": _rule(
        "Keep",
        _KEEP
        + """\
  clicks: {to: Keep.click, id: [click], delivery: may-repeat}
  kept: {from: Keep.kept}
""",
    ),
    "D2": _rule(
        "Most",
        """\
components:
  Most: {annotation: {from: bids, to: most, label: CW, repeats: make}}
streams:
  bids: {to: Most.bids}
  most: {from: Most.most}
""",
    ),
    "D3": _rule(
        "Number",
        """\
components:
  Number: {annotation: {from: clicks, to: numbered, label: CR, repeats: corrupt}}
streams:
  clicks: {to: Number.clicks, delivery: may-repeat}
  numbered: {from: Number.numbered}
""",
    ),
    "D4": _rule(
        "Tally",
        _TALLY
        + """\
  clicks: {to: Tally.click, id: [click], delivery: may-repeat}
  tallies: {from: Tally.tallies}
""",
    ),
    "D5": _rule(
        "Stamp",
        """\
components:
  Stamp:
    annotation: {from: clicks, to: stamped, label: CR, nondeterministic: reads the clock}
streams:
  clicks: {to: Stamp.clicks, id: [click], delivery: may-repeat}
  stamped: {from: Stamp.stamped}
""",
    ),
    "D6": _rule(
        "Tally",
        _TALLY
        + """\
  clicks: {to: Tally.click, id: [click], delivery: may-repeat, seal: [ad]}
  tallies: {from: Tally.tallies}
""",
    ),
    "D7": _rule(
        "Count",
        """\
components:
  Splitter: {annotation: {from: tweets, to: words, label: CR}}
  Count: {annotation: {from: words, to: counts, label: "OW[word, batch]"}}
streams:
  tweets: {to: Splitter.tweets, id: [tweet], delivery: may-repeat, seal: [batch]}
  words: {from: Splitter.words, to: Count.words}
  counts: {from: Count.counts}
""",
    ),
    "D8": _rule(
        "Report",
        _REPORT
        + """\
  clicks: {to: Report.click, seal: [campaign]}
  requests: {to: Report.request, id: [request], delivery: may-repeat}
  results: {from: Report.response}
""",
    ),
    "D9": _rule(
        "Rank",
        """\
components:
  Tally: {annotation: {from: click, to: tallies, label: "OW[ad]"}}
  Rank: {annotation: {from: tallies, to: ranks, label: CW, repeats: absorb}}
streams:
  clicks: {to: Tally.click, id: [click], delivery: may-repeat}
  tallies: {from: Tally.tallies, to: Rank.tallies}
  ranks: {from: Rank.ranks}
""",
    ),
    "D10": _rule(
        "Report",
        _REPORT
        + """\
  clicks: {to: Report.click, seal: [campaign], id: [click], delivery: may-repeat}
  requests: {to: Report.request, id: [request], delivery: may-repeat}
  results: {from: Report.response}
""",
    ),
    "D11": _rule(
        "Keep",
        _KEEP
        + """\
  clicks: {to: Keep.click, id: [click], delivery: may-repeat}
  kept: {from: Keep.kept}
""",
    ),
    "D12": _rule(
        "Keep",
        _KEEP
        + """\
  here: {to: Keep.click, id: [click], delivery: may-repeat}
  there: {to: Keep.click, id: [click], delivery: may-repeat}
  kept: {from: Keep.kept}
""",
    ),
    "D13": _rule(
        "Keep",
        _KEEP
        + """\
  clicks: {to: Keep.click}
  kept: {from: Keep.kept, sink: {format: jdbc}, delivery: once}
""",
    ),
    "D14": _rule(
        "Keep",
        _KEEP
        + """\
  clicks: {to: Keep.click, id: [click], delivery: may-repeat}
  kept: {from: Keep.kept, sink: {format: jdbc, key: [click]}}
""",
    ),
}

_COUNT = """
components:
  Count:
    annotation: {from: words, to: counts, label: "OW[word]"}
"""

CODE_EXAMPLES: Final[Mapping[str, Example]] = {
    "BLZ002": _code("components: {Count: [\n"),
    "BLZ003": _code("- Count\n"),
    "BLZ004": _code(_COUNT + "---" + _COUNT),
    "BLZ005": _code("components: &all\n  Count: *all\n"),
    "BLZ006": _code(_COUNT + "  Count:\n    annotation: {from: words, to: counts, label: CW}\n"),
    "BLZ007": _code("name: on" + _COUNT),
    "BLZ008": _code("name: !!python/name:os.system x" + _COUNT),
    "BLZ009": _code(
        "components:\n  Count:\n    <<: words\n    annotation: {from: w, to: c, label: CW}"
    ),
    "BLZ010": _code(
        "components:\n  Count:\n    annotation: {from: words, to: counts, label: OW, subscrpt: [w]}"
    ),
    "BLZ011": _code("components:\n  Count:\n    annotation: OW"),
    "BLZ012": _code("components:\n  Count:\n    annotation: {from: words, label: CW}"),
    "BLZ013": _code(
        "components:\n  Count:\n    annotation: {from: words, to: counts, label: OW, within: bag}"
    ),
    "BLZ014": _code(
        "components:\n  Word Count:\n    annotation: {from: words, to: counts, label: CW}"
    ),
    "BLZ020": _code(
        'components:\n  Count:\n    annotation: {from: words, to: counts, label: "OW[word"}'
    ),
    "BLZ021": _code(
        "components:\n  Count:\n    annotation: {from: words, to: counts, label: CW, subscript: w}"
    ),
    "BLZ022": _code(
        "components:\n  Count:\n"
        '    annotation: {from: words, to: counts, label: "OW[word]", subscript: [batch]}'
    ),
    "BLZ023": _code("components:\n  Count:\n    annotation: {from: words, to: counts}"),
    "BLZ024": _code(
        "components:\n  Count:\n    annotation: {from: a, to: counts, label: CW, within: sequence}"
    ),
    "BLZ025": _code("components:\n  Count:\n    Rep: true"),
    "BLZ030": _code(
        "components:\n  Count:\n    variants:\n      BYWORD: {from: words, to: counts, label: CW}",
        Count="BYWRD",
    ),
    "BLZ031": _code(
        "components:\n  Count:\n    annotation: {from: words, to: log, label: CW}\n    variants:\n"
        "      BYWORD: {from: words, to: counts, label: CW}"
    ),
    "BLZ032": _code("BYWORD: {from: words, to: counts, label: CW}"),
    "BLZ033": _code(
        "components:\n  Count:\n    annotation: {from: words, to: counts, label: CW}\n"
        "    variants:\n      BYWORD: {from: asked, to: counts, label: CR}\n"
        "      ALL: {from: words, to: counts, label: CW}\n"
        "streams:\n  words: {to: Count.words}\n  asked: {to: Count.asked}\n"
        "  counts: {from: Count.counts}",
        Count="ALL",
    ),
    "BLZ040": _code(
        _COUNT + "streams:\n  words: {to: Cuont.words}\n  counts: {from: Count.counts}"
    ),
    "BLZ041": _code(_COUNT + "streams:\n  words: {to: Count.word}\n  counts: {from: Count.counts}"),
    "BLZ042": _code(
        _COUNT + "streams:\n  words: {to: Count.words}\n  counts: {from: Count.counts}\n  more: {}"
    ),
    "BLZ043": _code(
        _COUNT + "streams:\n  words: {to: Count.words, sink: {format: json, path: out}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ044": _code(_COUNT + "streams:\n  counts: {from: Count.counts}"),
    "BLZ045": _code(_COUNT + "streams:\n  words: {to: Count.words}"),
    "BLZ046": _code(
        _COUNT + "streams:\n  again: {from: Count.counts, to: Count.words}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ048": _code(
        "components:\n  Split:\n    annotation: {from: lines, to: words, label: CR}\n"
        "  Count:\n    annotation: {from: words, to: counts, label: CW}\n"
        "streams:\n  lines: {to: Split.lines}\n"
        "  words: {from: Split.words, to: Count.words, producer: host}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ049": _code(
        "Split:\n  annotation: {from: lines, to: words, label: CR}\n"
        "Count:\n  annotation: {from: word, to: counts, label: CW}"
    ),
    "BLZ050": _code(
        _COUNT + "streams:\n  words: {to: Count.words, schema: {text: string}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ051": _code(
        _COUNT + "streams:\n  words: {to: Count.words, schema: {word: string}}\n"
        "  counts: {from: Count.counts, schema: {word: string, number: int}}\n"
        'fds: ["word -> nubmer"]'
    ),
    "BLZ052": _code(_COUNT + 'fds: ["ward -> word"]'),
    "BLZ053": _code(
        _COUNT + "streams:\n  words: {to: Count.words, schema: {word: strng}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ054": _code(
        "components:\n  Count:\n    sql: SELECT wrd, count(*) AS n FROM words GROUP BY wrd\n"
        "streams:\n  words: {to: Count.words, schema: {word: string}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ055": _code(
        "components:\n  Count:\n    sql: SELECT uppr(word) AS word FROM words\n"
        "streams:\n  words: {to: Count.words, schema: {word: string}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ056": _code(
        "components:\n  Count:\n    sql: SELECT word, day, count(*) AS n FROM words GROUP BY word\n"
        "streams:\n  words: {to: Count.words, schema: {word: string, day: date}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ057": _code(
        "components:\n  Count:\n    sql: SELECT word, count(*) AS n FROM words WHERE count(*) > 1 "
        "GROUP BY word\n"
        "streams:\n  words: {to: Count.words, schema: {word: string}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ058": _code(
        "components:\n  Count:\n    sql: SELECT word FROM words UNION SELECT word, 1 FROM words\n"
        "streams:\n  words: {to: Count.words, schema: {word: string}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ059": _code(
        "components:\n  Count:\n    sql: SELEC word FROM words\n"
        "streams:\n  words: {to: Count.words, schema: {word: string}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ060": _code(
        "components:\n  Count:\n    replicas: 3\n"
        "    annotation: {from: words, to: counts, label: CW}"
    ),
    "BLZ061": _code(
        "components:\n  Count:\n    annotation: {from: words, to: counts, label: CW}\n"
        "    sql: {count: SELECT * FROM words}"
    ),
    "BLZ062": _code(
        "components:\n  Count:\n    annotation: {from: words, to: counts, label: CW}\n"
        "    sql: SELECT * FROM words\n    python: counting:count"
    ),
    "BLZ063": _code(
        "components:\n  Count:\n    annotation:\n      - {from: words, to: counts, label: CW}\n"
        "      - {from: words, to: log, label: CR}\n    sql: SELECT * FROM words"
    ),
    "BLZ064": _code(
        _COUNT + "streams:\n  words: {to: Count.words, source: {format: parqet, path: data}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ065": _code(
        _COUNT + "streams:\n  words:\n    to: Count.words\n"
        "    source: {format: json, path: data, options: {multilne: true}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ066": _code(
        _COUNT + "streams:\n"
        "  words:\n"
        "    to: Count.words\n"
        "    source: {format: jdbc, options: {dbtable: words, password: hunter2}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ067": _code(
        _COUNT + "streams:\n"
        "  words: {to: Count.words, source: {format: json, path: data}}\n"
        "  counts: {from: Count.counts, sink: {format: foreachBatch, function: warehouse:upsert}}"
    ),
    "BLZ068": _code(
        _COUNT + "streams:\n"
        "  words:\n"
        "    to: Count.words\n"
        "    source: {format: kafka, value: {format: avro}, options: {subscribe: words}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ074": _code(
        _COUNT + "streams:\n"
        "  words:\n"
        "    to: Count.words\n"
        "    source: {format: kafka, options: {subscribe: words}}\n"
        "    seal: [word]\n"
        "    punctuation: {when: sealed, count: n}\n"
        "    producers: one\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ076": _code(
        _COUNT + "streams:\n"
        "  words: {to: Count.words, id: [line, nr], schema: {word: string, line: int}}\n"
        "  counts: {from: Count.counts}"
    ),
    "BLZ082": _code(
        "components:\n"
        "  Latest:\n"
        "    sql: |\n"
        "      SELECT id, (SELECT max(n) FROM clicks b WHERE b.n < a.n\n"
        "                  HAVING count(*) > 1) AS below\n"
        "      FROM clicks a\n"
        "streams:\n"
        "  clicks: {to: Latest.clicks, schema: {id: INT, n: INT}}\n"
        "  latest: {from: Latest.latest}"
    ),
    "BLZ083": _code(
        "components:\n"
        "  Sample:\n"
        "    sql: SELECT id FROM clicks WHERE rand() < 0.1\n"
        "streams:\n"
        "  clicks: {to: Sample.clicks, schema: {id: INT}}\n"
        "  some: {from: Sample.some}"
    ),
    "BLZ086": _code(
        "components:\n"
        "  Hourly:\n"
        "    sql: >-\n"
        "      SELECT window(ts, '1 hour') AS hour, count(*) AS n\n"
        "      FROM clicks WATERMARK ts DELAY OF INTERVAL 10 "
        "MINUTES GROUP BY window(ts, '1 hour')\n"
        "streams:\n"
        "  clicks: {to: Hourly.clicks, schema: {ts: TIMESTAMP}}\n"
        "  hours: {from: Hourly.hours}"
    ),
    "BLZ087": _code(
        "components:\n"
        "  Total:\n"
        "    sql: SELECT id, sum(v) AS s FROM clicks GROUP BY id\n"
        "streams:\n"
        "  clicks: {to: Total.clicks, schema: {id: INT, v: DOUBLE}}\n"
        "  sums: {from: Total.sums}"
    ),
    "BLZ089": _code(
        "components:\n"
        "  Score:\n"
        "    python: operators:score\n"
        "streams:\n"
        "  clicks: {to: Score.clicks, schema: {id: INT, n: INT}}\n"
        "  scores: {from: Score.scores}"
    ),
    "BLZ090": _bloom("seen <= click {|c| [c.id] if}"),
    "BLZ091": _bloom("seen <= click {|c| [c.ident]}"),
    "BLZ092": _bloom("seen <- click {|c| [c.id]}"),
    "BLZ070": _code(
        _KEEP + "  clicks: {to: Keep.click, source: {format: kafka, options: {subscribe: c}}}\n"
        "  kept: {from: Keep.kept}"
    ),
    "BLZ071": _code(
        _TALLY + "  clicks: {to: Tally.click, id: [click], delivery: may-repeat, "
        "repeat_within: 1 hour}\n  tallies: {from: Tally.tallies}"
    ),
    "BLZ072": _code(
        _TALLY + "  clicks: {to: Tally.click, delivery: may-repeat}\n"
        "  tallies: {from: Tally.tallies}"
    ),
    "BLZ073": _code(
        _TALLY + "  clicks: {to: Tally.click, id: [click], delivery: may-repeat}\n"
        "  tallies: {from: Tally.tallies}"
    ),
    "BLZ075": _code(
        _KEEP + "  clicks: {to: Keep.click, id: [click]}\n"
        "  kept: {from: Keep.kept, sink: {format: jdbc, key: [ad]}}"
    ),
}

IN_WORDS: Final[Mapping[str, str]] = {
    "BLZ001": "A path that leads nowhere, a folder, a file that is not UTF-8.",
    "BLZ047": "In a file without `streams`, 101 components with an output `events` and 100 others "
    "with an input `events`: 10,100 streams that nobody meant.",
    "BLZ077": "A component whose query counts clicks, annotated `repeats: absorb`: `blazes check` "
    "says that its code gives `corrupt`.",
    "BLZ080": "A script that `blazes import` runs asks for data, `df.collect()`: there is no Spark "
    "behind it that could give any.",
    "BLZ081": "A pipeline whose third file fails: what the others define is imported, and the "
    "place of the failure is named.",
    "BLZ084": "A component whose query counts words, annotated `CW`: `blazes derive` and "
    "`blazes check` tell `OW[word]`, with the line of the count.",
    "BLZ085": "`SELECT count(*) FROM busy`, where `busy` comes from `GROUP BY id HAVING "
    "count(*) > 100` in output mode update: Spark sends an id again whenever its count changes.",
    "BLZ088": "A count per window of a stream that says `lateness: 10 minutes`, with a watermark "
    "of 10 minutes: a record that is later all the same is dropped or not, as the batches fall.",
    "BLZ093": "`blazes analyze --execute` runs `operators:score` to read it, and it asks for data, "
    "`clicks.collect()`: there is no Spark behind it that could give any.",
    "BLZ094": "`blazes analyze job.py` without --execute, of a script whose only query is started "
    "by a class: that is learned by running it.",
    "BLZ095": "`@blazes.component(label=os.environ['LABEL'])` in a module: only running it would "
    "tell the label.",
}
"""What a text of a few lines cannot show."""


def examples(rule: str) -> Iterator[str]:
    """The example of a rule: its file, and the derivation that it gives."""
    from annotations.file import loads
    from blazes.analysis import analyze
    from blazes.document import derivation
    from blazes.report.notation import derivation_block

    example = RULE_EXAMPLES.get(rule)
    if example is None:
        return
    yield example.text.rstrip()
    dataflow, _ = loads(example.text, file=FILE, variants=example.variants)
    for derived in analyze(dataflow).derivations:
        if derived.component == example.component:
            yield derivation.text(derivation_block(derived), width=72)


@cache
def findings(example: Example) -> Sequence[Diagnostic]:
    """The diagnostics about the file of an example."""
    from annotations.file import loads
    from blazes.analysis import analyze
    from blazes.coordination import plan
    from blazes.delivery_checks import delivery_findings

    try:
        dataflow, warnings = loads(example.text, file=FILE, variants=example.variants)
    except BadInput as refused:
        return refused.diagnostics
    return (*warnings, *delivery_findings(plan(analyze(dataflow))))


def diagnosed(code: str) -> Iterator[str]:
    """The example of a code: its file, and the report of the mistakes in it."""
    from blazes.report.problems import Sources, problem_text

    example = CODE_EXAMPLES.get(code)
    if example is None:
        return
    yield example.text.rstrip()
    sources = Sources({FILE: example.text})
    for diagnostic in findings(example):
        if diagnostic.code.id == code:
            yield problem_text(diagnostic, sources=sources)
            return

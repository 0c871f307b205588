"""What an output becomes, decision by decision."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

import pytest

from annotations.file import loads
from annotations.vocabulary import Label
from blazes.analysis import analyze
from blazes.coordination import Vote, plan
from codegen.model import Channel, Guarantee, Order, Seal, Sink, Source, Stages, Transform, Way
from codegen.stages import stages

SEALED = """
    seal: [day]
    schema: {day: int, id: int, closed: boolean, n: int}
    source: {format: json, path: data}
    punctuation: {when: closed, count: n}
"""


def job(text: str, *, target: Label = Label.ASYNC) -> Stages:
    dataflow, _ = loads(textwrap.dedent(text))
    return stages(plan(analyze(dataflow), target=target))


def one(component: str, *streams: str, **options: Any) -> Any:
    """The stage of the only output of a component `C`; its inputs come from rate sources."""
    text = "components:\n  C:\n" + textwrap.indent(textwrap.dedent(component), "    ")
    text += "streams:\n" + "".join(f"  {each}\n" for each in streams)
    text += "" if any("from: C" in each for each in streams) else "  out: {from: C.out}\n"
    found = job(text, **options)
    units = [stage for stage in found if getattr(stage, "component", "") == "C"]
    assert len(units) == 1
    return units[0]


def rate(interface: str, **keys: str) -> str:
    more = "".join(f", {name}: {value}" for name, value in keys.items())
    return f"{interface}: {{to: C.{interface}, source: {{format: rate}}{more}}}"


def test_a_record_wise_output_is_fused() -> None:
    found = one("annotation: {from: a, to: out, label: CR}\nsql: SELECT 1 FROM a\n", rate("a"))
    assert found.way is Way.RECORD_WISE
    assert found.inputs == ("source:a",)


@pytest.mark.parametrize("label", ["CR", "CW"])
def test_a_confluent_output_without_implementation_passes_through(label: str) -> None:
    found = one(f"annotation: {{from: a, to: out, label: {label}}}\n", rate("a"))
    assert found.way is Way.RECORD_WISE
    assert found.function is None


def test_a_writer_runs_in_sparks_own_state_in_its_output_mode() -> None:
    text = "annotation: {from: a, to: out, label: CW}\nsql: SELECT 1 FROM a\noutput_mode: update\n"
    found = one(text, rate("a"))
    assert found.way is Way.NATIVE
    assert found.output_mode == "update"


def test_record_wise_over_several_inputs_is_a_query_of_its_own() -> None:
    text = """
        annotation:
          - {from: a, to: out, label: CR}
          - {from: b, to: out, label: CR}
        sql: SELECT * FROM a UNION ALL SELECT * FROM b
        """
    assert one(text, rate("a"), rate("b")).way is Way.NATIVE


def test_a_nondeterministic_reader_is_computed_once_and_kept() -> None:
    text = "annotation: {from: a, to: out, label: CR, nondeterministic: rolls a die}\n"
    found = one(text + "sql: SELECT rand() FROM a\n", rate("a"))
    assert found.way is Way.NATIVE


READ_AND_WRITE = """
    annotation:
      - {{from: put, to: out, label: CW}}
      - {{from: ask, to: out, label: "{label}"}}
    sql: SELECT * FROM put JOIN ask USING (id)
    """


def test_confluent_answers_are_monotone() -> None:
    found = one(READ_AND_WRITE.format(label="CR"), rate("put"), rate("ask"))
    assert found.way is Way.ACCUMULATING
    assert (dict(found.writes), dict(found.reads)) == (
        {"put": ("source:put",)},
        {"ask": ("source:ask",)},
    )
    assert found.monotone


def test_tolerated_answers_are_not_monotone() -> None:
    found = one(READ_AND_WRITE.format(label="OR[id]"), rate("put"), rate("ask"), target=Label.RUN)
    assert found.way is Way.ACCUMULATING
    assert not found.monotone


def test_ordered_answers_are_answered_once() -> None:
    found = one(
        READ_AND_WRITE.format(label="OR[id]"),
        *(rate(each, schema="{id: INT}") for each in ("put", "ask")),
    )
    assert isinstance(found, Order)
    assert not found.native
    assert found.changed_by is None


COUNT = "annotation: {from: a, to: out, label: 'OW[id]'%s}\nsql: SELECT id FROM a\n"


def test_an_ordered_writer_runs_in_sparks_own_state() -> None:
    found = one(COUNT % "", rate("a"))
    assert isinstance(found, Order)
    assert found.native


def test_an_order_within_partitions_computes_them_again() -> None:
    text = (COUNT % ", within: sequence") + "order_by: [at]\n"
    found = one(text, rate("a", schema="{id: int, at: timestamp}"))
    assert (found.native, found.changed_by, found.order_by) == (False, ("id",), ("at",))


def test_an_order_over_all_records_computes_everything_again() -> None:
    """The gate is not in a declared schema, so the order is global."""
    found = one(COUNT % ", within: sequence", rate("a"))
    assert found.changed_by == ()


def test_several_ordered_writers_are_kept_and_read_again() -> None:
    text = """
        annotation:
          - {from: a, to: out, label: "OW[id, x]"}
          - {from: b, to: out, label: "OW[id, y]"}
        sql: SELECT a.id, b.y FROM a FULL JOIN b
        """
    schema = "{id: int, x: int, y: int}"
    found = one(text, rate("a", schema=schema), rate("b", schema=schema))
    assert not found.native
    assert found.changed_by == ("id",), "partitions of both gates lie in those of what they share"


STORE = """
    components:
      C:
        annotation:
          - {from: put, to: ack, label: CW}
          - {from: get, to: out, label: "OR[k]"}
        sql: {ack: SELECT k FROM put, out: %s}
    streams:
      put: {to: C.put, source: {format: rate}}
      get: {to: C.get, source: {format: rate}}
      acks: {from: C.ack}
      outs: {from: C.out}
    """


def test_a_reader_gets_the_writers_of_its_state_that_it_mentions() -> None:
    found: Any = job(STORE % "SELECT * FROM get JOIN put USING (k)")["order:C.out"]
    assert (set(found.writes), set(found.reads)) == ({"put"}, {"get"})


def test_a_reader_does_not_wait_for_what_it_does_not_mention() -> None:
    found: Any = job(STORE % "SELECT * FROM get")["order:C.out"]
    assert (set(found.writes), set(found.reads)) == ({"get"}, set())


def sealed(component: str, producers: str, *more: str) -> Any:
    stream = f"a:\n    to: C.a{SEALED}    producers: {producers}"
    return one(component, stream, *more)


def test_a_sealed_writer_waits() -> None:
    found = sealed(
        "annotation: {from: a, to: out, label: 'OW[day]'}\nsql: SELECT 1 FROM a\n", "one"
    )
    assert isinstance(found, Seal)
    assert (dict(found.waits), dict(found.reads)) == ({"a": ("source:a",)}, {})
    assert (found.key, found.vote, found.order_by, found.forward) == (("day",), Vote.NONE, (), ())


def test_several_producers_vote() -> None:
    text = "annotation: {from: a, to: out, label: 'OW[day]'}\nsql: SELECT 1 FROM a\n"
    found = sealed(text, "[p, q]\n    producer: id")
    assert found.vote is Vote.UNANIMOUS
    assert found.producers["a"].members == ("p", "q")


def test_requests_of_a_sealed_state_are_read() -> None:
    text = """
        annotation:
          - {from: a, to: out, label: CW}
          - {from: ask, to: out, label: "OR[day]"}
        sql: SELECT 1 FROM a JOIN ask ON a.day = ask.day
        """
    found = sealed(text, "one", rate("ask", schema="{day: int}"))
    assert (set(found.waits), set(found.reads)) == ({"a"}, {"ask"})


def test_a_sequence_is_released_in_order() -> None:
    text = "annotation: {from: a, to: out, label: 'OW[day]', within: sequence}\n"
    found = sealed(text + "sql: SELECT 1 FROM a\norder_by: [id]\n", "one")
    assert (found.release.value, found.order_by) == ("sorted", ("id",))


CHAIN = f"""
components:
  Rename:
    annotation: {{from: a, to: b, label: CR, lineage: {{tag: day}}}}
    sql: SELECT day AS tag, id FROM a
  First:
    annotation: {{from: b, to: c, label: "OW[tag]", lineage: {{jour: tag}}}}
    sql: SELECT tag AS jour, count(*) AS n FROM b GROUP BY tag
  Between:
    annotation: {{from: c, to: d, label: CR, lineage: {{dia: jour}}}}
    sql: SELECT jour AS dia, n FROM c
  Second:
    annotation: {{from: d, to: e, label: "OW[dia]"}}
    sql: SELECT dia, sum(n) AS n FROM d GROUP BY dia
streams:
  a:
    to: Rename.a{SEALED}    producers: one
    late: fail
    seal_timeout: 90
  b: {{from: Rename.b, to: First.b}}
  c: {{from: First.c, to: Between.c}}
  d: {{from: Between.d, to: Second.d}}
  e: {{from: Second.e}}
"""


def test_a_key_is_followed_through_its_names() -> None:
    found = job(CHAIN)
    first: Any = found["seal:First.c"]
    second: Any = found["seal:Second.e"]
    assert (first.key, dict(first.renamed), first.forward) == (("tag",), {"a": ("day",)}, ("jour",))
    assert (second.key, dict(second.renamed)) == (("dia",), {"First.c": ("jour",)})
    assert second.forward == (), "nobody waits for it"
    assert not second.producers, "a unit is its own producer"
    assert (first.late, first.seal_timeout_s) == ("fail", 90.0)
    assert (second.late, second.seal_timeout_s) == ("dead-letter", 600.0)


TWO = """
components:
  Split:
    annotation: {from: lines, to: words, label: CR}
    sql: SELECT day, explode(split(line, ' ')) AS word FROM lines
  Count:
    annotation: {from: words, to: counts, label: "OW[day]"}
    sql: SELECT day, count(*) AS n FROM words GROUP BY day
streams:
  lines: &sealed
    to: Split.lines
    seal: [day]
    schema: {day: int, line: string, nr: int, closed: boolean, sent: int}
    source: {format: kafka, options: {subscribe: lines}}
    punctuation: {when: closed, count: sent}
    producers: one
    id: [nr]
    remember: 2 hours
  more: {<<: *sealed, delivery: once, remember: REMEMBER}
  words: {from: Split.words, to: Count.words}
  counts: {from: Count.counts}
"""


@pytest.mark.parametrize(
    ("remember", "longest_s"), [("7 days", 604800.0), ("forever", None), ("60", 7200.0)]
)
def test_the_longest_memory_of_the_streams_counts(remember: str, longest_s: float | None) -> None:
    seal: Any = job(TWO.replace("REMEMBER", remember))["seal:Count.counts"]
    assert seal.remember_s == longest_s


def test_a_gate_knows_the_ids_of_all_its_sources() -> None:
    found = job(TWO.replace("remember: REMEMBER", "id: [day, nr]"))
    seal: Any = found["seal:Count.counts"]
    assert dict(seal.dedup) == {"lines": ("nr",), "more": ("day", "nr")}
    sources: Any = [found["source:lines"], found["source:more"]]
    assert [each.record_id for each in sources] == [("nr",), ("day", "nr")]


def test_records_that_have_to_be_known_one_by_one_are_not_summed_up() -> None:
    whole = f"""
components:
  Count:
    annotation: {{from: a, to: b, label: "OW[day]"}}
    sql: SELECT day, count(*) AS n FROM a GROUP BY day
streams:
  a:
    to: Count.a{SEALED}    producers: one
  b: {{from: Count.b}}
"""
    plain: Any = job(whole)["seal:Count.b"]
    known: Any = job(whole.replace("producers: one", "producers: one\n    id: [id]"))[
        "seal:Count.b"
    ]
    assert plain.partial is not None
    assert known.partial is None


def test_stages_stand_in_the_order_of_the_data() -> None:
    assert [stage.id for stage in job(CHAIN)] == [
        "source:a",
        "transform:Rename.b",
        "seal:First.c",
        "channel:First.c",
        "transform:Between.d",
        "seal:Second.e",
        "sink:e",
    ]


def test_a_promise_is_a_watermark_and_says_what_it_assumes() -> None:
    text = "annotation: {from: a, to: out, label: 'OW[at]'}\nsql: SELECT at FROM a GROUP BY at\n"
    stream = "a: {to: C.a, seal: [at], schema: {at: Timestamp}, lateness: 5 minutes,"
    found = one(text, stream + " source: {format: json, path: data}}")
    assert isinstance(found, Transform)
    assert found.watermark == ("at", "5 minutes")
    assert (found.way, found.output_mode) == (Way.NATIVE, "append")
    assert found.assumes is not None
    assert "no record of a is more than 5 minutes behind" in found.assumes


REPLICATED = """
components:
  C:
    Rep: true
    replicas: 2
    annotation: {from: a, to: out, label: CW}
    sql: SELECT DISTINCT id FROM a
  D:
    Rep: false
    annotation: {from: in, to: out, label: CW}
    sql: SELECT DISTINCT * FROM in
streams:
  a: {to: C.a, source: {format: rate}}
  between: {from: C.out, to: D.in%s}
  out: {from: D.out}
  copies: {from: C.out}
"""


def test_replicas_are_stages_of_their_own_behind_one_channel() -> None:
    found = job(REPLICATED % "")
    channel: Any = found["channel:C.out"]
    assert channel.inputs == ("transform:C.out-1", "transform:C.out-2")
    reader: Any = found["transform:D.out"]
    assert dict(reader.writes) == {"in": ("channel:C.out",)}
    assert found["sink:copies"].inputs == ("channel:C.out",)


def test_a_schema_without_replica_hides_it() -> None:
    found: Any = job(REPLICATED % ", schema: {id: int}")
    assert dict(found["transform:D.out"].writes) == {"in": ("transform:between",)}
    assert found["transform:between"].function.drops == "replica"


def test_a_schema_with_replica_shows_it() -> None:
    found: Any = job(REPLICATED % ", schema: {id: int, replica: int}")
    assert dict(found["transform:D.out"].writes) == {"in": ("channel:C.out",)}


CYCLE = """
components:
  Reach:
    annotation:
      - {from: edge, to: pair, label: CW}
      - {from: pair, to: pair, label: CW}
    sql: SELECT a, b FROM edge UNION SELECT e.a, p.b FROM edge e JOIN pair p ON e.b = p.a
  Pass: {annotation: {from: pair, to: pair, label: CR}}
streams:
  edges: {to: Reach.edge, source: {format: rate}}
  there: {from: Reach.pair, to: Pass.pair}
  back: {from: Pass.pair, to: Reach.pair, schema: {a: int, b: int}}
  out: {from: Reach.pair}
"""


def test_everything_in_a_cycle_is_kept_as_a_set() -> None:
    found: Any = job(CYCLE)
    loops = [stage for stage in found if isinstance(stage, Channel) and stage.loop]
    assert [(loop.name, loop.inputs) for loop in loops] == [("back", ("transform:Pass.pair",))]
    for name in ("Reach.pair", "Pass.pair"):
        unit = found[f"transform:{name}"]
        assert (unit.way, unit.monotone) == (Way.ACCUMULATING, True)
    assert dict(found["transform:Reach.pair"].writes) == {
        "edge": ("source:edges",),
        "pair": ("channel:back",),
    }


@pytest.mark.parametrize(
    ("sink", "format", "path", "guarantee"),
    [
        ("", "parquet", None, Guarantee.EXACTLY_ONCE),
        (", sink: {format: JSON, path: there}", "json", "there", Guarantee.EXACTLY_ONCE),
        (", sink: {format: console}", "console", None, Guarantee.AT_LEAST_ONCE),
    ],
)
def test_files_are_written_exactly_once(
    sink: str, format: str, path: str | None, guarantee: Guarantee
) -> None:
    found = job(REPLICATED.replace("copies: {from: C.out}", f"copies: {{from: C.out{sink}}}") % "")
    stage = found["sink:copies"]
    assert isinstance(stage, Sink)
    assert (stage.external.format, stage.external.path) == (format, path)
    assert stage.guarantee is guarantee


def test_a_format_with_its_own_schema_needs_none() -> None:
    text = "annotation: {from: a, to: out, label: CR}\n"
    for source in ("{format: rate}", "{format: text, path: data}", "{format: kafka}"):
        one(text, f"a: {{to: C.a, source: {source}}}")


def test_a_source_keeps_what_the_file_says() -> None:
    stage = job(CHAIN)["source:a"]
    assert isinstance(stage, Source)
    assert list(stage.schema or ()) == ["day", "id", "closed", "n"]
    assert stage.seals == (("day",),)
    assert stage.punctuation is not None


def test_an_unknown_stage_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        job(CHAIN)["sink:nowhere"]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_chain_of_queries_may_be_longer_than_calls_may_be_deep(backwards: bool) -> None:
    numbers = range(sys.getrecursionlimit() + 100)
    components = [
        f"  C{n}: {{annotation: {{from: a, to: b, label: CR}}, sql: SELECT k FROM a}}"
        for n in (reversed(numbers) if backwards else numbers)
    ]
    streams = [f"  s{n}: {{from: C{n - 1}.b, to: C{n}.a}}" for n in numbers[1:]]
    first = "  s0: {to: C0.a, schema: {k: INT}, source: {format: json, path: data}}"
    last = f"  out: {{from: C{numbers[-1]}.b}}"
    text = "\n".join(["components:", *components, "streams:", first, *streams, last])
    assert len(job(text).stages) == len(numbers) + 2

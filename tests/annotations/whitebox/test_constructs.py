"""Constructs of Spark SQL and the annotations that they give (rows of the table of constructs)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotations.dataflow import Position
from annotations.vocabulary import Within
from annotations.whitebox.derivation import Derivation
from annotations.whitebox.derive import annotate
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import Role
from annotations.whitebox.places import placer
from annotations.whitebox.sql import read

INPUTS = {
    "clicks": Input(
        {"id": "INT", "campaign": "INT", "window": "INT", "v": "INT", "d": "DOUBLE"}
        | {"ts": "TIMESTAMP", "tags": "ARRAY<STRING>", "nn": "INT NOT NULL"}
    ),
    "reqs": Input({"id": "INT", "who": "STRING", "nid": "INT NOT NULL"}),
    "dim": Input({"id": "INT", "name": "STRING"}, role=Role.TABLE),
}


def derived(sql: str, **options: object) -> Derivation:
    return annotate(read(sql, inputs=INPUTS).plan, **options)  # type: ignore[arg-type]


def labels(sql: str, **options: object) -> str:
    return "; ".join(
        f"{name} {path.annotation}"
        + (" sequence" if path.within is Within.SEQUENCE else "")
        + (" chance" if path.nondeterministic else "")
        for name, path in derived(sql, **options).paths.items()
    )


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT id, upper(campaign) u FROM clicks WHERE v > 1", "clicks CR"),
        ("SELECT id, t FROM clicks LATERAL VIEW explode(tags) x AS t", "clicks CR"),
        ("SELECT id FROM clicks UNION ALL SELECT id FROM reqs", "clicks CR; reqs CR"),
        ("SELECT id FROM STREAM clicks", "clicks CR"),
        ("SELECT v / 2 AS half, tags || tags AS twice FROM clicks", "clicks CR"),
        (
            "SELECT window.start, count(*) FROM clicks GROUP BY window(ts, '1 hour')",
            "clicks OW[*]",
        ),
        ("SELECT DISTINCT id FROM clicks", "clicks CW"),
        ("SELECT c.id FROM clicks c JOIN reqs r ON c.id = r.id", "clicks CW; reqs CW"),
        ("SELECT id FROM clicks WHERE id IN (SELECT id FROM reqs)", "clicks CW; reqs CW"),
        (
            "SELECT c.id FROM clicks c LEFT JOIN reqs r ON c.id = r.id",
            "clicks OW[id]; reqs OW[id]",
        ),
        (
            "SELECT c.id FROM clicks c LEFT ANTI JOIN reqs r ON c.id = r.id",
            "clicks OW[id]; reqs OW[id]",
        ),
        ("SELECT id FROM clicks EXCEPT SELECT id FROM reqs", "clicks OW[id]; reqs OW[id]"),
        (
            "SELECT id FROM clicks c WHERE NOT EXISTS "
            "(SELECT 1 FROM reqs r WHERE r.id = c.id AND r.who = 'x')",
            "clicks OW[id]; reqs OW[id]",
        ),
        (
            "SELECT id FROM clicks WHERE id NOT IN (SELECT nid FROM reqs)",
            "clicks OW[*]; reqs OW[*]",
        ),
        (
            "SELECT nn FROM clicks WHERE nn NOT IN (SELECT nid FROM reqs WHERE who = 'x')",
            "clicks OW[nid,nn,who]; reqs OW[nid,nn,who]",
        ),
        ("SELECT id, count(*) FROM clicks GROUP BY id", "clicks OW[id]"),
        ("SELECT id, count(*) FROM clicks GROUP BY ALL", "clicks OW[id]"),
        ("SELECT id FROM clicks GROUP BY id HAVING count(*) > 1000", "clicks CW"),
        ("SELECT id FROM clicks GROUP BY id HAVING NOT (count(*) <= 9)", "clicks CW"),
        ("SELECT id FROM clicks GROUP BY id HAVING max(v) > 9 AND min(v) < 1", "clicks CW"),
        ("SELECT id FROM clicks GROUP BY id HAVING count(*) < 100", "clicks OW[id]"),
        ("SELECT id FROM clicks GROUP BY id HAVING count(*) BETWEEN 3 AND 5", "clicks OW[id]"),
        ("SELECT id FROM clicks GROUP BY id HAVING coalesce(max(v), 0) > 9", "clicks OW[id]"),
        ("SELECT id FROM clicks GROUP BY id HAVING sum(v) > 9", "clicks OW[id]"),
        # Without ANSI mode, abs of the smallest INT is negative.
        ("SELECT id FROM clicks GROUP BY id HAVING sum(abs(v)) > 9", "clicks OW[id]"),
        ("SELECT id FROM clicks GROUP BY id HAVING sum(abs(bigint(v))) > 9", "clicks OW[id]"),
        (
            "SELECT id FROM clicks GROUP BY id HAVING sum(abs(CAST(v AS BIGINT))) > 9",
            "clicks CW",
        ),
        ("SELECT id, sum(d) FROM clicks GROUP BY id", "clicks OW[id] sequence"),
        ("SELECT id, first(v) FROM clicks GROUP BY id", "clicks OW[id] sequence"),
        ("SELECT id, collect_list(v) FROM clicks GROUP BY id", "clicks OW[id] sequence"),
        ("SELECT id, sort_array(collect_list(v)) FROM clicks GROUP BY id", "clicks OW[id]"),
        ("SELECT id, max_by(v, ts) FROM clicks GROUP BY id", "clicks OW[id] sequence"),
        ("SELECT id, campaign, count(*) FROM clicks GROUP BY CUBE(id, campaign)", "clicks OW[*]"),
        ("SELECT count(*) FROM clicks", "clicks OW[*]"),
        ("SELECT id FROM clicks LIMIT 10", "clicks OW[*] sequence"),
        ("SELECT id, rank() OVER (PARTITION BY id ORDER BY v) FROM clicks", "clicks OW[id]"),
        (
            "SELECT id, row_number() OVER (PARTITION BY id ORDER BY v) FROM clicks",
            "clicks OW[id] sequence",
        ),
        ("SELECT id, rand() FROM clicks", "clicks CR chance"),
        # Spark moves rows between tasks, and fetches them as they come.
        (
            "SELECT c.id, first(d.name) FROM clicks c JOIN dim d ON c.id = d.id GROUP BY c.id",
            "clicks OW[id] sequence chance",
        ),
        (
            "SELECT id, collect_list(v) FROM (SELECT id, v FROM clicks UNION ALL SELECT id, v "
            "FROM clicks) GROUP BY id",
            "clicks OW[id] sequence chance",
        ),
        (
            "SELECT id, row_number() OVER (PARTITION BY id ORDER BY n) FROM "
            "(SELECT id, v, count(*) AS n FROM clicks GROUP BY id, v)",
            "clicks OW[id] sequence chance",
        ),
        *(
            (f"SELECT first(v) FROM (SELECT {parts})", "clicks OW[*] sequence chance")
            for parts in (
                "v FROM clicks DISTRIBUTE BY v",
                "v FROM clicks ORDER BY v",
                "/*+ REPARTITION(3) */ v FROM clicks",
                "v FROM clicks CLUSTER BY v",
            )
        ),
        ("SELECT v FROM clicks ORDER BY v LIMIT 3", "clicks OW[*] sequence"),
        ("SELECT id, v FROM clicks DISTRIBUTE BY v", "clicks CR"),
        (
            "SELECT c.id, max(d.name) FROM clicks c JOIN dim d ON c.id = d.id GROUP BY c.id",
            "clicks OW[id]",
        ),
        ("SELECT id FROM clicks WHERE ts > now()", "clicks CR chance"),
        ("SELECT c.id FROM clicks c LEFT ANTI JOIN dim d ON c.id = d.id", "clicks CR"),
        ("SELECT c.id FROM clicks c JOIN elsewhere e ON c.id = e.id", "clicks OR[*]"),
        ("SELECT id, my_sum(v) FROM clicks GROUP BY id", "clicks OW[*]"),
        ("SELECT mine(id) FROM clicks", "clicks OW[*] chance"),
        ("SELECT mine.own(id) FROM clicks", "clicks OW[*] chance"),
        ("SELECT id = ANY (SELECT 1) FROM clicks", "clicks OW[*]"),
        ("SELECT id = ANY (SELECT 1 WHERE rand() < 1) FROM clicks", "clicks OW[*] chance"),
        ("SELECT id FROM clicks TABLESAMPLE (5 ROWS)", "clicks OW[*] sequence"),
        ("SELECT id FROM clicks TABLESAMPLE (5 PERCENT) REPEATABLE (1)", "clicks CR chance"),
        ("SELECT id, (SELECT max(id) FROM reqs) FROM clicks", "clicks OW[*]; reqs OW[*]"),
        ("SELECT nothing FROM clicks", "clicks OW[*]"),
        (
            "SELECT id FROM clicks QUALIFY rank() OVER (PARTITION BY campaign ORDER BY v) = 1",
            "clicks OW[campaign]",
        ),
        (
            "SELECT rank() OVER w AS n FROM clicks QUALIFY n = 1 "
            "WINDOW w AS (PARTITION BY campaign ORDER BY v)",
            "clicks OW[campaign]",
        ),
        (
            "SELECT row_number() OVER (PARTITION BY id ORDER BY ts) AS v FROM clicks QUALIFY v = 1",
            "clicks OW[*]",  # the item or the column?
        ),
        # Window functions over groups
        (
            "SELECT campaign, id, rank() OVER (PARTITION BY campaign ORDER BY count(*)) AS r "
            "FROM clicks GROUP BY campaign, id",
            "clicks OW[campaign]",
        ),
        (
            "SELECT campaign, id, count(*) AS n FROM clicks GROUP BY campaign, id "
            "HAVING count(*) > 1 QUALIFY rank() OVER (PARTITION BY campaign ORDER BY n) = 1",
            "clicks OW[campaign]",
        ),
        (
            "SELECT id, sum(count(*)) OVER () AS n FROM clicks GROUP BY id",
            "clicks OW[*]",
        ),
        (
            "SELECT id, (SELECT count(*) FROM reqs r WHERE r.id = c.id) AS n FROM clicks c",
            "clicks OW[id]; reqs OW[id]",
        ),
        (
            "SELECT id FROM clicks c WHERE nn > (SELECT max(nid) FROM reqs r WHERE c.id = r.id)",
            "clicks OW[id]; reqs OW[id]",
        ),
        ("SELECT id FROM clicks WHERE v > (SELECT max(id) FROM dim)", "clicks CR"),
        (
            "SELECT id FROM clicks c WHERE v > (SELECT max(id) FROM reqs r WHERE r.id < c.id)",
            "clicks OW[campaign,d,nn,tags,ts,v,window]; reqs OW[campaign,d,nn,tags,ts,v,window]",
        ),
        ("SELECT id, t FROM clicks, LATERAL explode(tags) AS x(t)", "clicks CR"),
        (
            "SELECT c.id, x.who FROM clicks c, "
            "LATERAL (SELECT who FROM reqs r WHERE r.id = c.id) x",
            "clicks CW; reqs CW",
        ),
        (
            "SELECT c.id FROM clicks c, "
            "LATERAL (SELECT count(*) n FROM reqs r WHERE r.id = c.id) x",
            "clicks OW[id]; reqs OW[id]",
        ),
        (
            "SELECT c.id FROM clicks c, LATERAL (SELECT count(*) n FROM reqs r WHERE r.id = c.id)",
            "clicks OW[id]; reqs OW[id]",
        ),
        ("SELECT id, x FROM clicks LEFT JOIN LATERAL (SELECT v + 1 AS x WHERE v > 2)", "clicks CR"),
        ("SELECT x, count(*) FROM clicks, LATERAL (SELECT id) AS l(x) GROUP BY x", "clicks OW[id]"),
        (
            "SELECT c.id, x FROM clicks c, "
            "LATERAL (SELECT who AS x FROM reqs r WHERE r.id = c.id ORDER BY who LIMIT 1)",
            "clicks CW; reqs OW[id] sequence",
        ),
        (
            "SELECT * FROM (SELECT id, campaign, v FROM clicks) "
            "PIVOT (sum(v) FOR campaign IN (1, 2))",
            "clicks OW[id]",
        ),
        ("SELECT * FROM (SELECT id, v, nn FROM clicks) UNPIVOT (x FOR n IN (v, nn))", "clicks CR"),
        ("TABLE clicks", "clicks CR"),
        ("SELECT id FROM (TABLE clicks) LIMIT ALL", "clicks CR"),
        ("SELECT id FROM clicks LIMIT ALL OFFSET 2", "clicks OW[*] sequence"),
        (
            "SELECT id FROM clicks c WHERE EXISTS (SELECT 1 FROM reqs r WHERE r.id = c.id "
            "ORDER BY r.id LIMIT 1)",
            "clicks CW; reqs CW",
        ),
        (
            "SELECT id FROM clicks c WHERE EXISTS (SELECT 1 FROM reqs r WHERE r.id = c.id LIMIT 0)",
            "clicks OW[*]; reqs OW[*]",
        ),
        # Only rows with a partner are used.
        (
            "SELECT c.id, r.id AS i FROM clicks c LEFT JOIN reqs r ON c.id = r.id "
            "WHERE r.id IS NOT NULL",
            "clicks CW; reqs CW",
        ),
        (
            "SELECT c.id, r.id AS i FROM clicks c LEFT JOIN reqs r ON c.id = r.id "
            "WHERE r.id IS NOT NULL OR c.v > 1",
            "clicks OW[id]; reqs OW[id]",
        ),
        (
            "SELECT id, count(*) AS n FROM clicks c WHERE NOT EXISTS "
            "(SELECT 1 FROM reqs r WHERE r.id = c.id) GROUP BY id",
            "clicks OW[id]; reqs OW[id]",
        ),
        (
            "SELECT v, count(*) AS n FROM clicks c WHERE NOT EXISTS "
            "(SELECT 1 FROM reqs r WHERE r.id = c.id) GROUP BY v",
            "clicks OW[*]; reqs OW[*]",
        ),
        # Groups lie in partitions of id, and meet rows of other ones.
        (
            "SELECT a.id, g.n FROM clicks a "
            "JOIN (SELECT id, count(*) AS n FROM clicks GROUP BY id) g ON a.v = g.id",
            "clicks OW[*]",
        ),
        ("SELECT id FROM clicks WHERE", "clicks OW[*]"),
        (
            "SELECT id, count(*) FROM (SELECT id FROM clicks UNION ALL "
            "SELECT campaign FROM clicks) GROUP BY id",
            "clicks OW[*]",
        ),
    ],
)
def test_a_construct_gives_its_annotation(sql: str, expected: str) -> None:
    assert labels(sql) == expected


WINDOWED = (
    "SELECT window(ts, '1 hour') w, id, count(*) n FROM clicks WATERMARK ts DELAY OF "
    "INTERVAL 10 SECONDS GROUP BY window(ts, '1 hour'), id"
)


def test_a_watermark_is_a_seal_only_under_a_promise_and_in_append_mode() -> None:
    promise = {"clicks": 10.0}
    assert labels(WINDOWED, output_mode="append") == "clicks OW[id]"
    assert labels(WINDOWED, output_mode="update", lateness=promise) == "clicks OW[id]"
    assert labels(WINDOWED, output_mode="append", lateness={"clicks": 11.0}) == "clicks OW[id]"
    found = derived(WINDOWED, output_mode="append", lateness=promise)
    assert str(found.paths["clicks"].annotation) == "CW"
    assert "10 seconds" in found.assumptions[0].text


def test_a_stream_that_repeats_records_must_not_be_counted() -> None:
    again = {"alerts": Input({"card": "INT"}, repeats="alerts come again")}
    counted = annotate(read("SELECT count(*) FROM alerts", inputs=again).plan)
    assert str(counted.paths["alerts"].annotation) == "OW[*]"
    distinct = annotate(read("SELECT DISTINCT card FROM alerts", inputs=again).plan)
    assert str(distinct.paths["alerts"].annotation) == "CW"


QUESTION = {"request": "BIGINT", "id": "INT", "campaign": "INT", "window": "INT"}


@pytest.mark.parametrize(
    ("on", "having", "request_label"),
    [
        ("q.id = c.id", "> 1000", "CR"),
        ("q.id = c.id", "< 100", "OR[id]"),
        ("q.id = c.id AND q.`window` = c.`window`", "< 100", "OR[id,window]"),
        ("q.id = c.id AND q.campaign = c.campaign", "< 100", "OR[campaign,id]"),
    ],
)
def test_the_queries_of_the_ad_network_give_the_annotations_of_the_paper(
    on: str, having: str, request_label: str
) -> None:
    inputs = {"request": Input(QUESTION, role=Role.REQUEST), "click": INPUTS["clicks"]}
    sql = (
        f"SELECT q.request, q.id, q.campaign, q.`window` FROM request q JOIN click c ON {on} "
        f"GROUP BY q.request, q.id, q.campaign, q.`window` HAVING count(*) {having}"
    )
    found = annotate(read(sql, inputs=inputs).plan)
    assert str(found.paths["request"].annotation) == request_label
    assert str(found.paths["click"].annotation) == "CW"


@pytest.mark.parametrize(
    ("answer", "clicks"),
    [
        ("lag(c.v) OVER (PARTITION BY q.id ORDER BY c.id) AS n", "OW[*]"),
        ("rank() OVER (PARTITION BY q.id ORDER BY c.v) AS n", "CW"),
    ],
)
def test_what_depends_on_the_order_of_kept_rows_makes_their_path_order_sensitive(
    answer: str, clicks: str
) -> None:
    inputs = {"request": Input(QUESTION, role=Role.REQUEST), "click": INPUTS["clicks"]}
    sql = f"SELECT q.request, {answer} FROM request q JOIN click c ON q.id = c.id"
    found = annotate(read(sql, inputs=inputs).plan)
    assert str(found.paths["request"].annotation) == "OR[*]"
    assert str(found.paths["click"].annotation) == clicks


@pytest.mark.parametrize("sides", ["request q FULL JOIN click c", "click c FULL JOIN request q"])
def test_rows_that_no_request_asks_for_depend_on_all_requests(sides: str) -> None:
    inputs = {"request": Input(QUESTION, role=Role.REQUEST), "click": INPUTS["clicks"]}
    found = annotate(read(f"SELECT c.v FROM {sides} ON q.id = c.id", inputs=inputs).plan)
    assert str(found.paths["request"].annotation) == "OR[*]"


def test_a_group_of_kept_rows_is_the_partition_of_what_depends_on_their_order() -> None:
    inputs = {"request": Input(QUESTION, role=Role.REQUEST), "click": INPUTS["clicks"]}
    sql = (
        "SELECT q.request, q.id, collect_list(c.v) AS vs FROM request q JOIN click c "
        "ON q.id = c.id GROUP BY q.request, q.id"
    )
    found = annotate(read(sql, inputs=inputs).plan)
    assert str(found.paths["click"].annotation) == "OW[id]"


def test_evidence_stands_at_its_line_of_a_folded_scalar() -> None:
    file = "sql: >-\n  SELECT id,\n    count(*) AS n\n  FROM clicks GROUP BY id\n"
    sql = "SELECT id,\n  count(*) AS n\nFROM clicks GROUP BY id"
    query = read(sql, inputs=INPUTS, place=placer(sql, file, Position("a.yaml", 1, 6)))
    evidence = annotate(query.plan).paths["clicks"].evidence
    assert "a.yaml:3:5" in {str(each.position) for each in evidence}


COLUMNS = st.sampled_from(["id", "campaign", "v", "d", "ts", "tags", "nn", "nowhere"])
CALLS = st.sampled_from(
    [
        "{}",
        "{} + 1",
        "upper({})",
        "mine({})",
        "rand()",
        "count({})",
        "sum({})",
        "first({})",
        "max({})",
        "collect_set({})",
        "rank() OVER (PARTITION BY {} ORDER BY id)",
        "explode({})",
    ]
)
ITEMS = st.builds(lambda call, column: call.replace("{}", column), CALLS, COLUMNS)
TAILS = st.lists(
    st.sampled_from(
        [
            "JOIN reqs r ON r.id = c.id",
            "LEFT JOIN reqs r ON r.id = c.id",
            "WHERE v > 3",
            "WHERE id NOT IN (SELECT id FROM reqs)",
            "GROUP BY id",
            "GROUP BY ALL",
            "LIMIT 3",
            "HAVING count(*) > 3",
            "ORDER BY id",
            "QUALIFY 1",
            ")",
            "WHERE (",
            "UNION SELECT 1",
        ]
    ),
    max_size=3,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ITEMS, min_size=1, max_size=3), TAILS)
def test_no_text_stops_the_pass(items: list[str], tails: list[str]) -> None:
    sql = " ".join([f"SELECT {', '.join(items)} FROM clicks c", *tails])
    found = derived(sql)
    assert "clicks" in found.paths


MONOTONE = st.sampled_from(
    [
        "SELECT id, campaign, v FROM clicks",
        "SELECT DISTINCT id, campaign, v FROM clicks",
        "SELECT c.id, campaign, v FROM clicks c JOIN reqs r ON c.id = r.id",
        "SELECT id, campaign, v FROM clicks WHERE v > 3",
    ]
)
ORDERED = st.sampled_from(
    [
        "SELECT id, count(*) FROM ({}) GROUP BY id",
        "SELECT * FROM ({}) LIMIT 3",
        "SELECT id FROM ({}) EXCEPT SELECT id FROM reqs",
        "SELECT first(v) FROM ({})",
    ]
)


@given(MONOTONE, ORDERED)
def test_an_order_sensitive_operator_never_weakens_the_annotation(inner: str, outer: str) -> None:
    before = derived(inner).paths["clicks"].annotation.kind
    after = derived(outer.replace("{}", inner)).paths["clicks"].annotation.kind
    assert before.confluent
    assert after > before
    assert not after.confluent


TYPED = {
    "r": Input(
        {"k": "STRING", "n": "BIGINT", "m": "INT", "d": "DOUBLE", "t": "TIMESTAMP", "dt": "DATE"}
        | {"z": "TIMESTAMP_NTZ"}
    )
}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k FROM r WHERE dt = DATE'today'",
        "SELECT k FROM r WHERE dt = CAST('Tomorrow UTC' AS DATE)",
        "SELECT k FROM r WHERE dt = to_date('now')",
        "SELECT k FROM r WHERE dt > date(concat('to', 'day'))",
        "SELECT k, row_number() OVER (PARTITION BY k ORDER BY CAST('now' AS TIMESTAMP)) FROM r",
        "SELECT k FROM r ORDER BY rand() LIMIT 3",
        "SELECT k FROM r ORDER BY t > TIMESTAMP'yesterday', k LIMIT 3",
    ],
)
def test_what_reads_the_clock_is_left_to_chance(sql: str) -> None:
    found = annotate(read(sql, inputs=TYPED).plan)
    assert found.paths["r"].nondeterministic is not None


@pytest.mark.parametrize(
    ("key", "gate"),
    [
        ("hex(n)", {"n"}),
        ("hex(d)", set()),
        ("date_add(dt, 3)", {"dt"}),
        ("date_add(dt, m)", set()),
        ("date_add(t, 3)", set()),
        ("unix_micros(t)", {"t"}),
        ("unix_micros(z)", set()),
        # Of texts that are no UTF-8, different ones give the same.
        ("reverse(k)", set()),
        ("url_encode(k)", set()),
        ("reverse(d)", set()),
        ("date_from_unix_date(n)", set()),
        ("struct(k, m)", {"k", "m"}),
        ("array(m, d)", set()),
    ],
)
def test_a_key_is_distinct_only_where_its_function_keeps_it_so(key: str, gate: set[str]) -> None:
    sql = f"SELECT {key} AS g, count(*) AS c FROM r GROUP BY {key}"
    found = annotate(read(sql, inputs=TYPED).plan).paths["r"].gate
    assert found is not None
    assert (found.attributes or frozenset()) == gate


@pytest.mark.parametrize("call", ["bit_or(n) > 0", "bit_and(n) < 0", "bit_or(n) >= 8"])
def test_bits_of_negative_numbers_are_no_threshold(call: str) -> None:
    sql = f"SELECT k FROM r GROUP BY k HAVING {call}"
    assert not annotate(read(sql, inputs=TYPED).plan).paths["r"].annotation.kind.confluent


@pytest.mark.parametrize(("column", "within"), [("n", Within.SEQUENCE), ("m", Within.SEQUENCE)])
def test_an_average_of_integers_adds_doubles(column: str, within: Within) -> None:
    found = annotate(read(f"SELECT k, avg({column}) AS a FROM r GROUP BY k", inputs=TYPED).plan)
    assert found.paths["r"].within is within

"""The constructs of Structured Streaming whose derived labels are put to the test on real Spark.

One entry is one small computation over the streams `clicks` and `answers` (and the table `ads`),
with the annotation that must be derived for it, and how it is run. `observe.py` runs all of them
on Spark under permuted arrivals and writes what it saw; `docs/reference/constructs.md` is made of
both. Beside the expression in Python stands the same computation in SQL where SQL can say it.
"""

# ruff: noqa: E501 - a computation reads best on one line

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

CLICKS: Final = {
    "id": "BIGINT",
    "campaign": "STRING",
    "ts": "TIMESTAMP",
    "v": "DOUBLE",
    "n": "BIGINT",
    "price": "DECIMAL(9,2)",
    "tags": "ARRAY<STRING>",
    "j": "STRING",
}
ANSWERS: Final = {"id": "BIGINT", "rts": "TIMESTAMP", "who": "STRING"}
ADS: Final = {"id": "BIGINT", "title": "STRING"}
SCHEMAS: Final = {"clicks": CLICKS, "answers": ANSWERS, "ads": ADS}
STATIC: Final = frozenset({"ads"})
PROMISE: Final = "10 minutes"
"""The lateness that entries with `promise` are derived and run under."""

STREAM: Final = "stream"
"""Spark's own streaming engine and state."""
REPLAY: Final = "replay"
"""The computation over everything that has arrived, after each batch: what a continuous query
means where Spark's streaming engine refuses it."""


@dataclass(frozen=True, kw_only=True)
class Construct:
    """One computation, the label it must get, and how it is run."""

    name: str
    python: str
    """An expression over the DataFrames `clicks`, `answers`, `ads` and the functions `F`."""
    label: str
    """The annotation of the path from `clicks`, with `within: sequence` as ` sequence` after it
    and nondeterminism as ` nondeterministic`."""
    other: str | None = None
    """The annotation of the path from `answers`, where there is one."""
    sql: str | None = None
    mode: str = "append"
    engine: str = STREAM
    data: str = "mixed"
    """The records that arrive, a key of `arrivals.DATA`."""
    partition: str | None = None
    """What a gate partition is, in terms of the records, where the gate is no column of them."""
    promise: bool = False
    """True where the sources promise that no record is later than `PROMISE`."""
    group: str = ""
    imprecise: str = ""
    """What the label says worse than it is, and why; empty where it is exact."""


def _group(title: str, *entries: Construct) -> tuple[Construct, ...]:
    return tuple(replace(entry, group=title) for entry in entries)


RECORDWISE: Final = _group(
    "Record by record",
    Construct(name="select", python="clicks.select('id', 'campaign')", label="CR",
         sql="SELECT id, campaign FROM clicks"),
    Construct(name="filter", python="clicks.where('n > 0').select('id', 'n')", label="CR",
         sql="SELECT id, n FROM clicks WHERE n > 0"),
    Construct(name="rename", python="clicks.withColumnRenamed('id', 'ad').select('ad', 'campaign')",
         label="CR", sql="SELECT id AS ad, campaign FROM clicks"),
    Construct(name="drop", python="clicks.drop('v', 'j', 'tags', 'ts')", label="CR",
         sql="SELECT id, campaign, n, price FROM clicks"),
    Construct(name="with-column", python="clicks.withColumn('twice', F.col('n') * 2).select('id', 'twice')",
         label="CR", sql="SELECT id, n * 2 AS twice FROM clicks"),
    Construct(name="cast", python="clicks.select(F.col('id').cast('string').alias('id'), 'n')",
         label="CR", sql="SELECT CAST(id AS STRING) AS id, n FROM clicks"),
    Construct(name="case", python="clicks.select('id', F.when(F.col('n') > 1, 'many').otherwise('few').alias('size'))",
         label="CR",
         sql="SELECT id, CASE WHEN n > 1 THEN 'many' ELSE 'few' END AS size FROM clicks"),
    Construct(name="explode", python="clicks.select('id', F.explode('tags').alias('tag'))", label="CR",
         sql="SELECT id, explode(tags) AS tag FROM clicks"),
    Construct(name="from-json", python="clicks.select('id', F.from_json('j', 'a BIGINT, b STRING').alias('r')).select('id', 'r.*')",
         label="CR"),
    Construct(name="selectExpr", python="clicks.selectExpr('id', 'upper(campaign) AS c', 'coalesce(n, 0) AS n')",
         label="CR", sql="SELECT id, upper(campaign) AS c, coalesce(n, 0) AS n FROM clicks"),
    Construct(name="na-fill", python="clicks.select('id', 'n').na.fill(0)", label="CR",
         sql="SELECT coalesce(id, 0) AS id, coalesce(n, 0) AS n FROM clicks"),
    Construct(name="na-drop", python="clicks.select('id', 'n').na.drop()", label="CR",
         sql="SELECT id, n FROM clicks WHERE id IS NOT NULL AND n IS NOT NULL"),
    Construct(name="higher-order", python="clicks.select('id', F.transform('tags', lambda t: F.upper(t)).alias('up'))",
         label="CR"),
    Construct(name="union", python="clicks.select('id').union(answers.select('id'))", label="CR",
         other="CR", sql="SELECT id FROM clicks UNION ALL SELECT id FROM answers"),
    Construct(name="union-by-name", python="clicks.select('id', 'campaign').unionByName(answers.select(F.col('who').alias('campaign'), 'id'))",
         label="CR", other="CR"),
    Construct(name="repartition", python="clicks.repartition(3, 'id').select('id', 'n')", label="CR"),
    Construct(name="watermark-alone", python="clicks.withWatermark('ts', '0 seconds').select('id', 'ts')",
         label="CR"),
    Construct(name="static-join", python="clicks.join(ads, 'id').select('id', 'n', 'title')", label="CR",
         sql="SELECT c.id, c.n, a.title FROM clicks c JOIN ads a ON c.id = a.id"),
    Construct(name="static-left-join", python="clicks.join(ads, 'id', 'left').select('id', 'n', 'title')",
         label="CR",
         sql="SELECT c.id, c.n, a.title FROM clicks c LEFT JOIN ads a ON c.id = a.id"),
    Construct(name="static-anti-join", python="clicks.join(ads, 'id', 'left_anti').select('id', 'n')",
         label="CR",
         sql="SELECT c.id, c.n FROM clicks c LEFT ANTI JOIN ads a ON c.id = a.id"),
)  # fmt: skip

SETS: Final = _group(
    "Sets",
    Construct(name="distinct", python="clicks.select('id').distinct()", label="CW",
         sql="SELECT DISTINCT id FROM clicks"),
    Construct(name="dedup-all", python="clicks.select('id', 'campaign').dropDuplicates()", label="CW",
         sql="SELECT DISTINCT id, campaign FROM clicks"),
    Construct(name="dedup-key-only", python="clicks.dropDuplicates(['id']).select('id')", label="CW"),
    Construct(name="dedup-keeps-columns", python="clicks.dropDuplicates(['id']).select('id', 'n')",
         label="OW[id] sequence"),
    Construct(name="dedup-within-watermark", python="clicks.withWatermark('ts', '0 seconds').select('id', 'ts').dropDuplicatesWithinWatermark(['id']).select('id')",
         label="OW[*]", data="timed",
         imprecise="as a set, here the result was always the same; only how often a row comes varied"),
    Construct(name="dedup-within-watermark-columns", python="clicks.withWatermark('ts', '0 seconds').dropDuplicatesWithinWatermark(['id']).select('id', 'n')",
         label="OW[*]", data="timed"),
    Construct(name="dedup-after-watermark", python="clicks.withWatermark('ts', '0 seconds').dropDuplicates(['id', 'ts']).select('id', 'ts')",
         label="OW[id,ts]", data="timed",
         imprecise="late duplicates only; but a late first record is lost"),
    Construct(name="union-distinct", python="clicks.select('id').union(answers.select('id')).distinct()",
         label="CW", other="CW", sql="SELECT id FROM clicks UNION SELECT id FROM answers"),
    Construct(name="intersect", python="clicks.select('id').intersect(answers.select('id'))", label="CW",
         other="CW", sql="SELECT id FROM clicks INTERSECT SELECT id FROM answers", engine=REPLAY),
    Construct(name="except", python="clicks.select('id').subtract(answers.select('id'))",
         label="OW[id]", other="OW[id]", sql="SELECT id FROM clicks EXCEPT SELECT id FROM answers",
         engine=REPLAY),
    Construct(name="except-all", python="clicks.select('id').exceptAll(answers.select('id'))",
         label="OW[id]", other="OW[id]",
         sql="SELECT id FROM clicks EXCEPT ALL SELECT id FROM answers", engine=REPLAY,
         imprecise="as a set, here the result was always the same; only how often a row comes varied"),
)  # fmt: skip

AGGREGATES: Final = _group(
    "Aggregates whose value is put out",
    Construct(name="count", python="clicks.groupBy('id').count()", label="OW[id]", mode="update",
         sql="SELECT id, COUNT(*) AS count FROM clicks GROUP BY id"),
    Construct(name="count-complete", python="clicks.groupBy('id').count()", label="OW[id]",
         mode="complete", imprecise="the table converges; its intermediate contents do not",
         sql="SELECT id, COUNT(*) AS count FROM clicks GROUP BY id"),
    Construct(name="count-two-keys", python="clicks.groupBy('id', 'campaign').count()",
         label="OW[campaign,id]", mode="update",
         sql="SELECT id, campaign, COUNT(*) AS count FROM clicks GROUP BY id, campaign"),
    Construct(name="sum-integers", python="clicks.groupBy('id').agg(F.sum('n').alias('s'))",
         label="OW[id]", mode="update", sql="SELECT id, SUM(n) AS s FROM clicks GROUP BY id"),
    Construct(name="sum-decimals", python="clicks.groupBy('id').agg(F.sum('price').alias('s'))",
         label="OW[id]", mode="update", sql="SELECT id, SUM(price) AS s FROM clicks GROUP BY id"),
    Construct(name="sum-doubles", python="clicks.groupBy('id').agg(F.sum('v').alias('s'))",
         label="OW[id] sequence", mode="update", data="doubles",
         sql="SELECT id, SUM(v) AS s FROM clicks GROUP BY id"),
    Construct(name="avg-integers", python="clicks.groupBy('id').agg(F.avg('n').alias('a'))",
         label="OW[id] sequence", mode="update",
         sql="SELECT id, AVG(n) AS a FROM clicks GROUP BY id",
         imprecise="Spark adds integers as doubles: exact up to 2^53, and dependent on the order above"),
    Construct(name="avg-doubles", python="clicks.groupBy('id').agg(F.avg('v').alias('a'))",
         label="OW[id] sequence", mode="update", data="doubles",
         sql="SELECT id, AVG(v) AS a FROM clicks GROUP BY id"),
    Construct(name="stddev", python="clicks.groupBy('id').agg(F.stddev('n').alias('d'))",
         label="OW[id] sequence", mode="update", data="doubles",
         sql="SELECT id, STDDEV(n) AS d FROM clicks GROUP BY id"),
    Construct(name="min-max", python="clicks.groupBy('id').agg(F.min('n').alias('lo'), F.max('n').alias('hi'))",
         label="OW[id]", mode="update",
         sql="SELECT id, MIN(n) AS lo, MAX(n) AS hi FROM clicks GROUP BY id"),
    Construct(name="count-if", python="clicks.groupBy('id').agg(F.count_if(F.col('n') > 0).alias('k'))",
         label="OW[id]", mode="update",
         sql="SELECT id, COUNT_IF(n > 0) AS k FROM clicks GROUP BY id"),
    Construct(name="bool-or", python="clicks.groupBy('id').agg(F.bool_or(F.col('n') > 2).alias('any'))",
         label="OW[id]", mode="update",
         sql="SELECT id, BOOL_OR(n > 2) AS any FROM clicks GROUP BY id"),
    Construct(name="approx-count-distinct", python="clicks.groupBy('id').agg(F.approx_count_distinct('n').alias('d'))",
         label="OW[id]", mode="update",
         sql="SELECT id, APPROX_COUNT_DISTINCT(n) AS d FROM clicks GROUP BY id"),
    Construct(name="count-distinct", python="clicks.groupBy('id').agg(F.count_distinct('n').alias('d'))",
         label="OW[id]", engine=REPLAY,
         sql="SELECT id, COUNT(DISTINCT n) AS d FROM clicks GROUP BY id"),
    Construct(name="global-count", python="clicks.groupBy().count()", label="OW[*]", mode="update",
         sql="SELECT COUNT(*) AS count FROM clicks"),
    Construct(name="count-by-expression", python="clicks.groupBy(F.upper('campaign').alias('c')).count()",
         label="OW[*]", mode="update",
         sql="SELECT upper(campaign) AS c, COUNT(*) AS count FROM clicks GROUP BY upper(campaign)",
         imprecise="a seal on the upper-case name would do; one on campaign would not, as two may share it"),
    Construct(name="count-by-distinct-expression", python="clicks.groupBy(F.hex('campaign').alias('c'), (F.col('id') + 1).alias('next')).count()",
         label="OW[campaign,id]", mode="update",
         sql="SELECT hex(campaign) AS c, id + 1 AS next, COUNT(*) AS count FROM clicks GROUP BY hex(campaign), id + 1"),
    Construct(name="count-by-key-and-expression", python="clicks.groupBy('id', F.upper('campaign').alias('c')).count()",
         label="OW[id]", mode="update",
         sql="SELECT id, upper(campaign) AS c, COUNT(*) AS count FROM clicks GROUP BY id, upper(campaign)",
         imprecise="the gate could have the upper-case name too"),
    Construct(name="first", python="clicks.groupBy('id').agg(F.first('n').alias('f'))",
         label="OW[id] sequence", mode="update",
         sql="SELECT id, FIRST(n) AS f FROM clicks GROUP BY id"),
    Construct(name="last", python="clicks.groupBy('id').agg(F.last('n').alias('f'))",
         label="OW[id] sequence", mode="update",
         sql="SELECT id, LAST(n) AS f FROM clicks GROUP BY id"),
    Construct(name="collect-list", python="clicks.groupBy('id').agg(F.collect_list('n').alias('l'))",
         label="OW[id] sequence", mode="update",
         sql="SELECT id, COLLECT_LIST(n) AS l FROM clicks GROUP BY id"),
    Construct(name="collect-set", python="clicks.groupBy('id').agg(F.collect_set('n').alias('l'))",
         label="OW[id] sequence", mode="update",
         sql="SELECT id, COLLECT_SET(n) AS l FROM clicks GROUP BY id"),
    Construct(name="sorted-list", python="clicks.groupBy('id').agg(F.sort_array(F.collect_list('n')).alias('l'))",
         label="OW[id]", mode="update",
         sql="SELECT id, SORT_ARRAY(COLLECT_LIST(n)) AS l FROM clicks GROUP BY id"),
    Construct(name="max-by", python="clicks.groupBy('id').agg(F.max_by('n', 'campaign').alias('m'))",
         label="OW[id] sequence", mode="update", data="ties",
         sql="SELECT id, MAX_BY(n, campaign) AS m FROM clicks GROUP BY id"),
    Construct(name="mode", python="clicks.groupBy('id').agg(F.mode('n').alias('m'))",
         label="OW[id] sequence", engine=REPLAY, data="ties",
         sql="SELECT id, MODE(n) AS m FROM clicks GROUP BY id"),
    Construct(name="percentile-approx", python="clicks.groupBy('id').agg(F.percentile_approx('n', 0.5).alias('p'))",
         label="OW[id] sequence", mode="update",
         sql="SELECT id, PERCENTILE_APPROX(n, 0.5) AS p FROM clicks GROUP BY id",
         imprecise="order inside a partition matters only past the sketch's accuracy"),
    Construct(name="rollup", python="clicks.rollup('id').count()", label="OW[*]", mode="update",
         sql="SELECT id, COUNT(*) AS count FROM clicks GROUP BY ROLLUP (id)",
         imprecise="two gates, of which one is everything; the counts for each id could be sealed"),
    Construct(name="cube", python="clicks.cube('id', 'campaign').count()", label="OW[*]", mode="update",
         sql="SELECT id, campaign, COUNT(*) AS count FROM clicks GROUP BY CUBE (id, campaign)",
         imprecise="several gates, of which one is everything; some of the counts could be sealed"),
    Construct(name="aggregate-of-aggregate", python="clicks.groupBy('id', 'campaign').count().groupBy('id').agg(F.max('count').alias('m'))",
         label="OW[id]", engine=REPLAY,
         sql="SELECT id, MAX(k) AS m FROM (SELECT id, campaign, COUNT(*) AS k FROM clicks "
             "GROUP BY id, campaign) GROUP BY id"),
    Construct(name="group-key-only", python="clicks.groupBy('id').agg(F.count('*').alias('k')).select('id')",
         label="CW", mode="update",
         sql="SELECT id FROM (SELECT id, COUNT(*) AS k FROM clicks GROUP BY id)"),
)  # fmt: skip

THRESHOLDS: Final = _group(
    "Thresholds on aggregates",
    Construct(name="count-above", python="clicks.groupBy('id').count().where('count > 4').select('id')",
         label="CW", mode="update", sql="SELECT id FROM clicks GROUP BY id HAVING COUNT(*) > 4"),
    Construct(name="count-below", python="clicks.groupBy('id').count().where('count < 5').select('id')",
         label="OW[id]", mode="update",
         sql="SELECT id FROM clicks GROUP BY id HAVING COUNT(*) < 5"),
    Construct(name="count-between", python="clicks.groupBy('id').count().where('count between 3 and 5').select('id')",
         label="OW[id]", mode="update",
         sql="SELECT id FROM clicks GROUP BY id HAVING COUNT(*) BETWEEN 3 AND 5"),
    Construct(name="count-not-at-most", python="clicks.groupBy('id').count().where(~(F.col('count') <= 4)).select('id')",
         label="CW", mode="update",
         sql="SELECT id FROM clicks GROUP BY id HAVING NOT (COUNT(*) <= 4)"),
    Construct(name="count-above-with-value", python="clicks.groupBy('id').count().where('count > 4')",
         label="OW[id]", mode="update",
         sql="SELECT id, COUNT(*) AS count FROM clicks GROUP BY id HAVING COUNT(*) > 4"),
    Construct(name="max-above-min-below", python="clicks.groupBy('id').agg(F.max('n').alias('hi'), F.min('n').alias('lo')).where('hi > 2 AND lo < 0').select('id')",
         label="CW", mode="update",
         sql="SELECT id FROM clicks GROUP BY id HAVING MAX(n) > 2 AND MIN(n) < 0"),
    Construct(name="max-below", python="clicks.groupBy('id').agg(F.max('n').alias('hi')).where('hi < 3').select('id')",
         label="OW[id]", mode="update",
         sql="SELECT id FROM clicks GROUP BY id HAVING MAX(n) < 3"),
    Construct(name="signed-sum-above", python="clicks.groupBy('id').agg(F.sum('n').alias('s')).where('s > 4').select('id')",
         label="OW[id]", mode="update", data="signed",
         sql="SELECT id FROM clicks GROUP BY id HAVING SUM(n) > 4"),
    Construct(name="threshold-then-flag", python="clicks.groupBy('id').count().select('id', (F.col('count') > 3).alias('hot'))",
         label="OW[id]", mode="update",
         sql="SELECT id, COUNT(*) > 3 AS hot FROM clicks GROUP BY id"),
    Construct(name="threshold-then-count", python="clicks.groupBy('id').count().where('count > 2').select('id').groupBy('id').count()",
         label="OW[id]", engine=REPLAY,
         sql="SELECT id, COUNT(*) AS count FROM (SELECT id FROM clicks GROUP BY id "
             "HAVING COUNT(*) > 2) GROUP BY id",
         imprecise="the inner query puts out each id once"),
)  # fmt: skip

TIME: Final = _group(
    "Windows and watermarks",
    Construct(name="window-count-update", python="clicks.groupBy(F.window('ts', '1 minute')).count()",
         label="OW[*]", mode="update",
         sql="SELECT window(ts, '1 minute') AS w, COUNT(*) AS count FROM clicks GROUP BY window(ts, '1 minute')",
         imprecise="a seal on the minute would do; one on ts would not, as a window has many times"),
    Construct(name="window-and-key", python="clicks.groupBy('id', F.window('ts', '1 minute')).count()",
         label="OW[id]", mode="update",
         imprecise="the gate could have the minute too"),
    Construct(name="window-watermark-append", python="clicks.withWatermark('ts', '0 seconds').groupBy(F.window('ts', '1 minute')).count()",
         label="OW[*]", data="timed"),
    Construct(name="window-watermark-update", python="clicks.withWatermark('ts', '0 seconds').groupBy(F.window('ts', '1 minute')).count()",
         label="OW[*]", mode="update", data="timed"),
    Construct(name="window-promise-append", python="clicks.withWatermark('ts', '10 minutes').groupBy(F.window('ts', '1 minute')).count()",
         label="CW", data="timed", promise=True),
    Construct(name="window-promise-update", python="clicks.withWatermark('ts', '10 minutes').groupBy(F.window('ts', '1 minute')).count()",
         label="OW[*]", mode="update", data="timed", promise=True,
         imprecise="the last value of each window is the same; those on the way are not"),
    Construct(name="sliding-window-promise", python="clicks.withWatermark('ts', '10 minutes').groupBy(F.window('ts', '2 minutes', '1 minute')).count()",
         label="CW", data="timed", promise=True),
    Construct(name="session-window-promise", python="clicks.withWatermark('ts', '10 minutes').groupBy('id', F.session_window('ts', '1 minute')).count()",
         label="CW", data="timed", promise=True),
)  # fmt: skip

JOINS: Final = _group(
    "Joins of two streams",
    Construct(name="inner-join", python="clicks.join(answers, 'id').select('id', 'n', 'who')",
         label="CW", other="CW",
         sql="SELECT c.id, c.n, a.who FROM clicks c JOIN answers a ON c.id = a.id"),
    Construct(name="inner-join-range", python="clicks.alias('c').join(answers.alias('a'), F.expr('c.id = a.id AND a.rts >= c.ts')).select('c.id', 'a.who')",
         label="CW", other="CW",
         sql="SELECT c.id, a.who FROM clicks c JOIN answers a ON c.id = a.id AND a.rts >= c.ts"),
    Construct(name="inner-join-watermarks", python="clicks.withWatermark('ts', '0 seconds').alias('c').join(answers.withWatermark('rts', '0 seconds').alias('a'), F.expr('c.id = a.id AND a.rts BETWEEN c.ts - INTERVAL 10 SECONDS AND c.ts + INTERVAL 10 SECONDS')).select('c.id', 'a.who')",
         label="OW[id]", other="OW[id]", data="timed"),
    Construct(name="self-join", python="clicks.select('id', 'n').join(clicks.select('id', F.col('campaign').alias('c')), 'id')",
         label="CW",
         sql="SELECT l.id, l.n, r.campaign AS c FROM clicks l JOIN clicks r ON l.id = r.id"),
    Construct(name="left-outer-join", python="clicks.withWatermark('ts', '10 minutes').alias('c').join(answers.withWatermark('rts', '10 minutes').alias('a'), F.expr('c.id = a.id AND a.rts BETWEEN c.ts - INTERVAL 10 SECONDS AND c.ts + INTERVAL 10 SECONDS'), 'left').select('c.id', 'c.n', 'a.who')",
         label="OW[id]", other="OW[id]", data="timed", promise=True,
         imprecise="in append mode Spark waits for the watermark, which the promise makes safe"),
    Construct(name="left-outer-join-replay", python="clicks.join(answers, 'id', 'left').select('id', 'n', 'who')",
         label="OW[id]", other="OW[id]", engine=REPLAY,
         sql="SELECT c.id, c.n, a.who FROM clicks c LEFT JOIN answers a ON c.id = a.id"),
    Construct(name="full-outer-join-replay", python="clicks.join(answers, 'id', 'full').select('id', 'n', 'who')",
         label="OW[id]", other="OW[id]", engine=REPLAY,
         sql="SELECT coalesce(c.id, a.id) AS id, c.n, a.who FROM clicks c FULL JOIN answers a "
             "ON c.id = a.id"),
    Construct(name="semi-join", python="clicks.join(answers, 'id', 'left_semi').select('id', 'n')",
         label="CW", other="CW", engine=REPLAY,
         sql="SELECT c.id, c.n FROM clicks c LEFT SEMI JOIN answers a ON c.id = a.id"),
    Construct(name="anti-join", python="clicks.join(answers, 'id', 'left_anti').select('id', 'n')",
         label="OW[id]", other="OW[id]", engine=REPLAY,
         sql="SELECT c.id, c.n FROM clicks c LEFT ANTI JOIN answers a ON c.id = a.id"),
    Construct(name="not-exists", python="spark.sql('SELECT id, n FROM {clicks} c WHERE NOT EXISTS (SELECT 1 FROM {answers} a WHERE a.id = c.id)', clicks=clicks, answers=answers)",
         label="OW[id]", other="OW[id]", engine=REPLAY,
         sql="SELECT id, n FROM clicks c WHERE NOT EXISTS (SELECT 1 FROM answers a WHERE a.id = c.id)"),
    Construct(name="not-in-nullable", python="spark.sql('SELECT id, n FROM {clicks} WHERE id NOT IN (SELECT id FROM {answers})', clicks=clicks, answers=answers)",
         label="OW[*]", other="OW[*]", engine=REPLAY, data="nulls",
         sql="SELECT id, n FROM clicks WHERE id NOT IN (SELECT id FROM answers)"),
    Construct(name="in", python="spark.sql('SELECT id, n FROM {clicks} WHERE id IN (SELECT id FROM {answers})', clicks=clicks, answers=answers)",
         label="CW", other="CW", engine=REPLAY,
         sql="SELECT id, n FROM clicks WHERE id IN (SELECT id FROM answers)"),
    Construct(name="cross-join", python="clicks.select('id').crossJoin(answers.select('who'))",
         label="CW", other="CW", engine=REPLAY,
         sql="SELECT c.id, a.who FROM clicks c CROSS JOIN answers a"),
)  # fmt: skip

ORDER: Final = _group(
    "Order, limits and ranks",
    Construct(name="limit", python="clicks.select('id', 'n').limit(4)", label="OW[*]",
         sql="SELECT id, n FROM clicks LIMIT 4"),
    Construct(name="sort-limit", python="clicks.select('id', 'n').orderBy('n', 'id').limit(3)",
         label="OW[*]", engine=REPLAY, sql="SELECT id, n FROM clicks ORDER BY n, id LIMIT 3"),
    Construct(name="sort-limit-ties", python="clicks.select('id', 'n').orderBy('n').limit(3)",
         label="OW[*]", engine=REPLAY, data="ties",
         sql="SELECT id, n FROM clicks ORDER BY n LIMIT 3"),
    Construct(name="sort", python="clicks.groupBy('id').count().orderBy('id').select('id')", label="CW",
         mode="complete", sql="SELECT id FROM clicks GROUP BY id ORDER BY id"),
    Construct(name="row-number", python="clicks.select('id', 'n', F.row_number().over(W.partitionBy('id').orderBy('n')).alias('r'))",
         label="OW[id] sequence", engine=REPLAY, data="ranks",
         sql="SELECT id, n, ROW_NUMBER() OVER (PARTITION BY id ORDER BY n) AS r FROM clicks"),
    Construct(name="row-number-top", python="clicks.select('id', 'price', F.row_number().over(W.partitionBy('id').orderBy('n')).alias('r')).where('r = 1').select('id', 'price')",
         label="OW[id] sequence", engine=REPLAY, data="ranks",
         sql="SELECT id, price FROM (SELECT id, price, ROW_NUMBER() OVER (PARTITION BY id "
             "ORDER BY n) AS r FROM clicks) WHERE r = 1"),
    Construct(name="rank", python="clicks.select('id', 'n', F.rank().over(W.partitionBy('id').orderBy('n')).alias('r'))",
         label="OW[id]", engine=REPLAY, data="ranks",
         sql="SELECT id, n, RANK() OVER (PARTITION BY id ORDER BY n) AS r FROM clicks"),
    Construct(name="lag", python="clicks.select('id', 'price', F.lag('price').over(W.partitionBy('id').orderBy('n')).alias('before'))",
         label="OW[id] sequence", engine=REPLAY, data="ranks",
         sql="SELECT id, price, LAG(price) OVER (PARTITION BY id ORDER BY n) AS before "
             "FROM clicks"),
    Construct(name="sum-over-partition", python="clicks.select('id', 'n', F.sum('n').over(W.partitionBy('id')).alias('s'))",
         label="OW[id]", engine=REPLAY, data="ranks",
         sql="SELECT id, n, SUM(n) OVER (PARTITION BY id) AS s FROM clicks"),
    Construct(name="sum-over-rows", python="clicks.select('id', 'n', F.sum('price').over(W.partitionBy('id').orderBy('n').rowsBetween(-1, 0)).alias('s'))",
         label="OW[id] sequence", engine=REPLAY, data="ranks",
         sql="SELECT id, n, SUM(price) OVER (PARTITION BY id ORDER BY n ROWS BETWEEN 1 PRECEDING "
             "AND CURRENT ROW) AS s FROM clicks"),
    Construct(name="sum-over-all-rows", python="clicks.select('id', 'n', F.sum('n').over(W.partitionBy('id').orderBy('n').rowsBetween(W.unboundedPreceding, W.unboundedFollowing)).alias('s'))",
         label="OW[id]", engine=REPLAY, data="ranks",
         sql="SELECT id, n, SUM(n) OVER (PARTITION BY id ORDER BY n ROWS BETWEEN UNBOUNDED "
             "PRECEDING AND UNBOUNDED FOLLOWING) AS s FROM clicks"),
)  # fmt: skip

OPAQUE: Final = _group(
    "Code and chance",
    Construct(name="scalar-udf", python="clicks.select('id', F.udf(lambda x: None if x is None else x + 1, 'bigint')('n').alias('m'))",
         label="CR"),
    Construct(name="nondeterministic-udf", python="clicks.select('id', F.udf(lambda x: __import__('random').random(), 'double').asNondeterministic()('n').alias('m'))",
         label="CR nondeterministic"),
    Construct(name="map-in-pandas", python="clicks.select('id').mapInPandas(lambda frames: (f.head(1) for f in frames), 'id bigint')",
         label="OR[*]",
         imprecise="what happens in the function is not read"),
    Construct(name="apply-in-pandas-with-state", python="clicks.select('id', 'n').groupBy('id').applyInPandasWithState(newest, 'id bigint, n bigint', 'n bigint', 'update', GroupStateTimeout.NoTimeout)",
         label="OW[id] sequence", mode="update"),
    Construct(name="rand", python="clicks.select('id', F.round(F.rand(5), 3).alias('x'))",
         label="CR nondeterministic", sql="SELECT id, ROUND(RAND(5), 3) AS x FROM clicks"),
    Construct(name="uuid", python="clicks.select('id', F.expr('uuid()').alias('x'))",
         label="CR nondeterministic", sql="SELECT id, uuid() AS x FROM clicks"),
    Construct(name="current-timestamp", python="clicks.select('id', F.current_timestamp().alias('x'))",
         label="CR nondeterministic", sql="SELECT id, current_timestamp() AS x FROM clicks"),
    Construct(name="rand-in-filter", python="clicks.where(F.rand() > 0.5).select('id', 'n')",
         label="CR nondeterministic", sql="SELECT id, n FROM clicks WHERE RAND() > 0.5"),
    Construct(name="sample", python="clicks.select('id', 'n').sample(0.5, 3)",
         label="CR nondeterministic", engine=REPLAY),
)  # fmt: skip


def _query(name: str, sql: str, label: str, other: str | None = None) -> Construct:
    """A query for which the expression in Python has no words of its own."""
    streams = ", ".join(f"{stream}={stream}" for stream in SCHEMAS if f"{{{stream}}}" in sql)
    python = f"spark.sql({sql!r}, {streams})"
    return Construct(name=name, python=python, label=label, other=other, engine=REPLAY)


SAID_IN_SQL: Final = _group(
    "Said in SQL",
    _query("grouping-sets", "SELECT id, campaign, COUNT(*) AS k FROM {clicks} GROUP BY GROUPING SETS ((id, campaign), (id))", "OW[id]"),
    _query("key-and-rollup", "SELECT id, campaign, COUNT(*) AS k FROM {clicks} GROUP BY id, ROLLUP (campaign)", "OW[id]"),
    _query("frame-of-values", "SELECT id, n, SUM(n) OVER (PARTITION BY id ORDER BY n RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM {clicks}", "OW[id]"),
    _query("frame-of-rows", "SELECT id, n, SUM(n) OVER (PARTITION BY id ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM {clicks}", "OW[id] sequence"),
    _query("running-count", "SELECT id, n, COUNT(*) OVER (PARTITION BY id ORDER BY n) AS s FROM {clicks}", "OW[id]"),
    _query("first-value", "SELECT id, n, FIRST_VALUE(campaign) OVER (PARTITION BY id ORDER BY n) AS f FROM {clicks}", "OW[id] sequence"),
    _query("ntile", "SELECT id, n, NTILE(2) OVER (PARTITION BY id ORDER BY n) AS t FROM {clicks}", "OW[id] sequence"),
    _query("list-over-order", "SELECT id, COLLECT_LIST(n) OVER (PARTITION BY id ORDER BY n) AS l FROM {clicks}", "OW[id] sequence"),
    _query("rank-of-counts", "SELECT id, k, RANK() OVER (PARTITION BY id ORDER BY k) AS r FROM (SELECT id, n, COUNT(*) AS k FROM {clicks} GROUP BY id, n)", "OW[id]"),
    _query("rank-over-everything", "SELECT id, n, RANK() OVER (ORDER BY n) AS r FROM {clicks}", "OW[*]"),
    _query("named-window", "SELECT id, n, SUM(n) OVER p AS s FROM {clicks} WINDOW p AS (PARTITION BY id)", "OW[id]"),
    _query("qualify-count", "SELECT id, n FROM {clicks} QUALIFY COUNT(*) OVER (PARTITION BY id) > 1", "OW[id]"),
    _query("qualify-row-number", "SELECT id, price FROM {clicks} QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY n) = 1", "OW[id] sequence"),
    _query("sliding-window", "SELECT id, window.start AS a, COUNT(*) AS k FROM {clicks} GROUP BY id, window(ts, '1 hour', '30 minutes')", "OW[id]"),
    _query("lateral-view", "SELECT id, tag FROM {clicks} LATERAL VIEW OUTER explode(tags) t AS tag", "CR"),
    _query("stack", "SELECT id, a, b FROM {clicks} LATERAL VIEW stack(2, n, campaign, id, campaign) x AS a, b", "CR"),
    _query("pivot", "SELECT * FROM (SELECT id, n, campaign FROM {clicks}) PIVOT (COUNT(n) FOR campaign IN ('a', 'b'))", "OW[id]"),
    _query("unpivot", "SELECT * FROM (SELECT campaign, id, n FROM {clicks}) UNPIVOT (x FOR c IN (id, n))", "CR"),
    _query("not-in-tied", "SELECT id FROM {clicks} c WHERE campaign NOT IN (SELECT who FROM {answers} a WHERE a.id = c.id)", "OW[id]", "OW[id]"),
    _query("in-of-pairs", "SELECT id FROM {clicks} WHERE (id, campaign) IN (SELECT id, who FROM {answers})", "CW", "CW"),
    _query("exists-or", "SELECT id FROM {clicks} c WHERE n > 1 OR EXISTS (SELECT 1 FROM {answers} a WHERE a.id = c.id)", "OW[id]", "OW[id]"),
    _query("not-exists-or", "SELECT id FROM {clicks} c WHERE n > 1 OR NOT EXISTS (SELECT 1 FROM {answers} a WHERE a.id = c.id)", "OW[id]", "OW[id]"),
    _query("scalar-max", "SELECT id, (SELECT MAX(who) FROM {answers} a WHERE a.id = c.id) AS w FROM {clicks} c", "OW[id]", "OW[id]"),
    _query("scalar-count-above", "SELECT id FROM {clicks} c WHERE (SELECT COUNT(*) FROM {answers} a WHERE a.id = c.id) >= 2", "OW[id]", "OW[id]"),
    _query("scalar-count-below", "SELECT id FROM {clicks} c WHERE (SELECT COUNT(*) FROM {answers} a WHERE a.id = c.id) < 2", "OW[id]", "OW[id]"),
    _query("scalar-of-itself", "SELECT id, n FROM {clicks} c WHERE n = (SELECT MAX(n) FROM {clicks} b WHERE b.id = c.id)", "OW[id]"),
    _query("scalar-of-everything", "SELECT id, n FROM {clicks} WHERE n = (SELECT MAX(n) FROM {clicks})", "OW[*]"),
    _query("scalar-of-a-table", "SELECT id, (SELECT MAX(title) FROM {ads} t WHERE t.id = c.id) AS title FROM {clicks} c", "CR"),
    _query("lateral-join", "SELECT c.id, l.who FROM {clicks} c, LATERAL (SELECT who FROM {answers} a WHERE a.id = c.id) l", "CW", "CW"),
    _query("lateral-aggregate", "SELECT c.id, l.w FROM {clicks} c LEFT JOIN LATERAL (SELECT MAX(who) AS w FROM {answers} a WHERE a.id = c.id) l ON true", "OW[id]", "OW[id]"),
    _query("null-safe-join", "SELECT c.id, a.who FROM {clicks} c JOIN {answers} a ON c.id <=> a.id", "CW", "CW"),
    _query("join-or", "SELECT c.id, a.who FROM {clicks} c JOIN {answers} a ON c.id = a.id OR c.campaign = a.who", "CW", "CW"),
    _query("left-join-missing", "SELECT c.id FROM {clicks} c LEFT JOIN {answers} a ON c.id = a.id WHERE a.who IS NULL", "OW[id]", "OW[id]"),
    _query("full-join-kept", "SELECT c.id, a.who FROM {clicks} c FULL JOIN {answers} a ON c.id = a.id WHERE c.id IS NOT NULL", "OW[id]", "OW[id]"),
    _query("join-own-counts", "SELECT c.id, c.n, g.k FROM {clicks} c JOIN (SELECT id, COUNT(*) AS k FROM {clicks} GROUP BY id) g ON c.id = g.id", "OW[id]"),
    _query("join-counts-of-another-column", "SELECT c.id, g.k FROM {clicks} c JOIN (SELECT n, COUNT(*) AS k FROM {clicks} GROUP BY n) g ON c.id = g.n", "OW[*]"),
    _query("intersect-all", "SELECT id FROM {clicks} INTERSECT ALL SELECT id FROM {answers}", "CW", "CW"),
    _query("group-negated", "SELECT -id AS q, COUNT(*) AS k FROM {clicks} GROUP BY -id", "OW[id]"),
    _query("group-doubled", "SELECT id * 2 AS q, COUNT(*) AS k FROM {clicks} GROUP BY id * 2", "OW[*]"),
    _query("group-cast", "SELECT CAST(id AS STRING) AS q, COUNT(*) AS k FROM {clicks} GROUP BY CAST(id AS STRING)", "OW[id]"),
    _query("group-case", "SELECT CASE WHEN id > 1 THEN id ELSE 0 END AS q, COUNT(*) AS k FROM {clicks} GROUP BY 1", "OW[*]"),
    _query("group-hash", "SELECT hash(id) AS q, COUNT(*) AS k FROM {clicks} GROUP BY hash(id)", "OW[*]"),
    _query("group-date", "SELECT CAST(ts AS DATE) AS d, COUNT(*) AS k FROM {clicks} GROUP BY CAST(ts AS DATE)", "OW[*]"),
    _query("group-structure", "SELECT struct(id, n) AS s, COUNT(*) AS k FROM {clicks} GROUP BY struct(id, n)", "OW[id,n]"),
    _query("group-double", "SELECT v, COUNT(*) AS k FROM {clicks} GROUP BY v", "OW[v]"),
    _query("distinct-collated", "SELECT DISTINCT campaign COLLATE UTF8_LCASE AS c FROM {clicks}", "OW[*]"),
    _query("filtered-count-above", "SELECT id FROM {clicks} GROUP BY id HAVING COUNT(*) FILTER (WHERE n > 1) > 1", "CW"),
    _query("negated-count-below", "SELECT id FROM {clicks} GROUP BY id HAVING -COUNT(*) < -1", "CW"),
    _query("count-as-text-above", "SELECT id FROM {clicks} GROUP BY id HAVING CAST(COUNT(*) AS STRING) > '1'", "OW[id]"),
    _query("count-modulo", "SELECT id FROM {clicks} GROUP BY id HAVING COUNT(*) % 2 > 0", "OW[id]"),
    _query("spread-above", "SELECT id FROM {clicks} GROUP BY id HAVING MAX(n) - MIN(n) > 1", "OW[id]"),
    _query("not-all", "SELECT id FROM {clicks} GROUP BY id HAVING NOT BOOL_AND(n > 0)", "CW"),
    _query("set-contains", "SELECT id FROM {clicks} GROUP BY id HAVING array_contains(COLLECT_SET(n), 1)", "CW"),
    _query("list-folded", "SELECT id, aggregate(COLLECT_LIST(n), 0L, (a, x) -> a * 2 + coalesce(x, 0)) AS f FROM {clicks} GROUP BY id", "OW[id] sequence"),
    _query("list-filtered", "SELECT id, size(filter(COLLECT_LIST(n), x -> x > 0)) AS k FROM {clicks} GROUP BY id", "OW[id] sequence"),
    _query("listagg-sorted", "SELECT id, LISTAGG(campaign, ',') WITHIN GROUP (ORDER BY campaign) AS l FROM {clicks} GROUP BY id", "OW[id]"),
    _query("sample-of-rows", "SELECT id, n FROM {clicks} TABLESAMPLE (3 ROWS)", "OW[*]"),
    _query("hint-and-first", "SELECT /*+ REPARTITION(3) */ id, FIRST(n) AS f FROM {clicks} GROUP BY id", "OW[id] sequence"),
    _query("one-partition", "SELECT n, COUNT(*) AS k FROM {clicks} WHERE id = 1 GROUP BY n", "OW[id,n]"),
)  # fmt: skip

CONSTRUCTS: Final = (
    *RECORDWISE, *SETS, *AGGREGATES, *THRESHOLDS, *TIME, *JOINS, *ORDER, *OPAQUE, *SAID_IN_SQL,
)  # fmt: skip

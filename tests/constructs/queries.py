"""Queries and expressions beside the catalogue on which Spark's analyzer is asked for its reading.

They use the streams of the catalogue, as tables. An expression stands for the query that selects
it; what it aggregates, it aggregates over everything.
"""

# ruff: noqa: E501 - a query reads best on one line

from __future__ import annotations

from typing import Final

QUERIES: Final[tuple[str, ...]] = (
    "SELECT * FROM clicks",
    "SELECT c.*, a.who FROM clicks c JOIN answers a ON c.id = a.id",
    "SELECT * FROM clicks JOIN answers USING (id)",
    "SELECT * FROM clicks NATURAL JOIN ads",
    "SELECT * FROM clicks FULL OUTER JOIN answers USING (id)",
    "SELECT a.*, c.n FROM clicks c RIGHT JOIN answers a ON c.id = a.id AND c.n > 2",
    "SELECT c.id FROM clicks c, answers a WHERE c.id = a.id",
    "SELECT c.id FROM clicks c CROSS JOIN ads",
    "SELECT c.id FROM clicks c LEFT SEMI JOIN answers a ON c.id = a.id",
    "WITH a AS (SELECT id, COUNT(*) AS k FROM clicks GROUP BY id) SELECT id FROM a WHERE k > 3",
    "WITH a AS (SELECT id FROM clicks), b AS (SELECT id FROM a) SELECT x.id FROM a x JOIN b ON x.id = b.id",
    "WITH a(k, m) AS (SELECT id, n FROM clicks) SELECT k, SUM(m) AS s FROM a GROUP BY k",
    "SELECT id, k FROM (SELECT id, COUNT(*) AS k FROM clicks GROUP BY id) WHERE k BETWEEN 2 AND 3",
    "SELECT campaign, MAX(k) AS m FROM (SELECT campaign, id, COUNT(*) AS k FROM clicks GROUP BY campaign, id) GROUP BY campaign",
    "SELECT id, COUNT(DISTINCT campaign) AS k FROM clicks GROUP BY id",
    "SELECT id, COUNT(*) FILTER (WHERE n > 1) AS k FROM clicks GROUP BY id",
    "SELECT id FROM clicks GROUP BY id HAVING COUNT(*) > 3 AND MIN(n) < 1",
    "SELECT COUNT(*) AS k, SUM(n) AS s FROM clicks",
    "SELECT id % 2 AS odd, COUNT(*) AS k FROM clicks GROUP BY id % 2",
    "SELECT id AS ad, COUNT(*) AS k FROM clicks GROUP BY 1",
    "SELECT id AS ad, COUNT(*) AS k FROM clicks GROUP BY ad",
    "SELECT id, campaign, COUNT(*) AS k FROM clicks GROUP BY ALL",
    "SELECT id, campaign, COUNT(*) AS k FROM clicks GROUP BY ROLLUP (id, campaign)",
    "SELECT id, campaign, COUNT(*) AS k FROM clicks GROUP BY CUBE (id, campaign)",
    "SELECT id, campaign, COUNT(*) AS k FROM clicks GROUP BY GROUPING SETS ((id), (campaign))",
    "SELECT DISTINCT campaign FROM clicks WHERE n IS NOT NULL",
    "SELECT id FROM clicks WHERE id IN (SELECT id FROM answers WHERE who = 'w')",
    "SELECT id FROM clicks c WHERE EXISTS (SELECT 1 FROM answers a WHERE a.id = c.id)",
    "SELECT id FROM clicks c WHERE NOT EXISTS (SELECT 1 FROM answers a WHERE a.id = c.id)",
    "SELECT id FROM clicks WHERE id NOT IN (SELECT id FROM answers WHERE id IS NOT NULL)",
    "SELECT id FROM clicks UNION ALL SELECT id FROM answers UNION ALL SELECT id FROM ads",
    "SELECT id FROM clicks UNION SELECT id FROM answers",
    "SELECT id, n FROM clicks UNION ALL SELECT id, id FROM answers",
    "SELECT id FROM clicks EXCEPT ALL SELECT id FROM answers",
    "SELECT id FROM clicks INTERSECT ALL SELECT id FROM answers",
    "SELECT id, tag FROM clicks LATERAL VIEW explode(tags) t AS tag",
    "SELECT id, at, tag FROM clicks LATERAL VIEW OUTER posexplode(tags) t AS at, tag",
    "SELECT id, posexplode(tags) AS (at, tag) FROM clicks",
    "SELECT id, n FROM clicks ORDER BY n DESC LIMIT 3",
    "SELECT id FROM clicks LIMIT 3 OFFSET 2",
    "SELECT id, ROW_NUMBER() OVER (PARTITION BY id ORDER BY ts) AS r FROM clicks",
    "SELECT id, SUM(n) OVER (PARTITION BY id ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s FROM clicks",
    "SELECT id, LAG(n, 1) OVER (PARTITION BY id ORDER BY ts) AS before, RANK() OVER (PARTITION BY id ORDER BY ts) AS r FROM clicks",
    "SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY id ORDER BY n DESC) AS r FROM clicks) WHERE r = 1",
    "SELECT window(ts, '5 minutes').start AS begin, campaign, COUNT(*) AS k FROM clicks GROUP BY window(ts, '5 minutes'), campaign",
    "SELECT window.end AS till, MAX(n) AS m FROM clicks GROUP BY window(ts, '10 minutes', '5 minutes')",
    "SELECT session_window(ts, '5 minutes') AS s, id, COUNT(*) AS k FROM clicks GROUP BY session_window(ts, '5 minutes'), id",
    "SELECT r.a AS a, r.b AS b FROM (SELECT from_json(j, 'a BIGINT, b STRING') AS r FROM clicks)",
    "SELECT id, VALUE FROM (SELECT id, named_struct('value', n) AS s FROM clicks) LATERAL VIEW explode(array(s.value)) x AS VALUE",
    "SELECT * FROM clicks TABLESAMPLE (10 PERCENT)",
    "SELECT * EXCEPT (v, j) FROM clicks",
    "SELECT id, CASE WHEN COUNT(*) > 3 THEN 'many' ELSE 'few' END AS size FROM clicks GROUP BY id",
)  # fmt: skip

EXPRESSIONS: Final[tuple[str, ...]] = (
    # numbers
    "id + 1", "id + n", "n - 1", "n * 2", "n / 2", "n % 3", "n DIV 2", "-n", "v + n", "v * price",
    "price + 1", "price * price", "price / 2", "price * n", "id + 1.5", "n + CAST(1 AS INT)",
    "CAST(n AS INT) + CAST(1 AS SMALLINT)", "abs(n)", "round(v, 2)", "round(price, 1)", "floor(v)",
    "ceil(v)", "sqrt(n)", "pow(n, 2)", "exp(v)", "ln(v)", "greatest(n, id)", "least(v, n)",
    "pmod(n, 3)", "sign(n)", "rand()", "randn(3)", "hash(id)", "xxhash64(id)", "crc32(campaign)",
    "n & 1", "n | 1", "n ^ 1", "~n", "shiftleft(n, 1)", "bit_count(n)", "try_add(n, 1)",
    # truths
    "n > 1", "n = id", "n <=> id", "n <> 1", "NOT (n > 1)", "n IS NULL", "n IN (1, 2)",
    "campaign LIKE 'a%'", "campaign RLIKE 'a'", "n BETWEEN 1 AND 2", "isnan(v)", "n > 1 AND v < 2",
    "startswith(campaign, 'a')", "contains(campaign, 'a')", "exists(tags, t -> t = 'x')",
    # texts
    "upper(campaign)", "lower(campaign)", "concat(campaign, 'x')", "campaign || 'x'",
    "concat_ws('-', campaign, j)", "substring(campaign, 1, 2)", "length(campaign)", "trim(campaign)",
    "split(campaign, ',')", "regexp_extract(campaign, '(a)', 1)", "replace(campaign, 'a', 'b')",
    "regexp_extract_all(campaign, '(a)', 1)", "regexp_replace(campaign, 'a', 'b')",
    "lpad(campaign, 3, ' ')", "initcap(campaign)", "reverse(campaign)", "instr(campaign, 'a')",
    "md5(campaign)", "sha2(campaign, 256)", "base64(CAST(campaign AS BINARY))", "hex(n)",
    "format_number(v, 2)", "uuid()", "to_json(named_struct('a', n))", "get_json_object(j, '$.a')",
    "split_part(campaign, ',', 1)", "ascii(campaign)", "levenshtein(campaign, j)", "repeat(j, 2)",
    # times
    "CAST(ts AS DATE)", "date(ts)", "to_date(campaign)", "to_timestamp(campaign)", "year(ts)",
    "hour(ts)", "date_trunc('hour', ts)", "trunc(date(ts), 'month')", "date_add(date(ts), 1)",
    "datediff(date(ts), date(ts))", "unix_timestamp(ts)", "current_timestamp()", "current_date()",
    "now()", "ts + INTERVAL 1 HOUR", "ts - INTERVAL 1 DAY", "date_format(ts, 'yyyy')",
    "from_unixtime(n)", "timestamp_seconds(n)", "dayofweek(ts)", "last_day(date(ts))",
    "add_months(date(ts), 1)", "make_date(2020, 1, 1)", "unix_millis(ts)", "extract(DAY FROM ts)",
    # structures
    "array(1, 2)", "tags[0]", "element_at(tags, 1)", "size(tags)", "array_contains(tags, 'x')",
    "sort_array(tags)", "array_distinct(tags)", "transform(tags, t -> upper(t))",
    "filter(tags, t -> t = 'x')", "array_join(tags, ',')", "map('a', n)", "map('a', n)['a']",
    "struct(id, n)", "struct(id, n).n", "named_struct('a', n, 'b', campaign)", "cardinality(tags)",
    "map_keys(map('a', n))", "map_values(map('a', n))", "array_union(tags, tags)", "slice(tags, 1, 1)",
    "aggregate(tags, 0, (a, t) -> a + 1)", "flatten(array(tags))", "array_max(tags)", "sequence(1, 3)",
    "from_json(j, 'a BIGINT').a", "shuffle(tags)", "array_remove(tags, 'x')",
    # choices
    "coalesce(n, 0)", "coalesce(campaign, 'x')", "nvl(n, 0)", "nullif(n, 0)", "if(n > 1, 'a', 'b')",
    "CASE WHEN n > 1 THEN 1 ELSE 2 END", "CASE WHEN n > 1 THEN v ELSE n END", "nvl2(n, 1, 2)",
    "CASE n WHEN 1 THEN 'a' END", "CAST(n AS DECIMAL(10, 2))", "CAST(n AS STRING)", "TRY_CAST(campaign AS INT)",
    "CAST(tags AS ARRAY<STRING>)", "NULL", "1", "1.5", "1e3", "'x'", "TRUE",
    "DATE '2020-01-01'", "TIMESTAMP '2020-01-01 00:00:00'", "5000000000", "1L", "1.5D", "1S",
)  # fmt: skip

AGGREGATED: Final[tuple[str, ...]] = (
    "COUNT(*)", "COUNT(n)", "COUNT(DISTINCT n)", "SUM(n)", "SUM(v)", "SUM(price)", "SUM(CAST(n AS INT))",
    "AVG(n)", "AVG(v)", "AVG(price)", "MIN(n)", "MAX(campaign)", "MIN(ts)", "FIRST(n)", "LAST(campaign)",
    "ANY_VALUE(n)", "COLLECT_LIST(n)", "COLLECT_SET(campaign)", "SORT_ARRAY(COLLECT_LIST(n))",
    "MAX_BY(campaign, n)", "MIN_BY(n, ts)", "MODE(campaign)", "STDDEV(v)", "VARIANCE(n)", "CORR(n, v)",
    "PERCENTILE(n, 0.5)", "PERCENTILE_APPROX(n, 0.5)", "MEDIAN(n)", "APPROX_COUNT_DISTINCT(id)",
    "BOOL_OR(n > 1)", "BOOL_AND(n > 1)", "EVERY(n > 1)", "BIT_OR(n)", "BIT_AND(n)", "BIT_XOR(n)",
    "COUNT_IF(n > 1)", "LISTAGG(campaign, ',')", "SKEWNESS(v)", "KURTOSIS(v)", "COVAR_POP(n, v)",
    "SUM(n) FILTER (WHERE n > 1)", "ARRAY_AGG(n)", "SUM(n) + 1", "SUM(n) / COUNT(*)", "TRY_SUM(n)",
    "SUM(n * 2)", "MAX(n) - MIN(n)", "MAX(struct(ts, n)).n",
)  # fmt: skip

TEXTS: Final[tuple[str, ...]] = (
    "left(campaign, 1)", "right(campaign, 1)", "ltrim(campaign)", "rtrim(campaign)", "rpad(campaign, 3)",
    "translate(campaign, 'a', 'b')", "elt(1, campaign, 'x')", "mask(campaign)", "sentences(campaign)",
    "overlay(campaign PLACING '' FROM 2)", "substring_index(campaign, ',', 1)", "format_string('%s', campaign)",
    "array_join(array(campaign), ',')", "array_sort(array(campaign))", "array_max(array(campaign))",
    "array_repeat(campaign, 2)", "array_append(array('x'), campaign)", "array_insert(array('x'), 1, campaign)",
    "arrays_zip(array(campaign))", "array_compact(array(campaign))", "array_prepend(array('x'), campaign)",
    "map_from_arrays(array(1), array(campaign))", "map_values(map(1, campaign))", "map_keys(map(campaign, 1))",
    "map_entries(map(1, campaign))", "map_concat(map(1, campaign), map(2, 'x'))", "str_to_map(campaign)",
    "struct(campaign)", "transform(array(campaign), c -> c || 'x')", "filter(array(campaign), c -> c = 'x')",
    "zip_with(array(campaign), array('x'), (a, b) -> a || b)", "reduce(array(campaign), '', (a, c) -> a || c)",
    "transform_values(map(1, campaign), (k, v) -> v)", "map_filter(map(1, campaign), (k, v) -> k > 0)",
    "flatten(array(array(campaign)))", "slice(array(campaign), 1, 1)", "try_element_at(map(1, campaign), 1)",
    "if(n > 1, campaign, 'x')", "nullif(campaign, 'x')", "nvl2(n, campaign, 'x')", "greatest(campaign, 'x')",
    "least(campaign, 'x')", "btrim(campaign)", "char(ascii(campaign))", "parse_url(campaign, 'HOST')",
    "max(struct(campaign, n)).campaign", "collect_set(campaign)", "array_agg(DISTINCT campaign)", "first(campaign)",
    "any_value(campaign)", "max_by(campaign, n)", "min(array(campaign))", "listagg(campaign)", "approx_top_k(campaign)",
    "histogram_numeric(n, 3)", "string_agg(DISTINCT campaign, ',')", "mode(campaign)", "min_by(struct(campaign), n)",
)  # fmt: skip
"""What is made of a text."""

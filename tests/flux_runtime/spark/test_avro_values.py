"""Values in Avro: read exactly or not at all, written so that they are read again as they were.

Schemas, records and damages follow from a seed, and are compared with what fastavro reads.
"""

from __future__ import annotations

import datetime
import io
import json
import random
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fastavro
import pytest
from pyspark.sql import types as st
from pyspark.sql.types import StructType
from sqlglot import exp

from annotations.diagnostics import BadInput
from annotations.file import load
from annotations.file.avro import AvroError as SchemaError
from annotations.file.avro import columns_of
from benchmarks.sink_servers import schema_registry
from flux_runtime.spark.ends.avro import (
    HEADER,
    Avro,
    AvroError,
    Decoder,
    Encoder,
    UnreadableError,
    _ask,
    _same,
    converter,
    registered,
)
from flux_runtime.spark.feed import UNREADABLE_TEXT

UTC = datetime.UTC
SPARK_TYPES = {
    "BOOLEAN": "BooleanType",
    "INT": "IntegerType",
    "BIGINT": "LongType",
    "FLOAT": "FloatType",
    "DOUBLE": "DoubleType",
    "BINARY": "BinaryType",
    "STRING": "StringType",
    "DATE": "DateType",
    "TIMESTAMP": "TimestampType",
    "TIMESTAMP_NTZ": "TimestampNTZType",
}
PLAIN = ("boolean", "int", "long", "float", "double", "bytes", "string")
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 7, "scale": 2}
LOGICAL = (
    ("int", "date"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("string", "uuid"),
)


class Schemas:
    """Schemas of records, and their records, as a seed has them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.names = 0

    def record(self, depth: int = 3) -> dict[str, Any]:
        fields = [
            {"name": f"f{n}", "type": self.type(depth)} for n in range(self.rng.randint(1, 6))
        ]
        return {"type": "record", "name": self.name(), "fields": fields}

    def type(self, depth: int) -> Any:
        kind = self.rng.randrange(9 if depth else 5)
        match kind:
            case 0 | 1:
                return self.rng.choice(PLAIN)
            case 2:
                type, logical = self.rng.choice(LOGICAL)
                return {"type": type, "logicalType": logical}
            case 3:
                scale = self.rng.randrange(4)
                decimal = {"logicalType": "decimal", "precision": scale + 5, "scale": scale}
                if self.rng.random() < 0.5:
                    return {"type": "bytes", **decimal}
                return {"type": "fixed", "name": self.name(), "size": 8, **decimal}
            case 4:
                symbols = [f"S{n}" for n in range(self.rng.randint(1, 4))]
                return {"type": "enum", "name": self.name(), "symbols": symbols}
            case 5:
                return {"type": "array", "items": self.type(depth - 1)}
            case 6:
                return {"type": "map", "values": self.type(depth - 1)}
            case 7:
                return self.record(depth - 1)
        other = self.type(depth - 1)
        return other if isinstance(other, list) else ["null", other]

    def name(self) -> str:
        self.names += 1
        return f"N{self.names}"

    def value(self, schema: Any) -> Any:
        rng = self.rng
        if isinstance(schema, list):
            return None if rng.random() < 0.4 else self.value(schema[1])
        if isinstance(schema, str):
            schema = {"type": schema}
        some = range(rng.choice([0, 1, 3]))
        at = datetime.datetime(1960, 1, 1) + datetime.timedelta(
            days=rng.randrange(40000), microseconds=rng.randrange(10**9) * 1000
        )
        match schema["type"], schema.get("logicalType"):
            case "record", _:
                return {of["name"]: self.value(of["type"]) for of in schema["fields"]}
            case "array", _:
                return [self.value(schema["items"]) for _ in some]
            case "map", _:
                return {self.text(): self.value(schema["values"]) for _ in some}
            case "enum", _:
                return rng.choice(schema["symbols"])
            case _, "decimal":
                most = 10 ** schema["precision"] - 1
                return Decimal(rng.randint(-most, most)).scaleb(-schema["scale"])
            case "int", "date":
                return at.date()
            case "string", "uuid":
                return str(uuid.UUID(int=rng.getrandbits(128)))
            case "long", str(logical):
                return at if logical.startswith("local") else at.replace(tzinfo=UTC)
            case "boolean", _:
                return rng.random() < 0.5
            case "int" | "long" as kind, _:
                bits = 31 if kind == "int" else 63
                return rng.choice([0, -(1 << bits), (1 << bits) - 1, rng.randint(-99, 99)])
            case "float" | "double", _:
                return rng.choice([0.0, -0.5, float("inf"), float("nan"), 1.25])
            case "bytes", _:
                return rng.randbytes(rng.randrange(5))
        return self.text()

    def text(self) -> str:
        return "".join(self.rng.choice("aé\u0000😀 ") for _ in range(self.rng.randrange(5)))


def spark_schema(schema: Any) -> StructType:
    return columns(**columns_of(json.dumps(schema)))


def columns(**declared: str) -> StructType:
    """Columns of Spark, without a Spark to parse them."""
    return StructType([st.StructField(name, spark_type(of)) for name, of in declared.items()])


def spark_type(text: str) -> st.DataType:
    return _spark_type(exp.DataType.build(text, dialect="spark"))


def _spark_type(of: exp.DataType) -> st.DataType:
    parts = of.expressions
    match of.this:
        case exp.DType.ARRAY:
            return st.ArrayType(_spark_type(parts[0]))
        case exp.DType.MAP:
            return st.MapType(*map(_spark_type, parts))
        case exp.DType.STRUCT:
            return StructType([st.StructField(p.name, _spark_type(p.args["kind"])) for p in parts])
        case exp.DType.DECIMAL:
            return st.DecimalType(*(int(p.name) for p in parts))
    return getattr(st, SPARK_TYPES[of.sql("spark")])()


def encoded(schema: Any, record: Any) -> bytes:
    into = io.BytesIO()
    fastavro.schemaless_writer(into, fastavro.parse_schema(json.loads(json.dumps(schema))), record)
    return into.getvalue()


def as_columns(record: Any, columns: StructType) -> dict[str, Any]:
    return {of.name: converter(of.dataType)(record[of.name]) for of in columns.fields}


def damaged(value: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(value) + 1)
    match rng.randrange(4):
        case 0:
            return value[:at]
        case 1:
            return value + rng.randbytes(rng.randint(1, 3))
        case 2 if value:
            at = min(at, len(value) - 1)
            return value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1 :]
    return rng.randbytes(rng.randrange(12))


def fastavros(value: bytes, schema: Any, of: StructType) -> dict[str, Any] | None:
    """What fastavro reads of a value, in columns; None: nothing, or not all of it."""
    source = io.BytesIO(value)
    try:
        record = fastavro.schemaless_reader(source, schema, None)
        found = as_columns(record, of)
    except Exception:  # of any kind
        return None
    return found if source.tell() == len(value) else None


def test_a_value_is_read_as_fastavro_reads_it_or_not_at_all() -> None:
    told = 0
    for seed in range(60):
        schemas = Schemas(seed)
        schema = schemas.record()
        of = spark_schema(schema)
        decode = Decoder(Avro(json.dumps(schema)), of)
        parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
        for _ in range(10):
            value = encoded(schema, schemas.value(schema))
            assert UNREADABLE_TEXT not in decode.row(value)
            for each in (value, *(damaged(value, schemas.rng) for _ in range(10))):
                found, truth = decode.row(each), fastavros(each, parsed, of)
                told += truth is None
                assert UNREADABLE_TEXT in found if truth is None else _same(found, truth)
    assert told > 1000


def test_a_row_is_written_so_that_it_is_read_as_it_was() -> None:
    for seed in range(60):
        schemas = Schemas(seed)
        schema = schemas.record()
        of = spark_schema(schema)
        encode = Encoder(json.dumps(schema), of, None)
        decode = Decoder(Avro(json.dumps(schema)), of)
        for _ in range(10):
            row = as_columns(schemas.value(schema), of)
            assert _same(decode(encode(row)), row)


def test_a_row_that_the_schema_cannot_hold_is_refused() -> None:
    schema = json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "k", "type": ["null", "int"], "default": None},
                {"name": "f", "type": "float", "default": 0},
            ],
        }
    )
    of = columns(at="TIMESTAMP", k="BIGINT", f="DOUBLE")
    encode = Encoder(schema, of, 7)
    at = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    assert encode({"at": at, "k": None, "f": 0.5})[: HEADER.size] == b"\0\0\0\0\7"
    for more in (
        {"at": at.replace(microsecond=1)},
        {"at": None},
        {"k": 1 << 40},
        {"f": 0.1},
        {"f": None},
    ):
        with pytest.raises(AvroError, match="does not fit the Avro schema"):
            encode({"at": at, "k": 1, "f": 0.5, **more})
    with pytest.raises(AvroError, match="the schema has no field n; it has at, k, f"):
        Encoder(schema, columns(n="INT"), None)


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with schema_registry() as address:
        yield address


def test_records_are_read_by_the_schema_that_they_were_written_by(registry: str) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "k", "type": "int"}]}
    new = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "k", "type": "long"},
            {"name": "v", "type": ["null", "string"], "default": None},
        ],
    }
    numbers = [registered(registry, "t", json.dumps(each)) for each in (old, new)]
    assert registered(registry, "t", json.dumps(old)) == numbers[0]
    values = [
        HEADER.pack(0, number) + encoded(each, {"k": 1, "v": "x"})
        for number, each in zip(numbers, (old, new), strict=True)
    ]
    of = columns(k="BIGINT", v="STRING")
    newer = Decoder(Avro(json.dumps(new), registry), of)
    assert [newer(value) for value in values] == [{"k": 1, "v": None}, {"k": 1, "v": "x"}]
    as_written = Decoder(Avro(None, registry), of)
    assert as_written(values[1]) == {"k": 1, "v": "x"}
    for value, why in (
        (values[0], "no field v"),
        (values[1][:-1], "not Avro of this schema"),
        (b"\1" + values[1][1:], "no number of a schema"),
        (values[1][:4], "no number of a schema"),
        (HEADER.pack(0, 99) + values[1][5:], "schema 99 is not in the registry"),
    ):
        with pytest.raises(UnreadableError, match=why):
            as_written(value)
    elsewhere = Decoder(Avro(None, "http://127.0.0.1:9"), of)
    with pytest.raises(AvroError, match=r"at 127.0.0.1:9 does not answer") as raised:
        elsewhere(values[1])
    assert not isinstance(raised.value, UnreadableError)  # nobody knows what it is: the task fails


def test_schemas_that_a_schema_refers_to_are_followed(registry: str) -> None:
    unit = {"type": "enum", "name": "Unit", "symbols": ["KG", "M"]}
    item = {"type": "record", "name": "Item", "fields": [{"name": "of", "type": "Unit"}]}
    fields = [{"name": "item", "type": "Item"}, {"name": "unit", "type": "Unit"}]
    order = {"type": "record", "name": "Order", "fields": fields}

    def post(subject: str, schema: Any, *names: str, version: int = 1) -> int:
        to = [{"name": name, "subject": f"a/{name}", "version": version} for name in names]
        body = {"schema": json.dumps(schema), **({"references": to} if to else {})}
        return int(_ask(registry, f"subjects/{quote(subject, safe='')}/versions", body)["id"])

    post("a/Unit", unit)
    post("a/Item", item, "Unit")
    number = post("orders-value", order, "Item", "Unit")
    whole = json.loads(json.dumps(order).replace('"Item"', json.dumps(item), 1))
    whole["fields"][0]["type"]["fields"][0]["type"] = unit
    record = {"item": {"of": "KG"}, "unit": "M"}
    value = HEADER.pack(0, number) + encoded(whole, record)
    of = columns(item="STRUCT<of: STRING>", unit="STRING")
    for schema in (None, json.dumps(whole)):
        assert Decoder(Avro(schema, registry), of)(value) == record
    lost = post("lost-value", order, "Item", "Unit", version=2)
    with pytest.raises(UnreadableError, match=r"the schema Item \(version 2 of a/Item\), which is"):
        Decoder(Avro(None, registry), of)(HEADER.pack(0, lost) + value[5:])
    alone = post("alone-value", order)
    with pytest.raises(UnreadableError, match=f"schema {alone}: UnknownType: Item"):
        Decoder(Avro(None, registry), of)(HEADER.pack(0, alone) + value[5:])


@pytest.mark.parametrize(
    ("type", "why"),
    [
        ("null", "the type null is not supported"),
        (["int", "string"], "unions of several types"),
        ({"type": "int", "logicalType": "time-millis"}, "time-millis is not supported"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "1 to 38 digits"),
        ({"type": "array", "items": "R"}, "part of itself"),
        ("Other", "the type Other is not supported"),
    ],
)
def test_a_type_that_spark_has_not_is_refused(type: Any, why: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": type}]}
    with pytest.raises(SchemaError, match=f"field `f`: .*{why}"):
        columns_of(json.dumps(schema))


def test_attributes_are_compared_with_the_schema_where_they_stand(tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "k", "type": "int"}, {"name": "d", "type": PRICE}],
    }
    (tmp_path / "r.avsc").write_text(json.dumps(schema))
    file = tmp_path / "dataflow.yaml"
    file.write_text(
        "components:\n"
        "  Keep: {annotation: {from: rows, to: kept, label: CR}}\n"
        "streams:\n"
        "  rows:\n"
        "    to: Keep.rows\n"
        "    delivery: once\n"
        "    schema:\n"
        "      k: BIGINT\n"
        "      d: DECIMAL(9, 2)\n"
        "      n: INT\n"
        "      at: TIMESTAMP\n"
        "    source:\n"
        "      format: kafka\n"
        "      value: {format: avro, schema: r.avsc}\n"
        "      columns: {at: timestamp}\n"
        "  kept: {from: Keep.kept}\n"
    )
    with pytest.raises(BadInput) as raised:
        load(file)
    found = [(each.position.line, each.message) for each in raised.value.diagnostics]  # type: ignore[union-attr]
    assert found == [
        (9, "`d` is DECIMAL(7, 2) in the schema, not DECIMAL(9, 2)"),
        (10, "the schema has no field `n`"),
    ]

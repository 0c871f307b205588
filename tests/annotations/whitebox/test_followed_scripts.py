"""Scripts that are followed without being run: none of them is, and what is not known is said."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Final

import pytest

from annotations.diagnostics import BadInput
from annotations.file import importing, loads
from annotations.whitebox.components import written_path
from annotations.whitebox.existing import Graph, derived, read_all
from annotations.whitebox.following.program import module_file
from annotations.whitebox.pyspark_code import Unreadable
from annotations.whitebox.sandbox import Limits
from tests.corpus.test_corpus import claims_more

ROOT: Final = Path(__file__).parents[3]
ATTACKS: Final = """\
import sys
import pyspark.cloudpickle
import pyspark.sql.functions as F
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StructType

open("plain", "w")
__import__("os").mkdir("import")
getattr(__import__("builtins"), "open")("attribute", "w")
udt = {"type": "udt", "class": "x", "pyClass": "evil.Evil", "sqlType": "string"}
field = {"name": "x", "type": udt, "nullable": True, "metadata": {}}
StructType.fromJson({"type": "struct", "fields": [field]})
CloudPickleSerializer().loads(b"cos\\nmkdir\\n(S'serializer'\\ntR.")
pyspark.cloudpickle.loads(b"cos\\nmkdir\\n(S'cloudpickle'\\ntR.")
import beside
sys.modules["os"].mkdir("modules")
F.udf.__globals__["__builtins__"]["open"]("globals", "w")
F.builtin.sys.modules["os"].mkdir("builtin")
classes = ().__class__.__base__.__subclasses__()
[c for c in classes if c.__name__ == "Popen"][0](["touch", "classes"]).wait()
class Body:
    open("class", "w")
@(lambda function: open("decorator", "w"))
def decorated(): ...
def default(argument=open("default", "w")): ...
with open("with", "w"): pass
exec('open("exec", "w")')
eval('open("eval", "w")')
list(map(__import__("os").mkdir, ["map"]))
sorted(["sorted"], key=__import__("os").mkdir)
f"{open('text', 'w')}"
"""
_NAMES: Final = (
    "plain import attribute udt serializer cloudpickle beside modules globals builtin classes "
    "class decorator default with exec eval map sorted text"
)
MARKS: Final = frozenset(_NAMES.split())
"""A file or folder for each attack that succeeds."""

EVIL: Final = """\
from pyspark.sql.types import UserDefinedType
open("udt", "w")
class Evil(UserDefinedType): ...
"""
FOLLOW: Final = """\
import os, sys
from annotations.whitebox.following import permitted
if sys.argv[1] == "no wall":
    permitted.wall = lambda path: None
from annotations.whitebox.connect.reading import Reading
from annotations.whitebox.connect.functions import functions
from annotations.whitebox.connect.pipelines import pipeline
from annotations.whitebox.connect.scripts import script

def follow(kind):
    if kind == "script":
        answer = script(Reading({}), {"path": "attacks.py", "follow": True})
        assert len(answer["queries"]) == 1, answer
    elif kind == "function":
        asked = {"module": "attacks", "function": "rows", "inputs": {"given": {"columns": None}}}
        request = {"folder": ".", "follow": True, "functions": [asked]}
        (answer,) = functions(Reading({}), request)["functions"]
        assert "error" in answer, answer
    else:
        answer = pipeline(Reading({}), {"path": "spark-pipeline.yml", "follow": True})
        assert list(answer["datasets"]) == ["rows"], answer

for kind in sys.argv[2:]:
    if os.fork() == 0:
        os.chdir(kind)
        sys.path.insert(0, os.getcwd())
        follow(kind)
        os._exit(0)
    assert os.wait()[1] == 0, kind
"""
PIPELINE: Final = """\
name: attacks
storage: file:///tmp/attacks
libraries:
  - glob: {include: attacks.py}
"""
FUNCTION: Final = "def rows(given):\n    decorated()\n    return default(given) or given\n"
DATASET: Final = """
from pyspark import pipelines as dp
@dp.table
def rows():
    return spark.readStream.text("in")
"""
QUERY: Final = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.readStream.text("in").writeStream.format("console").start()
"""


KINDS: Final = {"script": QUERY, "pipeline": DATASET, "function": FUNCTION}


def attacked(folder: Path) -> Path:
    """A folder with the attacks, and modules of the user beside them."""
    folder.mkdir()
    folder.joinpath("evil.py").write_text(EVIL)
    folder.joinpath("beside.py").write_text('open("beside", "w")\n')
    folder.joinpath("attacks.py").write_text(ATTACKS)
    return folder


def marks(folder: Path) -> set[str]:
    return {file.name for file in folder.rglob("*")} & MARKS


def run(folder: Path, *command: str) -> None:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={"PYTHONPATH": f"{ROOT}:{folder}", "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_every_attack_is_one(tmp_path: Path) -> None:
    folder = attacked(tmp_path / "script")
    run(folder, "attacks.py")
    assert marks(folder) == MARKS


@pytest.mark.parametrize("wall", ["wall", "no wall"])
def test_no_attack_gets_through_without_a_sandbox(wall: str, tmp_path: Path) -> None:
    for kind, text in KINDS.items():
        attacked(tmp_path / kind).joinpath("attacks.py").write_text(ATTACKS + text)
    tmp_path.joinpath("pipeline", "spark-pipeline.yml").write_text(PIPELINE)
    run(tmp_path, "-c", FOLLOW, wall, *KINDS)
    assert marks(tmp_path) == set()


PIPELINES: Final = (
    ROOT / "examples" / "pipelines" / "spark-pipeline.yml",
    ROOT / "tests" / "corpus" / "pipelines" / "dp_single_file.py",
)


@pytest.mark.parametrize("project", PIPELINES, ids=lambda file: file.parent.name)
def test_a_pipeline_is_followed_to_what_running_it_shows(project: Path) -> None:
    """Datasets, annotations, places and functions."""
    followed = importing.imported(project, module="code")
    assert followed == importing.imported(project, module="code", execute=Limits())


def test_a_pipeline_that_is_followed_says_what_it_does_not_know(tmp_path: Path) -> None:
    tmp_path.joinpath("spark-pipeline.yml").write_text(PIPELINE)
    tmp_path.joinpath("attacks.py").write_text(
        "import places\n" + DATASET.replace('.text("in")', ".text(places.of('in'))")
    )
    _, warnings = importing.load(tmp_path / "spark-pipeline.yml")
    assert [w.code.id for w in warnings] == ["BLZ081"]
    assert "--execute runs it to be read" in warnings[0].message


def test_a_script_that_shows_no_query_is_not_taken_for_one_that_has_none(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text(
        f"class Job(x.Base):\n    def run(self):\n        {QUERY.splitlines()[-1]}\nJob().run()\n"
    )
    with pytest.raises(BadInput) as bad:
        importing.load(file)
    (diagnostic,) = bad.value.diagnostics
    assert diagnostic.code.id == "BLZ094"
    assert "a `class` was not followed" in diagnostic.message


def test_what_objects_hold_is_known_only_where_nothing_else_may_have_changed_it() -> None:
    script = Path(__file__).with_name("followed_classes.py")
    dataflow, _ = importing.load(script)
    calls = script.read_text(encoding="utf-8").count("\nwrite(")
    assert len(dataflow.components) == calls
    for component in dataflow.components.values():
        assert [str(path.annotation)[:1] for path in component.paths] == ["O"], component.name


def test_a_reason_names_a_line_of_the_script_and_what_would_help(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import things\n"
        "from pyspark.sql import SparkSession, functions as F\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        'rows = spark.readStream.schema("value STRING").load(things.path())\n'
        "rows = rows.limit(things.many())\n"
        'rows.writeStream.format("console").start()\n'
    )
    dataflow, warnings = importing.load(script)
    (component,) = dataflow.components.values()
    places = [path.position for path in component.paths]
    assert [(place.file, place.line) for place in places if place] == [(str(script), 5)]
    (message,) = [warning.message for warning in warnings]
    assert "--execute runs it to be read" in message


def test_the_file_of_a_script_says_each_name_and_text_as_the_script_does(tmp_path: Path) -> None:
    random = Random(7)
    words = ["Date", "Ünit", "of", "a", "x" * 30, "2nd", "on", "no"]
    names = {" ".join(["c", *random.choices(words, k=random.randint(0, 9))]) for _ in range(40)}
    letters = "ab  '\"\\#:,[]{}&*!|>%@`\x7f\x85\u2028\ufeff\t😀é"
    texts = {f"t{n}": "".join(random.choices(letters, k=60)) for n in range(40)}
    fields = ", ".join(f"StructField({name!r}, StringType())" for name in sorted(names))
    options = "".join(f".option({name!r}, {text!r})" for name, text in texts.items())
    script = tmp_path / "job.py"
    script.write_text(
        "from pyspark.sql import SparkSession\n"
        "from pyspark.sql.types import StringType, StructField, StructType\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        f"schema = StructType([{fields}])\n"
        f'rows = spark.readStream.schema(schema).format("own"){options}.load("in")\n'
        'rows.writeStream.format("console").start()\n'
    )
    (source, *_) = loads(importing.imported(script, module="code").text)[0].streams.values()
    assert source.source is not None
    assert list(source.schema or ()) == sorted(names)
    assert source.source.options == texts


def test_names_of_pyspark_are_known_by_the_modules_that_define_them(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import pandas as pd\n"
        "from schemas import VALUE\n"
        "import pyspark.sql.functions.builtin as F\n"
        "from pyspark.sql.session import SparkSession\n"
        "from pyspark.sql.dataframe import DataFrame\n"
        "from pyspark.sql.functions.builtin import col\n"
        "from pyspark.sql.pandas.functions import pandas_udf\n"
        "from pyspark.sql.streaming.stateful_processor import StatefulProcessor\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        '@pandas_udf("long")\n'
        "def twice(n: pd.Series) -> pd.Series:\n"
        "    return n * 2\n"
        "def large(rows: DataFrame) -> DataFrame:\n"
        '    return rows.where(col("n") > 0).select(twice("n"), F.abs("n"))\n'
        'rows = spark.readStream.schema(VALUE).json("in")\n'
        'large(rows).writeStream.format("console").start()\n'
    )
    (tmp_path / "schemas.py").write_text('VALUE = "n BIGINT"\n')
    dataflow, warnings = importing.load(script)
    assert not warnings
    (component,) = dataflow.components.values()
    assert [str(path.annotation) for path in component.paths] == ["CR"]
    assert all(path.nondeterministic is None for path in component.paths)


def test_a_line_that_this_python_cannot_read_is_named(tmp_path: Path) -> None:
    script, module = tmp_path / "job.py", tmp_path / "names.py"
    script.write_text(f"import names\n{QUERY}print names.first\n")
    for limits in (None, Limits()):
        with pytest.raises(BadInput) as bad:
            importing.load(script, execute=limits)
        (mistake,) = bad.value.diagnostics
        assert (mistake.code.id, mistake.position.line) == ("BLZ080", len(QUERY.splitlines()) + 2)
        assert "cannot read this line" in mistake.message
    script.write_text(f"import names\n{QUERY}")
    module.write_text("first = 1\nprint first\n")
    dataflow, (warning, *_) = importing.load(script)
    assert len(dataflow.components) == 1
    assert (warning.position.file, warning.position.line) == (str(module), 2)


CONSTANTS: Final = """
import argparse, datetime, os, random, sys, time, uuid
from datetime import date, timedelta
from decimal import Decimal
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
parser = argparse.ArgumentParser()
parser.add_argument("--least", type=int, default=3)
parser.add_argument("--key", required=True)
parser.add_argument("--other")
args = parser.parse_args()
os.environ["RUN"] = uuid.uuid4().hex
schema = "k STRING, n BIGINT, a ARRAY<BIGINT>, m MAP<STRING, BIGINT>, d DATE, t TIMESTAMP"
df = spark.readStream.schema(schema).json("in")
def large(x):
    return x > 3
class Sum:
    def next(self, x, place):
        return x + place
    def drawn(self, x):
        return x * random.randint(1, 3)
def put(name, frame):
    frame.writeStream.queryName(name).outputMode("update").format("console").start()
"""
SAME: Final = """
df.select(F.transform("a", lambda x: x + 1))
df.select(F.transform("a", lambda x, place: x + place))
df.select(F.transform("a", Sum().next))
df.where(F.exists("a", large))
df.select(F.aggregate("a", F.lit(0).cast("bigint"), lambda total, x: total + x))
df.select(F.map_filter("m", lambda key, value: value > args.least))
df.where(F.col("d") > date(2020, 1, 1) + timedelta(days=3))
df.where(F.col("t") > datetime.datetime.strptime("2020-01-01", "%Y-%m-%d"))
df.where(F.col("n") * Decimal("0.5") > args.least)
df.where((F.col("n") > args.least) & (args.least * 2 < F.col("n")))
df.where(F.col("k") == os.environ["KEY"])
df.where(os.getenv("KEY") == F.col("k"))
df.where(F.col("k") == os.environ.get("KEY", "x"))
df.where(F.col("k") == sys.argv[1])
df.where(F.col("k").isin(args.key.split(",")) | (F.col("k") == args.other))
df.where(F.col("k") != args.key)
df.where(F.col("n") > settings.LEAST)
df.where(F.col("n").cast("double") < settings.limits["high"] * 2)
df.where(F.col("k") == settings.get("name", "x").lower())
df.where(f"n > {settings.LEAST} AND k = '{os.environ['KEY']}'")
df.selectExpr("k", "n + " + sys.argv[1] + " AS m")
df.where(F.expr(f"n BETWEEN {settings.LEAST} AND {settings.config.most}"))
"""
OTHERS: Final = """
df.select(F.transform("a", lambda x: x * random.random()))
df.select(F.transform("a", lambda x: x * F.rand()))
df.select(F.transform("a", Sum().drawn))
df.where(F.exists("a", lambda x: x > int(time.time())))
df.where(F.col("d") > date.today())
df.where(F.col("d") > date.today() - timedelta(days=1))
df.where(F.col("t") > datetime.datetime.now())
df.where(F.col("d") > date(*time.localtime()[:3]))
df.where(F.col("k") == os.environ["RUN"])
df.withColumn("run", F.lit(os.getenv("RUN")))
df.withColumn("run", F.lit(os.environ.get("RUN", "x")))
df.groupBy("k").agg(F.bit_or("n").alias("b")).where(F.col("b") > args.least)
df.where(F.col("n") > settings.least())
df.where(F.col("n") > services.now)
df.where((F.col("n") > 3) & settings.LATE)
df.where(F.col("n") > set_settings.LEAST)
df.where(F.col("n") > drawn_settings.LEAST)
df.where(F.col("n") > settings.get("least", time.time()))
df.where(f"n > {settings.LEAST}(k)")
df.where(f"{settings.CONDITION} AND n > 3")
df.where(settings.CONDITION)
df.where(F.col("n") > int(f"{time.time():.0f}"))
"""


def test_constants_of_a_query_are_told_from_what_each_run_has_anew(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    kinds = {"same": SAME, "other": OTHERS}
    puts = {
        f"{kind}_{number}": frame
        for kind, text in kinds.items()
        for number, frame in enumerate(text.split("\n")[1:-1])
    }
    calls = "".join(f"put({name!r}, {frame})\n" for name, frame in puts.items())
    modules = "import settings, services, set_settings, drawn_settings"
    made = "set_settings.LEAST = time.time()\ndrawn_settings.load(random.random())\n"
    script.write_text(f"{modules}\n{CONSTANTS}{made}{calls}")
    dataflow, _ = importing.load(script)
    for name, frame in puts.items():
        for path in dataflow.components[name].paths:
            same = str(path.annotation) == "CR" and path.nondeterministic is None
            assert same == name.startswith("same"), frame


_MODES: Final = (
    'os.environ["MODE"]',
    'os.getenv("MODE", "dev")',
    "f\"{os.environ['MODE']}\"",
    "f\"a {os.getenv('MODE', 'dev')}\"",
    '"{}-{}".format(settings.MODE, "x")',
    '"/".join(["a", os.getenv("MODE", "dev")])',
    '"%s%s" % (os.environ["MODE"], "x")',
    '"a" + settings.MODE',
)
_CHOICES: Final = """
df.limit(1) if <mode> == "prod" else df
df.limit(1) if "prod" in [<mode>] else df
df.limit(1) if {"prod"} & {<mode>} else df
df.limit(1) if ("a", <mode>) == ("a", "prod") else df
df.limit(1) if any(each == "prod" for each in [<mode>]) else df
df.limit(1) if all([<mode> != "dev", True]) else df
df.limit(1) if len(<mode>) == 4 else df
df.limit(1) if len({<mode>, "prod"}) == 1 else df
df.limit(1) if [<mode>].count("prod") else df
df.limit(1) if {<mode>: 1}.get("prod") else df
df.limit(1) if sorted([<mode>, "dez"])[0] == "dez" else df
df.limit(1) if max(<mode>, "e") == "e" else df
df.limit(1) if ",".join([<mode>, "b"]) == "prod,b" else df
df.limit(1) if <mode>.startswith("pr") else df
df.limit(1) if <mode>.lower().strip()[:1] == "p" else df
df.limit(1) if (lambda mode: mode == "prod")(<mode>) else df
{"prod": df.limit(1)}.get(<mode>, df)
{<mode>: df}.get("prod", df.limit(1))
[df, df.limit(1)][len(<mode>) % 2]
functools.reduce(lambda d, _: d.limit(1), range(len(<mode>)), df)
df.transform(lambda d, mode=<mode>: d.limit(1) if mode == "prod" else d)
next((d for mode, d in [("prod", df.limit(1))] if mode == <mode>), df)
"""


def test_no_condition_is_decided_by_a_text_that_is_not_known(tmp_path: Path) -> None:
    """Neither by one of which a part is not known, nor by what is made of it."""
    texts = list(product(_MODES, _CHOICES.strip().split("\n")))
    puts = [
        f"put('case_{n}', {text.replace('<mode>', mode)})" for n, (mode, text) in enumerate(texts)
    ]
    known = [f"put('known_{n}', {text.replace('<mode>', repr('dev'))})" for n, (_, text) in
             enumerate(texts[: len(texts) // len(_MODES)])]  # fmt: skip
    script = tmp_path / "job.py"
    script.write_text("\n".join(["import functools, settings", CONSTANTS, *puts, *known]))
    labels = _started(*read_all([script], execute=Limits(120.0), follow=True))
    found = {path.rpartition(" ")[2]: label for path, label in labels.items()}
    assert set(found["case"]) <= {"OW[*]", "OW[*], chance"}
    assert found["known"].count("CR") > len(known) // 2


def test_a_script_with_too_many_branches_is_not_followed_to_its_end(tmp_path: Path) -> None:
    """What every branch keeps counts: a script of few statements may hold much."""
    lists = "".join(f"list_{number} = [{number}]\n" for number in range(400))
    branch = 'if os.environ.get("A"):\n    list_0.append(1)\n'
    script = tmp_path / "job.py"
    for branches in (3, 1500):
        script.write_text(f"import os\n{lists}{branch * branches}{QUERY}")
        (graph,) = read_all([script], execute=Limits(120.0), follow=True)
        assert isinstance(graph, Graph) == (branches == 3)
    assert "too many branches" in str(graph)


# ---- ways that may be taken

SCRIPTS: Final = int(os.environ.get("BLAZES_RANDOM_SCRIPTS", "12"))
"""Random scripts; more of them are tried by hand."""
_OPERATIONS: Final = (
    'df = df.dropDuplicates(["k"])',
    "df = df.distinct()",
    "df = df.limit(3)",
    'df = df.withColumn("v", F.rand())',
    'df = df.where("v > 1")',
    "df = df.union(other)",
    "df, other = other, df",
    'held["df"] = held["df"].dropDuplicates(["k"])',
    'df = held["df"]',
    "box.df = box.df.limit(2)",
    "df = box.df",
    'start(df, "early")',
)
_UNKNOWN: Final = (
    'os.environ.get("C")',
    '"--c" in sys.argv',
    'os.getenv("C", "no").lower() in ("yes", "1")',
    'not os.getenv("C", "")',
    "args.c",
    'args.mode == "full"',
    'dbutils.widgets.get("c") == "yes"',
)
_SETTINGS: Final = {
    "job.json": '{"c": "no", "more": {"n": 1}, "names": ["a"]}',
    "job.yaml": "c: false\nnames: [a]\nrate: 0.5\n",
    "job.ini": "[job]\nc = no\n",
}
"""Configuration files, of which there may be others where a script runs."""
_OF_SETTINGS: Final = (
    'json.load(open("job.json"))["c"] == "yes"',
    'json.loads(Path("job.json").read_text())["more"]["n"] > 3',
    '"b" in json.load(open("job.json"))["names"]',
    '"d" in json.load(open("job.json"))',
    'json.load(open("job.json")).get("d")',
    'len(json.load(open("job.json"))["names"]) > 1',
    'any(k == "b" for k, _ in json.load(open("job.json")).items())',
    '{**json.load(open("job.json"))["more"]}["n"] == 2',
    'dict(**json.load(open("job.json"))).get("c") == "yes"',
    '"d" in {"e": 1, **json.load(open("job.json"))}',
    'yaml.safe_load(open("job.yaml"))["c"]',
    'yaml.safe_load(open("job.yaml"))["rate"] > 0.7',
    'configparser_of("job.ini").get("job", "c") == "yes"',
    'configparser_of("job.ini").has_section("more")',
    'configparser_of("job.ini")["job"]["c"] == "yes"',
)
_HEAD: Final = """\
import argparse, configparser, json, os, sys, yaml
from pathlib import Path
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
parser = argparse.ArgumentParser()
parser.add_argument("--c", action="store_true")
parser.add_argument("--mode", choices=["part", "full"], default="part")
args = parser.parse_args()
dbutils.widgets.text("c", "no")
class Box: pass
def configparser_of(name):
    made = configparser.ConfigParser()
    made.read(name)
    return made
def start(df, name):
    df.writeStream.queryName(name).format("console").start()
df, other = (spark.readStream.schema("k INT, v DOUBLE").json(p) for p in ("/a/df", "/a/other"))
held, box = {"df": df}, Box()
box.df = df
"""


def _block(random: Random, marks: list[str], depth: int = 0) -> list[str]:
    """Random statements; each place whose way is not known is noted in `marks`, as its kind."""
    lines: list[str] = []
    for _ in range(random.randint(1, 3)):
        kind = random.choice(["", "if", "try", "loop", "leave", "return"])
        if not kind or depth > 1 or len(marks) > 2:
            lines.append(random.choice(_OPERATIONS))
            continue
        mark = f"<{len(marks)}>"
        marks.append(kind)
        body = [f"    {line}" for line in _block(random, marks, depth + 1)]
        other = [f"    {line}" for line in _block(random, marks, depth + 1)]
        lines += {
            "if": [f"if {mark}:", *body, "else:", *other],
            "try": ["try:", f"    {mark}", *body, "except ValueError:", *other],
            "loop": [f"for each in {mark}:", *body],
            "leave": ["for each in range(2):", f"    if {mark}: break", *body],
            "return": ["def inner(df, other):", f"    if {mark}: return other", *body,
                       "    return df", "df = inner(df, other)"],
        }[kind]  # fmt: skip
    return lines


_WAYS: Final = {"try": ("pass", "raise ValueError"), "loop": ("()", "range(2)")}


def _scripts(seed: int) -> tuple[str, list[str]]:
    """A script that takes ways which are not known, and one for each choice of them."""
    random, marks = Random(seed), list[str]()
    text = "\n".join(_block(random, marks))

    def filled(parts: Sequence[str]) -> str:
        made = text
        for number, part in enumerate(parts):
            made = made.replace(f"<{number}>", part)
        return f'{_HEAD}{made}\nstart(df, "last")\n'

    unknown = {"try": "pass", "loop": 'os.environ["L"].split()'}
    asked = [unknown.get(kind) or random.choice((*_UNKNOWN, *_OF_SETTINGS)) for kind in marks]
    ways = [_WAYS.get(kind, ("False", "True")) for kind in marks]
    return filled(asked), [filled(each) for each in product(*ways)]


_STEPS: Final = (
    'd.dropDuplicates(["k"])',
    'd.groupBy("k").agg(F.sum("v").alias("v"))',
    "d.limit(3)",
    'd.withColumn("v", F.rand())',
    "d.union(other)",
)
_ROUNDABOUT: Final = (
    "exec('def step(d): return <step>')\ndf = step(df)",
    "def plain(d): return d\ndef step(d): return <step>\n"
    "globals().update(plain=step)\ndf = plain(df)",
    "def step(d): return <step>\ndf = globals()['step'](df)",
    "class Steps:\n    def go(self, d): return d\n"
    "setattr(Steps, 'go', lambda self, d: <step>)\ndf = Steps().go(df)",
    "DataFrame.tidy = lambda d: <step>\ndf = df.tidy()",
    "DataFrame.where = lambda d, test: <step>\ndf = df.where('v > 1')",
    "[df := (lambda d: <step>)(df) for _ in [1]]",
    "steps = {'raw': lambda d: d, 'step': lambda d: <step>}\n"
    "df = steps.get(sys.argv[1], steps['raw'])(df)",
    "steps = {'raw': lambda d: d, 'step': lambda d: <step>}\n"
    "df = steps[os.environ.get('STEP', 'raw')](df)",
    "try:\n    import fast\n    slow = False\nexcept ImportError:\n    slow = True\n"
    "if slow: df = (lambda d: <step>)(df)",
    "try: RULES\nexcept NameError: df = (lambda d: <step>)(df)",
    "if spark.conf.get('step', 'no') == 'yes': df = (lambda d: <step>)(df)",
    "class Holder:\n    @property\n    def df(self): return self._df\n    @df.setter\n"
    "    def df(self, d): self._df = <step>\nholder = Holder()\nholder.df = df\ndf = holder.df",
    "class Step:\n    def __ror__(self, d): return <step>\ndf = df | Step()",
    "class Step:\n    def __call__(self, d): return <step>\nfrom functools import reduce\n"
    "df = reduce(lambda d, step: step(d), map(lambda kind: kind(), [Step]), df)",
    "made = []\ndef known(kind):\n    made.append(kind)\n    return kind\n@known\n"
    "class Step:\n    def go(self, d): return <step>\nfor each in made: df = each().go(df)",
    "import plugins\nflags = {'step': False}\nplugins.load(flags)\n"
    "if flags['step']: df = (lambda d: <step>)(df)",
    "import plugins\nflags = {'step': False}\nflags.update(plugins.flags())\n"
    "if flags['step']: df = (lambda d: <step>)(df)",
    "flags = {'step': False, **dict(a.split('=') for a in sys.argv[1:])}\n"
    "if flags['step']: df = (lambda d: <step>)(df)",
    "for each in sys.argv[2:]: df = (lambda d: <step>)(df)",
    "steps = {'raw': lambda d: d, 'step': lambda d: <step>}\ndf = steps[os.environ['STEP']](df)",
    "sub = parser.add_subparsers(dest='command')\nsub.add_parser('raw')\nsub.add_parser('step')\n"
    "if parser.parse_args().command == 'step': df = (lambda d: <step>)(df)",
    "sub = parser.add_subparsers()\nsub.add_parser('raw').set_defaults(go=lambda d: d)\n"
    "sub.add_parser('step').set_defaults(go=lambda d: <step>)\ndf = parser.parse_args().go(df)",
    "if spark.version > '5': df = (lambda d: <step>)(df)",
    "if not spark.catalog.tableExists('t'): df = (lambda d: <step>)(df)",
    "df = getattr(df, 'transform')(lambda d: <step>)",
    "class Kinds(type):\n    def __new__(*parts):\n        made.append(type.__new__(*parts))\n"
    "        return made[-1]\nmade = []\nclass Step(metaclass=Kinds):\n"
    "    def go(self, d): return <step>\nfor each in made: df = each().go(df)",
)
"""Ways to take a step that do not look like it; a reader that overlooks one takes no step."""
_UNFOLLOWED: Final = (
    "class Hidden:\n    def __getattr__(self, _):\n        import os, random, time\n"
    "        from datetime import datetime\n        from pathlib import Path\n"
    "        if <test>: return lambda d: <step>\n        return lambda d: d\n"
    "df = Hidden().go(df)"
)
"""A step that only running the script shows, if the place where it runs decides for it."""
_OF_PLACE: Final = (
    *_UNKNOWN,
    '"C" in sys.argv',
    "sys.argv[2:]",
    "os.path.exists('/no/where')",
    "Path('/no/where').is_file()",
    "spark.conf.get('step', 'no') == 'yes'",
    "spark.version > '5'",
    "spark.version >= '5'",
    "'5' <= os.environ.get('LEVEL', '1')",
    "spark.catalog.tableExists('t') is None",
    "datetime.now().hour > 24",
    "random.random() > 1",
    "time.time() < 0",
)


def _roundabout(way: str, seed: int) -> tuple[str, list[str]]:
    """A script that takes a step in a roundabout way, and one that takes it in a plain one."""
    step = Random(f"{way} {seed}").choice(_STEPS)
    head = f"from pyspark.sql import DataFrame\n{_HEAD}"
    plain = f"df = (lambda d: {step})(df)"
    parts = [way.replace("<step>", step), plain]
    roundabout, direct = (f'{head}{part}\nstart(df, "last")\n' for part in parts)
    return roundabout, [direct]


def _started(graph: Graph | Unreadable) -> dict[str, list[str]]:
    """`source -> query` -> the labels that it has, of all queries that have this name."""
    found: dict[str, list[str]] = {}
    assert isinstance(graph, Graph), graph
    for name, node in derived(graph).items():
        for source, path in node.paths.items():
            chance = ", chance" if path.nondeterministic else ""
            label = str(written_path(path, "out").annotation) + chance
            found.setdefault(f"{source} -> {name.split('_')[0]}", []).append(label)
    return found


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graph | Unreadable]:
    """Text -> graph, of all scripts whose tests differ in the text alone, read by one process."""
    folder = tmp_path_factory.mktemp("scripts")
    folder.joinpath("job.json").write_text(_SETTINGS["job.json"])
    texts = [*_not_known(), *_holding(), *_queries(), *_bodies(), *_anew(), *_taken()]
    texts += _groups()
    texts += _unfollowed()
    files = [folder / f"job_{number}.py" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return dict(zip(texts, read_all(files, execute=Limits(120.0), follow=True), strict=True))


@pytest.mark.slow
def test_no_way_is_overlooked(tmp_path: Path) -> None:
    """Whatever way a script takes, what was said of it without knowing the way is as careful: of
    its text alone, and of running it, which shows one way."""
    several = [_scripts(seed) for seed in range(SCRIPTS)]
    ways = [*_ROUNDABOUT, *(_UNFOLLOWED.replace("<test>", test) for test in _OF_PLACE)]
    ways += [f"if {test}: df = (lambda d: <step>)(df)" for test in _OF_SETTINGS]
    for name, text in _SETTINGS.items():
        tmp_path.joinpath(name).write_text(text)
    several += [_roundabout(way, seed) for way in ways for seed in range(SCRIPTS // 12)]

    def read(texts: Sequence[str], *, follow: bool) -> Iterator[dict[str, list[str]]]:
        files = [tmp_path / f"script_{number}.py" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        return map(_started, read_all(files, execute=Limits(120.0), follow=follow))

    labels = read([text for _, taken in several for text in taken], follow=True)
    asked = [unknown for unknown, _ in several]
    both = zip(read(asked, follow=True), read(asked, follow=False), strict=True)
    for (unknown, taken), of_text_and_run in zip(several, [*both], strict=True):
        for _ in taken:
            for path, found in next(labels).items():
                # Running a script takes its settings as they are, and says so.
                for label, said in product(found, of_text_and_run[: 1 if "job." in unknown else 2]):
                    careful = [each for each in said.get(path, ()) if not claims_more(each, label)]
                    assert careful, f"{path} is {label}, and {said} was said of\n{unknown}"


@pytest.mark.slow
def test_running_a_script_tells_what_its_text_does_not(
    tmp_path: Path, graphs: dict[str, Graph | Unreadable]
) -> None:
    """Where the place decides nothing."""
    (text,) = _unfollowed()
    assert _started(graphs[text])["df -> last"] == ["OW[*], chance"]
    file = tmp_path / "job.py"
    file.write_text(text)
    (graph,) = read_all([file], execute=Limits(60.0))
    assert _started(graph)["df -> last"] == ["CR"]


def _unfollowed() -> list[str]:
    way = _UNFOLLOWED.replace("<test>", "3 > 4").replace("<step>", "d.limit(1)")
    return [f'{_HEAD}{way}\nstart(df, "last")\n']


_NOT_KNOWN: Final = (
    ('df = df.withColumn("at", F.lit(datetime.now().isoformat()))', "CR, chance"),
    (
        'df = df.withColumn("at", F.when(df.v > 1, str(uuid.uuid4())).otherwise("-"))',
        "CR, chance",
    ),
    *(
        (f'df = df.withColumn("at", F.lit({since}))', "CR, chance")
        for since in (
            "str(datetime.now())",
            "'%s' % uuid.uuid4()",
            "int(time.time())",
            "datetime.now(timezone.utc) - timedelta(days=1)",
            "max(datetime.now(), datetime(2024, 1, 1))",
            "datetime.fromtimestamp(time.time())",
            "time.strftime('%H')",
        )
    ),
    *(
        (f"since = str(datetime.now())\n{part}", "CR, chance")
        for part in (
            'df = df.where(F.col("k").isin([since]))',
            'df.createOrReplaceTempView("d")\n'
            "df = spark.sql(f\"SELECT * FROM d WHERE k <> '{since}'\")",
        )
    ),
    *(
        (f'df = df.withColumn("at", F.lit({since}))', "CR")
        for since in ("str(os.environ['DAY'])", "time.strftime('%H', time.gmtime(0))")
    ),
    ('df = df.withColumn("at", F.lit(os.environ["RELEASE"]))', "CR"),
    ('df = df.withColumn("at", F.lit(hash("a") % 8))', "CR, chance"),
    ('df = df.withColumn("at", F.lit(spark.sparkContext.applicationId))', "CR, chance"),
    ('df = df.withColumn("at", F.lit(spark.conf.get("spark.app.id")))', "CR, chance"),
    ('df = df.withColumn("at", F.lit(spark.conf.get("spark.app.name")))', "CR"),
    ('df = df.withColumn("at", F.lit(requests.get("http://x").json()["rate"]))', "CR, chance"),
    ('df = df.join(spark.read.schema("k INT").json(f"/in/{date.today()}"), "k")', "CR, chance"),
    ('df = df.select("*", F.col("_metadata.file_path"))', "CR"),
    ('df = df.select("k", F.col("_metadata.file_block_start"))', "CR, chance"),
    ('df = df.select("k", "_metadata")', "CR, chance"),
    ('df = df.withColumn("at", F.lit(Run.AT.value))', "CR, chance"),
    ('df = df.withColumn("at", F.lit(Run.NAME.value))', "CR"),
    ('df = df.withColumn("at", F.lit(Settings().run))', "CR, chance"),
    ('df = df.withColumn("at", F.lit(f"{Tag()}"))', "CR, chance"),
    (
        'df = df.withColumn("at", F.lit(hashlib.sha1(str(time.time()).encode()).hexdigest()))',
        "CR, chance",
    ),
    ('df = df.select(*["k", "v"][: datetime.now().day % 2])', "OW[*], chance"),
    ('df = df.select({0: "k", 1: "v"}[datetime.now().day % 2])', "OW[*], chance"),
    (
        'df = spark.readStream.schema(random.choice(["k INT", "k LONG"])).json("/a/df")',
        "CR, chance",
    ),
    (
        'held = {"at": time.time(), "n": os.environ["N"]}\n'
        'df = df.withColumn("n", F.lit(held["n"]))',
        "CR",
    ),
    ('logged(time.time())\ndf = df.withColumn("n", F.lit(logged(time.time())))', "CR"),
    (
        "df = df.dropDuplicates() if Given(**json.load(open('job.json'))).twice else df",
        "OW[*], chance",
    ),
    ("df = chosen(df, **json.load(open('job.json')))", "OW[*], chance"),
    (
        'df.writeStream.queryName("last").format("kafka")\\\n'
        '  .option("topic", f"t{date.today()}").start()',
        "CR, chance",
    ),
    *(
        (f'{way}\ndf = df.withColumn("at", F.lit(run))', "CR" if way[-1] == "'" else "CR, chance")
        for drawn in ("str(uuid.uuid4())", "'plain'")
        for way in (
            f"run = os.environ.get('R')\nif not run: run = {drawn}",
            f"if not (run := os.environ.get('R')): run = {drawn}",
            f"try: run = os.environ['R']\nexcept KeyError: run = {drawn}",
            f"def of():\n    if os.environ.get('R'): return os.environ['R']\n    return {drawn}\n"
            f"run = of()  # {drawn}",
            f"held = {{'r': os.environ.get('R')}}\nif not held['r']: held['r'] = {drawn}\n"
            f"run = held['r']  # {drawn}",
            f"box.r = {drawn}\nagg.register(box)\nrun = box.r  # {drawn}",
            f"run = {drawn}\nfor part in os.environ['P'].split(): run += f'{{part}}'  # {drawn}",
        )
    ),
    *(
        (f'{way}\ndf = df.withColumn("at", F.lit(run))', "CR, chance")
        for way in (
            "run = 5 if datetime.now().hour < 8 else 10",
            "run = 5\nif datetime.now().hour < 8: run = 10",
            "match datetime.now().day:\n    case 1: run = 5\n    case _: run = 10",
            "run = 0\nwhile random.random() < 0.9: run += 1",
            "run = 0\nwhile True:\n    run += 1\n    if random.random() < 0.9: break",
            "run = 0\nfor n in range(3):\n    if time.time() > 9: break\n    run = n",
            "def of():\n    if random.random() < 0.5: return 1\n    return 2\nrun = of()",
            "run = spark.table('t').rdd.map(lambda r: r.k).collect()",
            "run = os.environ.get('R') or spark.table('t').first()[0]",
            "for run in spark.table('t').collect(): break",
            "run = time.time() - os.path.getmtime('/a')",
            "spark.conf.set('r', str(time.time()))\ndf.createOrReplaceTempView('d')\n"
            "df, run = spark.sql(\"SELECT *, '${r}' AS r FROM d\"), 1",
        )
    ),
    *(
        (f"df = df.mapInPandas(lambda fs: ({each} for f in fs), 'k INT, v DOUBLE')", label)
        for each, label in (
            ("f[f.v > 0]", "CR"),
            ("f[f.v > f.v.mean()]", "OR[*]"),
            ("f.sample(9)", "OR[*], chance"),
        )
    ),
    *(
        (f"if {test}: df = df.distinct()", "OW[*], chance")
        for test in (
            "'C' in os.environ",
            "len(os.environ) > 99",
            "[k for k in os.environ if k == 'C']",
            "{k.lower(): v for k, v in os.environ.items()}.get('c')",
            "dict(os.environ).get('C')",
            "{**os.environ}.get('C')",
        )
    ),
    ("for k in os.environ: df = df.distinct()", "OW[*], chance"),
    *(
        (f"match {value}:\n    case {case}: df = df.limit(1)\n    case _: pass", label)
        for value, case, label in (
            ("'a'", "'b' | 'c'", "CR"),
            ("'a'", "'b' | 'a'", "OW[*]"),
            ("1", "True", "CR"),
            ("1", "1.0", "OW[*]"),
            ("1", "'a' if os.environ", "CR"),
            ("'a'", "'a' if os.environ.get('C')", "OW[*], chance"),
            ("os.environ.get('C', 'a')", "'b'", "OW[*], chance"),
            ("[1]", "[2]", "OW[*], chance"),
        )
    ),
    ("df = PipelineModel.load('/m').transform(df).select('k', 'prediction')", "CR"),
    ("df = Pipeline(stages=[]).fit(df).transform(df)", "OW[*], chance"),
    ("df = PipelineModel.load('/m').fit(df).transform(df)", "OW[*], chance"),
    ("df = df.withColumn('p', mlflow.pyfunc.spark_udf(spark, 'm')('k'))", "OW[*], chance"),
    ("df = df.withColumn('p', mlflow.pyfunc.spark_udf(spark, 'm')(F.col('k')))", "CR"),
    (
        "df.createOrReplaceTempView('d')\n"
        "df = spark.sql('SELECT * FROM d WHERE k > :n', args={'n': 5})",
        "CR",
    ),
    (
        "df.createOrReplaceTempView('d')\n"
        "df = spark.sql('SELECT *, ? AS t FROM d', args=[str(datetime.now())])",
        "CR, chance",
    ),
    (
        "df.createOrReplaceTempView('d')\n"
        "df = spark.sql('SELECT k FROM d WHERE k > :n', args={'n': F.rand()})",
        "CR, chance",
    ),
    ("df.createGlobalTempView('d')\ndf = spark.sql('SELECT * FROM global_temp.d')", "CR"),
    (
        "df.createOrReplaceTempView('d')\n"
        "df = spark.sql(string.Template('SELECT $c FROM d').substitute(c='k'))",
        "CR",
    ),
    (
        "df.createOrReplaceTempView('d')\n"
        "df = spark.sql(string.Template('SELECT k, \"$c\" AS t FROM d').substitute(c=time.time()))",
        "CR, chance",
    ),
    ("df = df.select(*itertools.chain(['k'], ['v']))", "CR"),
    ("df = df.select(*itertools.chain.from_iterable([['k'], [F.rand()]]))", "CR, chance"),
    ("df = df.where(functools.reduce(operator.and_, [F.col('k') > 1, df.v > 2]))", "CR"),
    ("df = df.withColumn('n', functools.reduce(operator.add, [df.v, F.rand()]))", "CR, chance"),
    ("df = df.groupBy('k').pivot('v', [1.0, 2.0]).count()", "OW[k]"),
    ("df = df.withColumn('n', F.lit(spark.sparkContext.textFile('/a').count()))", "CR, chance"),
    ("df = df.unpivot('k', ['v'], 'name', 'value').where('value > 1')", "CR"),
    ("df = df.melt(ids=['k'], values=None, variableColumnName='n', valueColumnName='v')", "CR"),
    (
        "df = df.unpivot('k', [F.rand().alias('v')], 'name', 'value')",
        "CR, chance",
    ),
    *(
        (
            f"df = spark.readStream.format('kafka').option('subscribe', 'df')"
            f".option('{name}', str(uuid.uuid4())).load()",
            label,
        )
        for name, label in (
            ("kafka.client.id", "CR"),
            ("kafka.group.id", "CR"),
            ("startingOffsets", "CR, chance"),
        )
    ),
    ("df = cleaned(df)", "OW[*], chance"),
    ("df = tried(df)", "CR"),
    ('df = df.groupBy("k").agg(agg.of("v"))', "OW[*], chance"),
)


def _not_known() -> dict[str, str]:
    """Text -> label."""
    head = (
        "import agg, functools, hashlib, itertools, mlflow, operator, places, random, requests\n"
        "import string, tenacity, time, uuid\nfrom pyspark.ml import Pipeline, PipelineModel\n"
        "from dataclasses import dataclass\nfrom enum import Enum\n"
        "from pydantic import BaseModel, Field\n"
        "from datetime import date, datetime, timedelta, timezone\n"
        f"{_HEAD}@places.logged\ndef cleaned(df): return df.where('v > 1')\n"
        f"@tenacity.retry(stop=3)\ndef tried(df): return df.where('v > 1')\n"
        "class Run(Enum):\n    NAME = 'a'\n    AT = time.time()\n"
        "class Settings(BaseModel):\n    run: str = Field(default_factory=uuid.uuid4)\n"
        "class Tag:\n    def __init__(self): self.v = uuid.uuid4()\n"
        "    def __str__(self): return str(self.v)\n"
        "def logged(at):\n    print(at)\n    return os.environ['N']\n"
        "@dataclass\nclass Given:\n    twice: bool = False\n    c: str = ''\n"
        "    names: list = None\n    more: dict = None\n"
        "def chosen(d, twice=False, **_): return d.distinct() if twice else d\n"
    )
    last = 'start(df, "last")\n'
    return {f"{head}{part}\n{'' if 'topic' in part else last}": label for part, label in _NOT_KNOWN}


@pytest.mark.slow
def test_what_is_not_known_is_not_taken_for_nothing(graphs: dict[str, Graph | Unreadable]) -> None:
    texts = _not_known()
    assert {text: _started(graphs[text])["df -> last"] for text in texts} == {
        text: [label] for text, label in texts.items()
    }


_HANDED: Final = (
    ("str", "''", "CR"),
    ("random.random", "str(uuid.uuid4())", "CR, chance"),
)
"""A function, a value, and what becomes of a function that uses either."""
_HOLDING: Final = (
    "def wrap(f):\n    def inner(x): return f'{x}{f()}'\n    return inner\nu = wrap(<f>)",
    "def wrap(f):\n    @functools.wraps(f)\n    def inner(*a): return f'{a}{f()}'\n"
    "    return inner\n@wrap\ndef u(): return (<f>)()",
    "def both(f, g): return lambda x: f(g())\nu = both(str, <f>)",
    "RULES = {'a': <f>}\nu = lambda x: RULES[x]()",
    "RULES = [str, <f>]\nu = lambda x: [each() for each in RULES]",
    "def u(x, f=<f>): return f'{x}{f()}'",
    "def whole(x, f): return f'{x}{f()}'\nu = functools.partial(whole, f=<f>)",
    "def whole(f, x): return f'{x}{f()}'\nu = functools.partial(whole, <f>)",
    "class Kind:\n    def __init__(self, f=<f>): self.f = f\n"
    "    def go(self, x): return f'{x}{self.f()}'\nu = Kind().go",
    "class Kind:\n    def __init__(self): self.salt = <v>\n"
    "    def go(self, x): return f'{x}{self.salt}'\nu = Kind().go",
    "def wrap(salt): return lambda x: f'{x}{salt}'\nu = wrap(<v>)",
    "class Inner:\n    def give(self): return <v>\nclass Kind:\n    n = 0\n"
    "    def __init__(self, inner): self.inner = inner\n    def other(self): self.n += 1\n"
    "    def go(self, x): return f'{x}{self.inner.give()}'\n"
    "def wrap(kind): return lambda x: kind.go(x)\nu = wrap(Kind(Inner()))",
)
"""Ways to hand something to a function beside its arguments."""


def _holding() -> dict[str, str]:
    """Text -> label."""
    return {
        f"import functools, random, uuid\n{_HEAD}"
        f"{way.replace('<f>', function).replace('<v>', value)}\n"
        'df = df.withColumn("at", F.udf(u, "string")("k"))\nstart(df, "last")\n': label
        for way in _HOLDING
        for function, value, label in _HANDED
    }


@pytest.mark.slow
def test_what_a_function_holds_is_a_part_of_it(graphs: dict[str, Graph | Unreadable]) -> None:
    texts = _holding()
    assert {text: _started(graphs[text])["df -> last"] for text in texts} == {
        text: [label] for text, label in texts.items()
    }


_GO: Final = """\
async def go(name):
    spark.readStream.schema("k INT").json("/a/" + name).writeStream.queryName("q").start()
"""


_TWICE: Final = """\
def go(once=False):
    (df.dropDuplicates(["k"]) if once else df).writeStream.queryName("q").start()
"""
"""A query that is another one where it is given an argument."""
_QUERIES: Final[dict[str, dict[str, list[str]]]] = {
    "spark.sql(agg.query()).writeStream.queryName('q').start()": {
        "unknown_stream -> q": ["OW[*], chance"]
    },
    "spark.table('made').writeStream.queryName('q').start()": {
        "unknown_stream -> q": ["OW[*], chance"]
    },
    "v = os.environ['V']\ndf.createOrReplaceTempView(v)\n"
    "spark.sql(f'SELECT k FROM {v}').writeStream.queryName('q').start()": {
        "df -> q": ["OW[*], chance"]
    },
    f"import asyncio\n{_GO}asyncio.run(go('a'))": {"a -> q": ["CR"]},
    f"import threading\n{_GO[6:]}threading.Thread(target=go, args=('a',)).start()": {
        "a -> q": ["CR"]
    },
    f"import concurrent.futures as f\n{_GO[6:]}with f.ThreadPoolExecutor() as pool:\n"
    "    pool.map(go, ['a', 'b'])": {"a -> q": ["CR"], "b -> q": ["CR"]},
    f"{_GO[6:]}agg.schedule(go)": {"name -> q": ["CR"]},
    "def each(d, i):\n    n = d.count()\n    if n > 2 * 3000:\n"
    "        d.write.mode('append').parquet('/big')\n    elif n > 50:\n"
    "        d.write.mode('append').format('jdbc').option('dbtable', 'q1').save()\n    else:\n"
    "        d.write.mode('append').format('jdbc').option('dbtable', 'q2').save()\n"
    "df.writeStream.foreachBatch(each).start()": {
        "df -> query": ["OW[*]", "OW[*]"],
        "df -> big": ["OW[*]"],
    },
    **{
        f"{_TWICE}{way}": {"df -> q": [label]}
        for way, label in (
            ("import typer\ntyper.run(go)", "OW[*], chance"),
            (
                "import typer\napp = typer.Typer()\n@app.command()\n"
                "def main(once: bool = False): go(once)\napp()",
                "OW[*], chance",
            ),
            (
                "import click\n@click.command()\ndef main(**given): go(given.get('once'))\nmain()",
                "OW[*], chance",
            ),
            (
                "import click\n@click.command()\ndef main(*given): go('once' in given)\nmain()",
                "OW[*], chance",
            ),
            (
                "import click\n@click.group()\ndef main(): pass\n@main.command()\n"
                "def other(once=False): go(once)\nmain()",
                "OW[*], chance",
            ),
            (
                "class Job:\n    def go(self, once=False): go(once)\nagg.schedule(Job().go)",
                "OW[*], chance",
            ),
            ("agg.Operator(python_callable=go, op_kwargs={'once': True})", "OW[k]"),
            ("import asyncio\nasyncio.run(asyncio.to_thread(go, once=True))", "OW[k]"),
            ("agg.loop().run_in_executor(None, go, True)", "OW[k]"),
            ("import threading\nthreading.Timer(5, go, [True]).start()", "OW[k]"),
            ("import joblib\njoblib.Parallel()(joblib.delayed(go)(o) for o in [True])", "OW[k]"),
            (
                "import threading\nclass Job(threading.Thread):\n"
                "    def run(self): go(True)\nJob(daemon=True).start()",
                "OW[k]",
            ),
            ("@agg.asset\ndef job(): go(True)", "OW[k]"),
            ("from functools import partial\nagg.schedule([partial(go, True)])", "OW[k]"),
        )
    },
}
"""A part of a script -> its queries, each with what it reads, and their labels."""


def _queries() -> dict[str, dict[str, list[str]]]:
    """Text -> what its queries read, and their labels."""
    return {f"import agg\n{_HEAD}{part}\n": found for part, found in _QUERIES.items()}


@pytest.mark.slow
def test_no_query_is_lost_and_none_reads_nothing(graphs: dict[str, Graph | Unreadable]) -> None:
    texts = _queries()
    assert {text: _started(graphs[text]) for text in texts} == texts


_APPEND: Final = 'd.write.mode("append").parquet("/out")'


_AGAIN: Final = f"""for n in range(3):
        try:
            {_APPEND}
            return
        except OSError: print(n)"""


_BODIES: Final = (
    (_APPEND, "CR"),
    (f"spark.sql('OPTIMIZE t'); {_APPEND}", "CR"),
    (f"spark.sql('DELETE FROM t WHERE k = 1'); {_APPEND}", "OW[*]"),
    (f"DeltaTable.forName(spark, 't').delete('k = 1'); {_APPEND}", "OW[*]"),
    (f"spark.conf.set('spark.sql.session.timeZone', f'+0{{i % 9}}:00'); {_APPEND}", "OW[*]"),
    (f"try: {_APPEND}\n    except OSError: print('lost')", "OW[*]"),
    (f"try: {_APPEND}\n    except OSError: print('lost'); raise", "CR"),
    ("threading.Thread(target=d.write.save, args=['/out']).start()", "OW[*]"),
    ("try: store(d)\n    except OSError: print('lost')", "OW[*]"),
    ("passed(d)", "OW[*]"),
    ("d.foreachPartition(lambda rows: json.dumps([*rows]))", "OW[*]"),
    ("tried(lambda: store(d))", "OW[*]"),
    ("with Quiet(): store(d)", "OW[*]"),
    ("with quiet(): store(d)", "OW[*]"),
    ("with loud(): store(d)", "CR"),
    ("try: json.loads('{}')\n    except ValueError: print('none')\n    store(d)", "CR"),
    ("Sink('/out').store(d)", "CR"),
    ('d.write.mode("append").parquet(f"/out/{datetime.now().date()}")', "CR, chance"),
    (f"try: {_APPEND}\n    finally: return", "OW[*]"),
    (f"try: {_APPEND}\n    except OSError: d.write.mode('append').parquet('/dead')", "OW[*]"),
    (f"try: {_APPEND}\n    except OSError: {_APPEND}", "CR"),
    ("asyncio.create_task(go(d))", "OW[*]"),
    (f"with contextlib.suppress(OSError): {_APPEND}", "OW[*]"),
    (f"os.remove('/out/old'); {_APPEND}", "OW[*]"),
    (f"if os.path.exists('/stop'): return\n    {_APPEND}", "OW[*]"),
    ('d.write.parquet("/out")', "OW[*]"),
    ('d.write.mode("errorifexists").saveAsTable("out")', "OW[*]"),
    ('d.writeTo("out").create()', "OW[*]"),
    ('d.write.insertInto("out")', "CR"),
    ('d.write.format("kafka").option("topic", "t").save()', "CR"),
    (_APPEND.replace("d.", "d.where(F.col('k').isin(open('/a').read()))."), "CR, chance"),
    (_APPEND.replace("d.", "d.withColumn('n', F.lit(len(os.listdir('/a'))))."), "CR, chance"),
    (_APPEND.replace("d.", "d.withColumn('n', F.lit(json.load(open('/a'))['n']))."), "CR, chance"),
    (_APPEND.replace("d.", "d.where(F.col('k') > progress[0])."), "OW[*]"),
    (_APPEND.replace("d.", "d.join(read('/out/a'), 'k', 'left_anti')."), "OW[*]"),
    (_APPEND.replace("d.", "d.join(read('/elsewhere'), 'k', 'left_anti')."), "OW[*]"),
    (_APPEND.replace("d.", "d.join(written, 'k', 'left_anti')."), "OR[*]"),
    (_APPEND.replace("d.", "d.join(streamed, 'k', 'left_anti')."), "OR[*]"),
    (_APPEND.replace("d.", "d.join(fixed, 'k', 'left_anti')."), "CR"),
    (f"if d.where('k < 0').count() > 0: {_APPEND}", "OW[*]"),
    (f"if d.where('k < 0').isEmpty(): {_APPEND}", "OW[*]"),
    (f"if 100 < d.count() < 5000: d = d.where('k > 0')\n    {_APPEND}", "OW[*]"),
    (f"if d.count() > 10 * len(progress) + 90: d = d.where('k > 0')\n    {_APPEND}", "OW[*]"),
    (f"if i == 7: d = d.where('k > 0')\n    {_APPEND}", "OW[*]"),
    (f"if (i + 1) % 12 == 0: d = d.where('k > 0')\n    {_APPEND}", "OW[*]"),
    (f"b = d.where('k < 0')\n    if not b.isEmpty(): {_APPEND.replace('d.', 'b.', 1)}", "CR"),
    (f"b = d.where('k < 0')\n    if b.count(): {_APPEND.replace('d.', 'b.drop(d.k).', 1)}", "CR"),
    (f"b = d.where('k < 0')\n    if b.count(): {_APPEND.replace('d.', 'b.union(d).', 1)}", "OW[*]"),
    (f"if d.isEmpty(): return\n    {_APPEND}", "CR"),
    (f"if d.isEmpty(): return\n    if os.path.exists('/no'): return\n    {_APPEND}", "OW[*]"),
    (f"if i % 100 == 0: spark.sql('OPTIMIZE t')\n    {_APPEND}", "CR"),
    (f"{_AGAIN}\n    raise OSError", "CR"),
    (_AGAIN, "OW[*]"),
    (f"{_AGAIN}\n    print('lost')", "OW[*]"),
)


def _bodies() -> dict[str, str]:
    """Text -> label."""
    head = (
        "import asyncio, contextlib, json, os, threading\nfrom datetime import datetime\n"
        "from delta.tables import DeltaTable\n"
        f"{_HEAD}def read(path): return spark.read.schema('k INT').parquet(path)\n"
        "written, streamed, fixed = read('/out'), read('/in/df'), read('/fixed')\n"
        f"async def go(d): {_APPEND}\n"
        f"def store(d): {_APPEND}\n"
        "def safe(f):\n    def inner(*a):\n        try: f(*a)\n        except OSError: print()\n"
        "    return inner\npassed = safe(store)\n"
        "def tried(f):\n    for _ in range(3):\n        try: return f()\n"
        "        except OSError: print()\n"
        "class Quiet:\n    def __enter__(self): return self\n"
        "    def __exit__(self, *_): return True\n"
        "@contextlib.contextmanager\ndef quiet():\n    try: yield\n    except OSError: print()\n"
        "@contextlib.contextmanager\ndef loud():\n    try: yield\n    finally: print()\n"
        "class Sink:\n    def __init__(self, path): self.path = path\n"
        "    def store(self, d): d.write.mode('append').parquet(self.path)\n"
        "df = spark.readStream.schema('k INT').json('/in/df')\nprogress = [0]\n"
        "class Listener(StreamingQueryListener):\n    def onQueryProgress(self, event):\n"
        "        progress[0] = event.progress.numInputRows\n"
    )
    start = "df.writeStream.foreachBatch(each).start()\n"
    return {f"{head}def each(d, i):\n    {body}\n{start}": label for body, label in _BODIES}


@pytest.mark.slow
def test_a_micro_batch_is_all_that_a_function_of_it_may_depend_on(
    graphs: dict[str, Graph | Unreadable],
) -> None:
    for text, label in _bodies().items():
        labels = _started(graphs[text]).values()
        assert {each for of_path in labels for each in of_path} == {label}, text


_BY: Final = "df.groupBy({}).applyInPandasWithState({}, 'k INT', 'n INT', 'append', 'NoTimeout')"
_TIMED: Final = "df.groupBy('k').applyInPandasWithState(f, 'k INT', 'n INT', 'append', {!r})"
_PROCESSED: Final = "df.groupBy('k').transformWithStateInPandas(P(), 'k INT', 'Update', {!r})"
_GROUPED: Final = {
    "df.groupBy('k').applyInPandas(all_of, 'k INT')": "OW[*]",
    "df.groupBy('k').applyInPandas(drawn, 'k INT')": "OW[*], chance",
    _BY.format("'k', 'v'", "f"): "OW[k,v]",
    _BY.format("F.col('k') % 2", "f"): "OW[*]",
    _BY.format("'k'", "counts"): "OW[*], chance",
    _BY.format("'k'", "drawn"): "OW[*], chance",
    _TIMED.format("NoTimeout"): "OW[k]",
    _TIMED.format("EventTimeTimeout"): "OW[*]",
    _TIMED.format("ProcessingTimeTimeout"): "OW[*], chance",
    _PROCESSED.format("None"): "OW[k]",
    _PROCESSED.format("EventTime"): "OW[*]",
    _PROCESSED.format("ProcessingTime"): "OW[*], chance",
}
"""What a function makes of groups, and the label: with timers it is told what others move on."""


def _groups() -> dict[str, str]:
    functions = (
        "import random\nfrom pyspark.sql.streaming import StatefulProcessor\nseen = []\n"
        "def f(*args): return args[-1]\ndef all_of(rows): return rows\n"
        "def counts(rows):\n    seen.append(len(rows))\n    return rows.head(len(seen))\n"
        "def drawn(rows): return rows.sample(random.randrange(9))\n"
        "class P(StatefulProcessor):\n    def init(self, handle): pass\n"
        "    def handleInputRows(self, key, rows, timers): yield from rows\n"
        "    def close(self): pass\n"
    )
    return {
        f'{_HEAD}{functions}df = {text}\nstart(df, "last")\n': label
        for text, label in _GROUPED.items()
    }


@pytest.mark.slow
def test_a_function_of_groups_depends_on_its_group_alone(
    graphs: dict[str, Graph | Unreadable],
) -> None:
    for text, label in _groups().items():
        found = {each for labels in _started(graphs[text]).values() for each in labels}
        assert found == {label}, text[len(_HEAD) :]


_TAKEN: Final = (
    ("format('kafka').option('subscribe', 't')", "has first started (startingOffsets"),
    ("format('kafka').option('subscribe', 't').option('startingOffsets', 'earliest')", ""),
    ("format('delta').option('startingVersion', 'latest')", "has first started (startingVersion"),
    ("format('delta').option('skipChangeCommits', True)", "no row of it is changed"),
    ("format('cloudFiles')", "its first files show the schema"),
    ("format('rate')", "the clock"),
    ("format('socket').option('host', 'h')", "a socket gives no record again"),
    ("format('mqtt').option('topic', 't')", "gives the same records again"),
    ("format('json').schema('k INT')", ""),
    ("format('json').schema('k INT').option('cleanSource', 'delete')", "never read from"),
)
"""A source of a stream, and what is taken for granted of it."""


_FOR_ALL: Final = (
    "spark.conf.set('spark.sql.files.ignoreCorruptFiles', True)",
    "spark.sql('SET spark.sql.files.ignoreCorruptFiles = true')",
    "SparkSession.builder.config('spark.sql.files.ignoreCorruptFiles', 'true').getOrCreate()",
    "SparkSession.builder.config(map={'spark.sql.files.ignoreCorruptFiles': True}).getOrCreate()",
)
"""Ways in which a session says of all files what an option says of some."""
_ANEW: Final = {
    "made = f'/ck/{uuid.uuid4()}'": True,
    "made = tempfile.mkdtemp()": True,
    "made = '/ck/of/job'\nshutil.rmtree('/ck/of', ignore_errors=True)": True,
    "made = '/ck/of/job'\ndbutils.fs.rm(made, True)": True,
    "made = '/ck/of/job'\nos.system(f'hdfs dfs -rm -r -f {made}')": True,
    "made = '/ck/of/job'\nsubprocess.run(['rm', '-rf', '/ck'], check=True)": True,
    "made = '/ck/of/job'\nshutil.rmtree('/tmp/job')": False,
    "made = '/ck/' + os.environ['JOB']": False,
}
"""A checkpoint, and whether a job that starts again begins anew."""


def _anew() -> dict[str, bool]:
    """Text -> whether its job begins anew."""
    head = f"import shutil, subprocess, tempfile, uuid\n{_HEAD}"
    start = "df.writeStream.format('delta').option('checkpointLocation', made).start('/b')\n"
    return {f"{head}{made}\n{start}": anew for made, anew in _ANEW.items()}


@pytest.mark.slow
def test_a_checkpoint_that_is_not_there_again_lets_rows_come_again(
    graphs: dict[str, Graph | Unreadable],
) -> None:
    for text, anew in _anew().items():
        graph = graphs[text]
        assert isinstance(graph, Graph)
        (node,) = graph.nodes.values()
        assert node.sink is not None
        assert node.sink.delivery == ("may-repeat" if anew else ""), text


def _taken() -> dict[str, str]:
    """Text -> what the verdict says is taken for granted; empty: nothing."""
    return {
        f"{_HEAD}{part}\n": said
        for part, said in (
            *((f"spark.readStream.{source}.load('/a').writeStream.start('/b')", said)
              for source, said in _TAKEN),
            ("start(df.select(*{'k', 'v'}), 'q')", "the order of"),
            ("start(df.withColumn('n', F.lit(os.path.getmtime('/a'))), 'q')", "the settings in"),
            *((f"{setting}\nstart(df, 'q')", "is damaged") for setting in _FOR_ALL),
        )
    }  # fmt: skip


@pytest.mark.slow
def test_the_verdict_lists_what_is_taken_for_granted_of_a_source(
    graphs: dict[str, Graph | Unreadable],
) -> None:
    for text, said in _taken().items():
        graph = graphs[text]
        assert isinstance(graph, Graph)
        found = next(iter(derived(graph).values())).assumptions
        assert bool(found) == bool(said), text
        assert all(said in each.text for each in found), text


_CONFIGURATION: Final = {
    "job.json": True,
    "../above.json": True,
    "jobs/../job.json": True,
    "../../outside.json": False,
    "link.json": False,
    ".hidden.json": False,
    "large.json": False,
    "code.py": False,
    "/etc/hosts.txt": False,
}
"""Path of a file of settings -> whether a script is followed with what stands in it."""


def test_a_configuration_file_is_read_inside_of_its_project_alone(tmp_path: Path) -> None:
    folder = tmp_path / "project" / "jobs"
    folder.mkdir(parents=True)
    folder.parent.joinpath("pyproject.toml").touch()
    small = '{"mode": "append"}'
    for name in ("job.json", ".hidden.json", "code.py", "../above.json", "../../outside.json"):
        folder.joinpath(name).write_text(small)
    folder.joinpath("large.json").write_text(" " * 2**20 + small)
    folder.joinpath("link.json").symlink_to(tmp_path / "outside.json")
    files = [folder / f"job_{number}.py" for number in range(len(_CONFIGURATION))]
    for file, path in zip(files, _CONFIGURATION, strict=True):
        file.write_text(
            f'{_HEAD}df.writeStream.queryName(json.load(open({path!r}))["mode"])'
            '.format("console").start()\n'
        )
    graphs = read_all(files, execute=Limits(120.0), follow=True)
    for graph, (path, known) in zip(graphs, _CONFIGURATION.items(), strict=True):
        assert ("df -> append" in _started(graph)) is known, path


def test_no_module_is_read_outside_of_the_project(tmp_path: Path) -> None:
    script = tmp_path / "project" / "job.py"
    for file in (script.parent / "pyproject.toml", script.parent / "lib" / "inner.py"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "outer.py").touch()
    (script.parent / "link").symlink_to(tmp_path)
    script.write_text('sys.path.append("lib")\nsys.path += []\n')
    assert module_file("inner", script) == script.parent / "lib" / "inner.py"
    for name in ("..", "link", "/", "lib/../.."):
        script.write_text(f"sys.path.insert(0, {name!r})")
        assert module_file("outer", script) is None, name


def test_modules_are_those_of_the_package_that_a_script_belongs_to(tmp_path: Path) -> None:
    """Below its folder, those above it, or `src`; a function of the user calls them, too."""
    clock = "from time import time\ndef now(x): return time()\n"
    files = {
        "pyproject.toml": "",
        "src/shop/clocks.py": clock,
        "src/shop/jobs/near.py": "def step(df): return df.limit(1)\n",
        "src/shop/steps/far.py": "from ..clocks import now\ndef step(df): return df.distinct()\n",
        "tools/other.py": "from shop.clocks import now\nimport shop.clocks\n"
        "SINCE, later = shop.clocks.now(0), lambda x: now(x)\nBEGAN = now(0)\nSIZES = [3]\n",
        "jobs/delta.py": "def step(df): return df.dropDuplicates(['k'])\n",
        "lib/parts/extra.py": "def step(df): return df.dropDuplicates(['k'])\n",
    }
    for name, text in files.items():
        tmp_path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        tmp_path.joinpath(name).write_text(text)
    cases = {
        "src/shop/jobs/a.py": ("from shop.steps.far import step\ndf = step(df)", "CW"),
        "src/shop/jobs/b.py": ("from ..steps import far\ndf = far.step(df)", "CW"),
        "src/shop/jobs/c.py": ("from . import near\ndf = near.step(df)", "OW[*]"),
        "src/shop/jobs/d.py": ("import near\ndf = near.step(df)", "OW[*]"),
        "tools/e.py": ("from shop.steps import far\ndf = far.step(df)", "CW"),
        "jobs/f.py": ("from .delta import step\ndf = step(df)", "OW[k]"),
        "tools/g.py": ("import jobs.delta as d\ndf = d.step(df)", "OW[k]"),
        "j.py": ("from shop.steps import far\ndf = far.step(df)", "CW"),
        "tools/k.py": (
            "import os, sys\nhere = os.path.dirname(__file__)\n"
            "sys.path.insert(0, os.path.join(here, '..', 'lib', 'parts'))\n"
            "import extra\ndf = extra.step(df)",
            "OW[k]",
        ),
        "tools/h.py": (
            "from shop.clocks import now\ndf = df.withColumn('t', F.udf(now, 'double')('k'))",
            "CR, chance",
        ),
        **{
            f"tools/i{number}.py": (
                f"import other\nfrom other import now, later, BEGAN, SIZES\n"
                f"def at(x): return {value}\ndf = df.withColumn('t', F.udf(at, 'double')('k'))",
                label,
            )
            for number, (value, label) in enumerate(
                (
                    ("other.now(x)", "CR, chance"),
                    ("now(x)", "CR, chance"),
                    ("x - other.BEGAN", "CR, chance"),
                    ("x - BEGAN", "CR, chance"),
                    ("x - len(SIZES)", "CR"),
                    ("SIZES.append(x)", "OW[*], chance"),
                    ("later(x)", "CR, chance"),
                )
            )
        },
    }
    for name, (text, _) in cases.items():
        tmp_path.joinpath(name).write_text(f'{_HEAD}{text}\nstart(df, "last")\n')
    paths = [tmp_path / name for name in cases]
    found = map(_started, read_all(paths, execute=Limits(120.0), follow=True))
    assert {n: each["df -> last"] for n, each in zip(cases, found, strict=True)} == {
        name: [label] for name, (_, label) in cases.items()
    }

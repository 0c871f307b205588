"""Scripts that are followed without being run: none of them is, and what is not known is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from annotations.diagnostics import BadInput
from annotations.file import importing
from annotations.whitebox.sandbox import Limits

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
import sys
from annotations.whitebox.connect import permitted
if sys.argv[1] == "no wall":
    permitted.wall = lambda path: None
from annotations.whitebox.connect.reading import Reading
from annotations.whitebox.connect.functions import functions
from annotations.whitebox.connect.pipelines import pipeline
from annotations.whitebox.connect.scripts import script
if sys.argv[2] == "script":
    answer = script(Reading({}), {"path": "attacks.py", "follow": True})
    assert len(answer["queries"]) == 1, answer
elif sys.argv[2] == "function":
    asked = {"module": "attacks", "function": "rows", "inputs": {"given": {"columns": None}}}
    request = {"folder": ".", "follow": True, "functions": [asked]}
    (answer,) = functions(Reading({}), request)["functions"]
    assert "error" in answer, answer
else:
    answer = pipeline(Reading({}), {"path": "spark-pipeline.yml", "follow": True})
    assert list(answer["datasets"]) == ["rows"], answer
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the attacks, and modules of the user beside them."""
    tmp_path.joinpath("evil.py").write_text(EVIL)
    tmp_path.joinpath("beside.py").write_text('open("beside", "w")\n')
    tmp_path.joinpath("attacks.py").write_text(ATTACKS)
    return tmp_path


def marks(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()} & MARKS


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


def test_every_attack_is_one(folder: Path) -> None:
    run(folder, "attacks.py")
    assert marks(folder) == MARKS


@pytest.mark.parametrize(("kind", "text"), KINDS.items())
@pytest.mark.parametrize("wall", ["wall", "no wall"])
def test_no_attack_gets_through_without_a_sandbox(
    wall: str, kind: str, text: str, folder: Path
) -> None:
    folder.joinpath("attacks.py").write_text(ATTACKS + text)
    folder.joinpath("spark-pipeline.yml").write_text(PIPELINE)
    run(folder, "-c", FOLLOW, wall, kind)
    assert marks(folder) == set()


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


def test_a_script_is_read_where_nothing_may_be_run(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text(QUERY)
    dataflow, warnings = importing.load(file)
    assert [str(c.paths[0].annotation) for c in dataflow.components.values()] == ["CR"]
    assert not warnings


def test_what_is_not_known_is_said_once_with_what_would_help(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("import things\n" + QUERY.replace('.text("in")', ".load(things.path())"))
    _, warnings = importing.load(file)
    (message,) = [warning.message for warning in warnings]
    assert "--execute runs it to be read" in message


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


def test_a_reason_names_a_line_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "from pyspark.sql import SparkSession, functions as F\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        'rows = spark.readStream.schema("value STRING").json("/in")\n'
        'rows = rows.select(F.from_json("value", open("schema").read()).alias("o")).select("o.*")\n'
        'rows.writeStream.format("console").start()\n'
    )
    dataflow, _ = importing.load(script)
    (component,) = dataflow.components.values()
    places = [path.position for path in component.paths]
    assert [(place.file, place.line) for place in places if place] == [(str(script), 4)]

"""The front end as a whole: what a file says arrives in the dataflow."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from annotations.dataflow import (
    Dataflow,
    Deployment,
    Endpoint,
    External,
    Producers,
    Punctuation,
)
from annotations.diagnostics import BadInput, Findings, did_you_mean
from annotations.file import load, loads
from annotations.file import reader as yaml_file
from annotations.vocabulary import Label, Within

FULL = """
name: ad-network
x-schemas:
  click: &click
    {campaign: int, id: int, window: "decimal(10,2)", sealed: boolean, n: int, d: string}
components:
  Report:
    Rep: true
    replicas: 3
    availability: pairs
    engine: flux
    output_mode: update
    order_by: [id, campaign]
    description: answers what is asked
    annotation:
      - {from: click, to: log, label: CW, state: clicks, why: a log}
      - from: request
        to: response
        label: OW[id, campaign]
        within: sequence
        nondeterministic: asks another service
        lineage: {ad: id}
      - {from: request, to: error}
    python: {error: "ops.report:errors", log: ops:log}
    variants:
      THRESH: {from: request, to: response, label: CR}
      POOR:
        annotation:
          - {from: request, to: response, label: OR, subscript: "*"}
          - {from: request, to: summary, label: OR, subscript: id}
        sql: {response: SELECT 1, summary: SELECT 2}
        python: {error: "ops:other"}
streams:
  clicks:
    to: Report.click
    seal: [[campaign], [id, window]]
    Rep: true
    schema: *click
    source: {format: json, path: data/clicks, options: {multiLine: true, maxFilesPerTrigger: 1}}
    producer: id
    punctuation: {when: sealed, count: n, digest: d}
    producers: [ads-1, ads-2]
    late: fail
    seal_timeout: 2 minutes
    remember: 7 days
    id: [id, window]
    delivery: may-repeat
    lateness: 1 hour
    description: every click
  requests: {to: Report.request, label: Inst, producers: {registered: who.json}, seal: "Seal[id]"}
  logs: {from: Report.log}
  errors: {from: Report.error}
  summaries: {from: Report.summary}
  responses: {from: Report.response, sink: {format: parquet, path: out}, schema: {ad: int}}
fds: [id -> campaign, ad <-> id]
deployment:
  master: local[2]
  zookeeper: a:2181,b:2181
  zookeeper_access: {user: job, password: "${env:ZK}", ca: ca.pem}
  trigger: 10 seconds
  conf: {spark.sql.shuffle.partitions: 4}
  sites: 5
  partitions: 6
  balance: memory
  site_memory: 2g
  keep_every: 50
"""


def full(**variants: str) -> Dataflow:
    return loads(FULL, variants=variants)[0]


def problems(text: str, **variants: str) -> list[str]:
    try:
        _, found = loads(text, file="f.yaml", variants=variants)
    except BadInput as bad:
        found = bad.diagnostics
    return [f"{diagnostic.position} {diagnostic.code.id}" for diagnostic in found]


def test_every_key_of_a_component_arrives() -> None:
    report = full(Report="POOR").components["Report"]
    assert report.rep is True
    assert (report.replicas, report.availability, report.engine) == (3, "pairs", "flux")
    assert (report.output_mode, report.order_by) == ("update", ("id", "campaign"))
    assert report.description == "answers what is asked"
    assert str(report.position) == "<string>:7:3"


def test_every_key_of_a_path_arrives() -> None:
    log, response, error = full().components["Report"].paths
    assert (str(log), str(log.annotation), log.state, log.why) == (
        "click->log",
        "CW",
        "clicks",
        "a log",
    )
    assert str(response.annotation) == "OW[campaign,id]"
    assert response.within is Within.SEQUENCE
    assert response.nondeterministic == "asks another service"
    assert response.lineage == {"ad": "id"}
    assert str(response.position) == "<string>:17:9"
    assert (str(error.annotation), error.annotated, error.why) == ("OW[*]", False, None)


def test_a_variant_replaces_paths_of_equal_ends_and_adds_the_others() -> None:
    def paths(**variants: str) -> list[str]:
        report = full(**variants).components["Report"]
        return [f"{path} {path.annotation} {path.variant}" for path in report.paths]

    assert paths(Report="THRESH") == [
        "click->log CW None",
        "request->response CR THRESH",
        "request->error OW[*] None",
    ]
    assert paths(Report="POOR") == [
        "click->log CW None",
        "request->response OR[*] POOR",
        "request->error OW[*] None",
        "request->summary OR[id] POOR",
    ]


def test_a_variant_brings_its_own_implementations() -> None:
    def implementations(**variants: str) -> dict[str, str | None]:
        report = full(**variants).components["Report"]
        return {name: by.sql or by.python for name, by in report.implementations.items()}

    assert implementations(Report="THRESH") == {"error": "ops.report:errors", "log": "ops:log"}
    assert implementations(Report="POOR") == {
        "error": "ops:other",
        "log": "ops:log",
        "response": "SELECT 1",
        "summary": "SELECT 2",
    }


def test_every_key_of_a_stream_arrives() -> None:
    streams = full(Report="POOR").streams
    clicks = streams["clicks"]
    assert (clicks.producer, clicks.consumer) == (None, Endpoint("Report", "click"))
    assert clicks.seals == (frozenset({"campaign"}), frozenset({"id", "window"}))
    assert dict(list((clicks.schema or {}).items())[:4]) == {
        "campaign": "int",
        "id": "int",
        "window": "decimal(10,2)",
        "sealed": "boolean",
    }
    assert list(clicks.schema or ()) == ["campaign", "id", "window", "sealed", "n", "d"]
    options = {"multiLine": "true", "maxFilesPerTrigger": "1"}
    assert clicks.source == External("json", "data/clicks", options)
    assert clicks.punctuation == Punctuation("sealed", "n", "d")
    assert clicks.producers == Producers("all", ("ads-1", "ads-2"))
    assert (clicks.rep, clicks.label, clicks.producer_column) == (True, None, "id")
    assert (clicks.late, clicks.seal_timeout_s, clicks.lateness) == ("fail", 120.0, "1 hour")
    assert (clicks.id, clicks.delivery) == (("id", "window"), "may-repeat")
    assert clicks.remember_s == 7 * 86400.0
    assert clicks.description == "every click"
    requests = streams["requests"]
    assert requests.label is Label.INST
    assert requests.producers == Producers("registered", registrations="who.json")
    assert requests.seals == (frozenset({"id"}),)
    assert streams["responses"].sink == External("parquet", "out")
    assert (streams["logs"].late, streams["logs"].seal_timeout_s) == ("dead-letter", 600.0)
    assert (requests.id, requests.delivery, requests.remember_s) == ((), None, None)


def test_the_rest_of_a_file_arrives() -> None:
    dataflow = full(Report="POOR")
    assert dataflow.name == "ad-network"
    assert list(map(str, dataflow.fds)) == ["id -> campaign", "ad <-> id"]
    conf = {"spark.sql.shuffle.partitions": "4"}
    access = {"user": "job", "password": "${env:ZK}", "ca": "ca.pem"}
    assert dataflow.deployment == Deployment(
        master="local[2]",
        zookeeper="a:2181,b:2181",
        zookeeper_access=access,
        trigger="10 seconds",
        conf=conf,
        sites=5,
        partitions=6,
        balance="memory",
        site_memory="2g",
        keep_every=50,
    )
    assert dataflow.sha256 == hashlib.sha256(FULL.encode()).hexdigest()
    assert dataflow.file is None


def test_a_dataflow_cannot_be_changed() -> None:
    dataflow = full(Report="POOR")
    with pytest.raises(TypeError):
        dataflow.components["Other"] = dataflow.components["Report"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        dataflow.streams.clear()  # type: ignore[attr-defined]


def test_a_dataflow_of_one_component_needs_little() -> None:
    dataflow, warnings = loads("A: {annotation: {from: a, to: b, label: CR}}")
    assert warnings == ()
    assert (dataflow.name, dataflow.fds, dataflow.deployment) == ("dataflow", (), Deployment())


def test_a_listing_may_have_the_other_sections() -> None:
    dataflow, warnings = loads(
        "A: {annotation: {from: a, to: b, label: CR}}\n"
        "name: small\n"
        "streams: {in: {to: A.a, seal: [x]}, out: {from: A.b}}\n"
        "fds: x -> y\n"
        "deployment: {master: local}\n"
    )
    assert [warning.code.id for warning in warnings] == ["BLZ052"]
    assert (dataflow.name, list(dataflow.streams), dataflow.deployment.master) == (
        "small",
        ["in", "out"],
        "local",
    )


# ---- mistakes


def test_all_mistakes_come_in_one_run_and_in_the_order_of_the_file() -> None:
    text = """
components:
  A:
    annotation: {from: a, to: b, label: CX}
    Rep: maybe
  B: {annotation: {from: b, to: c, label: CR, subscript: [x]}, replicas: 2}
streams:
  a: {to: C.a}
  b: {from: A.b, to: B.c, seel: [x]}
fds: [x > y]
deployment: {zookeper: embedded}
"""
    assert problems(text) == [
        "f.yaml:4:41 BLZ020",
        "f.yaml:5:10 BLZ011",
        "f.yaml:6:47 BLZ021",
        "f.yaml:6:74 BLZ060",
        "f.yaml:8:11 BLZ040",
        "f.yaml:9:22 BLZ041",
        "f.yaml:9:27 BLZ010",
        "f.yaml:10:9 BLZ020",
        "f.yaml:11:14 BLZ010",
    ]


def test_a_mistake_in_something_aliased_is_reported_once_where_it_is_written() -> None:
    text = """
x-path: &path {from: a, to: b, lable: CR}
components:
  A: {annotation: *path}
  B: {annotation: [*path]}
"""
    assert problems(text) == ["f.yaml:2:32 BLZ010"]


@pytest.mark.parametrize(
    "spoilt",
    [
        "components: [A]\nstreams: {a: {to: A.a}}",
        "components: {A: 1}\nstreams: {a: {to: A.a}, b: {from: A.b}}",
        "components: {A: {annotation: {from: [a], to: b}}}\nstreams: {a: {to: A.a}}",
        "components: {A: {annotation: {from: a, to: b, label: CR}}}\nstreams: [a]",
        "components: {A: {annotation: {from: a, to: b, label: CR}}}\nstreams: {a: 1}",
        "components: {A: {annotation: {from: a, to: b, label: CR}}}\nstreams: {a: {to: [A]}}",
        "components: {A: {annotation: {from: a, to: b, label: CR}}}\nstreams: {no: {to: A.a}}",
    ],
)
def test_one_mistake_gives_one_diagnostic(spoilt: str) -> None:
    assert len(problems(spoilt)) == 1


def test_suggestions_end_where_there_are_very_many_mistakes() -> None:
    paths = "".join(f"  - {{from: a{i}, to: b, lable: CR}}\n" for i in range(300))
    with pytest.raises(BadInput) as caught:
        loads("A:\n  annotation:\n" + paths)
    messages = [found.message for found in caught.value.diagnostics]
    assert len(messages) == 300
    assert sum("did you mean" in m for m in messages) == Findings.SUGGESTIONS_MAX


def test_near_words_are_found_among_very_many() -> None:
    known = [f"component{i}" for i in range(5000)]
    assert did_you_mean("compnent17", ["component17", *known[:10]]).startswith("; did you mean")
    assert did_you_mean("Splitter", ["splitter", "split"]) == "; did you mean splitter?"
    assert did_you_mean("component4999x", known) != ""
    assert did_you_mean("xyz", known) == ""


# ---- files


def test_a_file_is_named_after_itself(tmp_path: Path) -> None:
    file = tmp_path / "my word count.v2.yaml"
    file.write_bytes(b"\xef\xbb\xbfA: {annotation: {from: a, to: b, label: CR}}\r\n")
    dataflow, _ = load(file)
    assert dataflow.name == "my-word-count-v2"
    assert dataflow.file == file
    assert dataflow.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert str(dataflow.components["A"].position) == f"{file}:1:1"


@pytest.mark.parametrize(
    ("file", "name"),
    [("a.-b.yaml", "a-b"), ("größe_1.yml", "größe_1"), ("...", "dataflow"), ("-x-.yaml", "x")],
)
def test_the_name_of_a_file_becomes_a_name(tmp_path: Path, file: str, name: str) -> None:
    (tmp_path / file).write_text("A: {annotation: {from: a, to: b, label: CR}}")
    assert load(tmp_path / file)[0].name == name


def refusal(file: str | Path) -> str:
    with pytest.raises(BadInput) as caught:
        load(file)
    (found,) = caught.value.diagnostics
    assert found.code.id == "BLZ001"
    return str(found).splitlines()[0]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert refusal(missing) == f"BLZ001 {missing} cannot be read: No such file or directory"
    assert refusal(tmp_path) == f"BLZ001 {tmp_path} cannot be read: Is a directory"
    assert "cannot be read" in refusal("a\0b")


def test_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes("é:\n  x: größe".encode()[:10] + b"\xf6\xdfe")
    assert refusal(file) == f"{file}:2:7 BLZ001 byte 11 of {file} is not UTF-8"
    file.write_bytes("a: b".encode("utf-16"))
    assert "is not UTF-8" in refusal(file)


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_file, "BYTES_MAX", 2**20)
    file = tmp_path / "large.yaml"
    file.write_bytes(b"#" * (2**20 + 1))
    assert refusal(file) == f"BLZ001 {file} has more than 1 MiB"


# ---- speed


@pytest.mark.parametrize("fails", [False, True])
def test_the_cycle_collector_is_on_again_afterwards(fails: bool) -> None:
    assert gc.isenabled()
    if fails:
        with pytest.raises(BadInput):
            loads("[")
    else:
        full()
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("text", "imported"),
    [
        ("A: {annotation: {from: a, to: b, label: OW, subscript: [x]}}", False),
        ("A: {annotation: {from: a, to: b, label: 'OW[x]'}}", True),
        ("A: {annotation: {from: a, to: b, label: CR}}\nfds: [a -> b]", True),
    ],
)
def test_lark_is_imported_only_where_it_is_needed(text: str, imported: bool) -> None:
    code = (
        "import sys\nfrom annotations.file import loads\n"
        f"loads({text!r})\nsys.exit('lark' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False, timeout=60)
    assert bool(done.returncode) == imported


def chain(components: int) -> str:
    lines = ["components:"]
    for i in range(components):
        path = f"{{from: s{i}, to: s{i + 1}, label: OW, subscript: [word, batch]}}"
        lines.append(f"  C{i}: {{annotation: {path}}}")
    lines += ["streams:", "  st0: {to: C0.s0, seal: [batch]}"]
    lines += [f"  st{i}: {{from: C{i - 1}.s{i}, to: C{i}.s{i}}}" for i in range(1, components)]
    return "\n".join([*lines, f"  end: {{from: C{components - 1}.s{components}}}"]) + "\n"


@pytest.mark.parametrize("broken", [False, True])
def test_mistakes_everywhere_are_found_in_linear_time(broken: bool) -> None:
    text = chain(4000)
    if broken:
        text = text.replace("from: C", "from: D").replace("label: OW", "label: XX")
    started = time.process_time()
    found = problems(text)
    assert time.process_time() - started < 10
    assert len(found) == (2 * 4000 if broken else 0)


@pytest.mark.parametrize(
    ("code", "more", "says"),
    [
        ("python: f:tag", "", "Tag a->b is CR and copies k unchanged (its code is not read)"),
        ("python: f:tag", ", lineage: {}", "Tag a->b is CR (its code is not read)"),
        ("python: f:tag", ", why: it does", None),
        ("sql: SELECT k FROM a", "", None),
        ("sql: SELECT abs(k) AS k FROM a", "", None),
    ],
)
def test_what_is_written_beside_code_that_is_not_read_is_taken_for_granted(
    code: str, more: str, says: str | None
) -> None:
    text = f"""
    components:
      Tag: {{annotation: {{from: a, to: b, label: CR{more}}}, {code}}}
      Later: {{annotation: {{from: b, to: c, label: CR}}, python: f:later}}
    streams:
      a: {{to: Tag.a, seal: [k], schema: {{k: BIGINT}}}}
      b: {{from: Tag.b, to: Later.b, schema: {{k: BIGINT}}}}
      c: {{from: Later.c, schema: {{n: BIGINT}}}}
    """
    components = loads(text)[0].components
    assumed = [reason.text for reason in components["Tag"].paths[0].assumed]
    assert assumed == ([] if says is None else [says])
    (later,) = components["Later"].paths[0].assumed
    assert later.text == "Later b->c is CR (its code is not read)"


@pytest.mark.parametrize(
    ("query", "anew"),
    [
        ("SELECT n, k, w FROM r", False),
        ("SELECT n AS m, k, w FROM r", False),
        ("SELECT n, k, upper(w) AS w FROM r", False),
        ("SELECT n DIV 2 AS n, k, w FROM r", True),
        ("SELECT n, n AS k, w FROM r", True),
        ("SELECT max(n) AS n, k FROM r GROUP BY k", True),
        ("SELECT a.n, b.k FROM r a JOIN r b ON a.w = b.w", True),
    ],
)
def test_a_dependency_of_rows_that_are_made_anew_is_taken_for_granted(
    query: str, anew: bool
) -> None:
    text = f"""
    fds: [n -> k]
    components:
      F: {{sql: "{query}"}}
      A: {{sql: "SELECT k, count(*) AS c FROM f GROUP BY k"}}
    streams:
      r: {{to: F.r, seal: [k], schema: {{k: INT, n: INT, w: STRING}}}}
      f: {{from: F.out, to: A.f}}
      o: {{from: A.out}}
    """
    (path,) = loads(text)[0].components["F"].paths
    says = ["n -> k holds of the rows that F makes, too"] if anew else []
    assert [reason.text for reason in path.assumed] == says

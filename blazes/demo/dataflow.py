"""The dataflow of the anomalies demonstration: the ad network's Report with the query CAMPAIGN."""

from __future__ import annotations

from typing import Final

from annotations.dataflow import Dataflow
from annotations.file import loads
from annotations.vocabulary import Label
from blazes.analysis import analyze
from blazes.coordination import plan

SEAL: Final = "    seal: [campaign]\n"
TEXT: Final = f"""\
name: anomalies
components:
  Report:
    Rep: true
    annotation:
      - {{from: click, to: response, label: CW}}
      - {{from: request, to: response, label: OR, subscript: [id, campaign]}}
    sql: >-
      SELECT q.request, q.id, q.campaign, q.`window`
      FROM request q JOIN click c ON q.id = c.id AND q.campaign = c.campaign
      GROUP BY q.request, q.id, q.campaign, q.`window` HAVING count(*) < 100
streams:
  clicks:
    to: Report.click
{SEAL}\
    schema:
      campaign: INT
      id: INT
      window: INT
      clicked_at: STRING
      server: STRING
      sealed: BOOLEAN
      count: BIGINT
  requests:
    to: Report.request
    schema: {{request: BIGINT, analyst: STRING, id: INT, campaign: INT, window: INT}}
  answers: {{from: Report.response}}
"""

UNCOORDINATED: Final = "uncoordinated"
ORDERED: Final = "ordered"
SEALED: Final = "sealed"
WAYS: Final = (UNCOORDINATED, ORDERED, SEALED)


def report(*, sealed: bool = True) -> Dataflow:
    """The dataflow, with the seal on the clicks or without."""
    dataflow, _ = loads(TEXT if sealed else TEXT.replace(SEAL, ""), file="anomalies")
    return dataflow


def query() -> str:
    """The query of Report, in Spark SQL over `click` and `request`."""
    text = report().components["Report"].implementations["response"].sql
    assert text is not None
    return text


def schema(stream: str) -> str:
    """The columns of a stream, as Spark writes them."""
    columns = report().streams[stream].schema or {}
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def verdicts() -> dict[str, str]:
    """The labels of the answers, for each way of coordination.

    An order that every run decides anew leaves `Run`: it is the target at which the plan orders.
    """
    racing = analyze(report(sealed=False))
    sealed = plan(analyze(report()))
    return {
        UNCOORDINATED: str(racing.labels["answers"]),
        ORDERED: str(plan(racing, target=Label.RUN).repaired["answers"]),
        SEALED: str(sealed.repaired["answers"]),
    }

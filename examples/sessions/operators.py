"""The two operators of the session job, each of one partition; made once per copy."""

from flux_runtime.operators import CountWindow, Sessions
from flux_runtime.protocol.dataflow import Operator


def sessions() -> Operator:
    """(src, dst, app, time, last) in; app, src and duration of every session that ends, out."""
    return Sessions(["src", "dst"], "time", "last", keep=["app", "src"])


def statistics() -> Operator:
    """Longest and mean duration of the last two sessions of an (app, src), every second one."""
    return CountWindow(["app", "src"], "duration", history=2, slide=2)

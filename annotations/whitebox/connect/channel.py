"""A gRPC channel that ends in this process, and a Spark Connect session over it.

`SparkSession.builder.channelBuilder(...)` is the client's public hook for channels of one's own. No
server, no JVM, no socket: a call is a method of `Answers`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from annotations.whitebox.connect.answers import Answers

NOWHERE: Final = "sc://in-process:1"


def prepare() -> None:
    """Make PySpark choose Connect; to be called before anything of PySpark is imported."""
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    os.environ["SPARK_REMOTE"] = NOWHERE
    os.environ.pop("SPARK_LOCAL_REMOTE", None)


class _Call:
    """The result of a streaming call: an iterator with metadata, of which there is none."""

    def __init__(self, responses: Iterable[Any]) -> None:
        self._responses = iter(responses)

    def __iter__(self) -> Iterator[Any]:
        return self._responses

    def __next__(self) -> Any:
        return next(self._responses)

    def trailing_metadata(self) -> tuple[()]:
        return ()

    def initial_metadata(self) -> tuple[()]:
        return ()

    def cancel(self) -> None:
        """Nothing is under way."""


def session(answers: Answers) -> Any:
    """A Spark Connect session whose every call `answers` answers; it becomes the default one."""
    import grpc
    from pyspark.sql.connect.client import ChannelBuilder
    from pyspark.sql.connect.session import SparkSession

    class Channel(grpc.Channel):  # type: ignore[misc]
        """Method names are the last part of a path: `/spark.connect.SparkConnectService/Config`."""

        def unary_unary(self, path: str, *_: Any, **__: Any) -> Callable[..., Any]:
            answer = getattr(answers, path.rpartition("/")[2])
            return lambda request, **__: answer(request)

        def unary_stream(self, path: str, *_: Any, **__: Any) -> Callable[..., Any]:
            answer = getattr(answers, path.rpartition("/")[2])
            return lambda request, **__: _Call(answer(request))

        def stream_unary(self, path: str, *_: Any, **__: Any) -> Callable[..., Any]:
            answer = getattr(answers, path.rpartition("/")[2])
            return lambda requests, **__: answer(list(requests))

        def stream_stream(self, path: str, *_: Any, **__: Any) -> Callable[..., Any]:
            raise NotImplementedError(path)

        def subscribe(self, callback: Any, try_to_connect: bool = False) -> None:
            """The state of this channel never changes."""

        def unsubscribe(self, callback: Any) -> None:
            """Nobody is subscribed."""

        def close(self) -> None:
            """Nothing is open."""

        def __enter__(self) -> Channel:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    class Builder(ChannelBuilder):
        @property
        def host(self) -> str:
            return "in-process"

        @property
        def endpoint(self) -> str:
            return "in-process:1"

        def toChannel(self) -> Any:  # noqa: N802
            return Channel()

    builder: Any = Builder()
    spark = SparkSession.builder.channelBuilder(builder).create()
    # A call that has been answered needs no second channel over which to take it up again.
    spark.client._use_reattachable_execute = False
    SparkSession._set_default_and_active_session(spark)
    return spark

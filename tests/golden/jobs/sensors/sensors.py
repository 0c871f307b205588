# ruff: noqa
"""As in docs/how-to/stateful-processors.md."""

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Silence(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.heard = handle.getListState("heard", "temperature INT")

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            self.heard.appendValue((row.temperature,))
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(int(row.at.timestamp() * 1000) + 3000)
        yield from ()

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        heard = [temperature for (temperature,) in self.heard.get()]
        self.heard.clear()
        yield Row(id=key[0], since=expiredTimerInfo.getExpiryTimeInMs(), heard=sum(heard))

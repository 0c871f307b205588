"""Tables of databases: rows that are committed exactly once, through JDBC.

The executors write the rows of a commit to a staging table beside the target. Then one transaction
of the driver notes the number of the commit and moves the rows: the note says which number the
table has from which unit, and changes only from a smaller number to a greater one, and only in the
hands of the driver that took the table over last. Where it does not change, nothing is moved. So a
commit that is repeated after a crash does nothing, and a driver that was replaced can move nothing,
whenever it wakes up.

The notes are in a table `blazes_commits` beside the target, one row for each unit that writes to a
sink of a job. A table that is replaced row by row (`key`) loses the rows of equal key in the same
transaction.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, NoReturn

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from flux_runtime.commits.owner import Ownership
from flux_runtime.spark import faults
from flux_runtime.spark.ends.sinks import Claim, Note, SinkError, covers_digest

log = logging.getLogger(__name__)

NOTES: Final = "blazes_commits"
"""The table of notes: which commit of which unit a table has got last."""
ATTEMPTS: Final = 5
"""So often a commit is tried that the database ends for another one's sake (a deadlock)."""
OPEN_S: Final = 30
"""How long a driver that stands still keeps its transaction, in a database that can end it."""
TAKE_OVER_S: Final = 90
"""How long a driver that takes a table over waits for the transaction of the one before."""
_COLUMNS: Final = (
    "job_name VARCHAR(200) NOT NULL, sink_name VARCHAR(200) NOT NULL, "
    "unit_name VARCHAR(200) NOT NULL, state_id VARCHAR(40) NOT NULL, "
    "driver_epoch NUMERIC(19) NOT NULL, commit_number NUMERIC(19) NOT NULL, "
    "covers_digest VARCHAR(64) NOT NULL, PRIMARY KEY (job_name, sink_name, unit_name)"
)
_WHOSE: Final = "job_name = ? AND sink_name = ? AND unit_name = ?"
_NAME: Final = re.compile(r"""(?:(.+)\.)?((?:\w|\$)+|"[^"]+"|`[^`]+`|\[[^\]]+\])""", re.S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that a sink writes to.

    Args:
        name: of the sink.
        options: Spark's options of the format `jdbc`; `url` and `dbtable` are among them.
        key: the columns by which rows are replaced; empty: rows are added.
        session: to reach the database with; `taken` sets it and `ownership`.
        ownership: the driver's claim; without one nothing can be committed.
    """

    exact: ClassVar[bool] = True
    needs_channel: ClassVar[bool] = True
    name: str
    options: Mapping[str, str] = field(repr=False)
    key: tuple[str, ...] = ()
    session: SparkSession | None = field(default=None, repr=False)
    ownership: Ownership | None = None

    def __post_init__(self) -> None:
        options = {name.lower(): text for name, text in self.options.items()}
        missing = [name for name in ("url", "dbtable") if not options.get(name)]
        if missing:
            raise ValueError(f"sink {self.name}: a jdbc sink needs the options {missing}")
        if _NAME.fullmatch(options["dbtable"]) is None:
            raise ValueError(
                f"sink {self.name}: {options['dbtable']} is not the name of a table; write "
                "`dbtable: schema.table`"
            )

    @property
    def target(self) -> str:
        """The table, as SQL text: the file's own word."""
        return next(text for name, text in self.options.items() if name.lower() == "dbtable")

    @property
    def place(self) -> str:
        """The name that messages have for it."""
        return f"table {self.target}"

    # ---- taking over

    def taken(self, session: SparkSession, ownership: Ownership, units: Iterable[str]) -> Table:
        """See `CommitSink`."""
        mine = replace(self, session=session, ownership=ownership)
        with mine._connection() as database:
            database.make_notes(mine._notes)
            for unit in units:
                mine._take(database, unit)
        return mine

    def _take(self, database: Database, unit: str) -> None:
        owner = self._owner
        try:  # some databases let nobody read what a transaction has changed
            note = self._read(database, unit, limit_s=TAKE_OVER_S)
            if self._claim.begins(note, unit):
                self._begin(database, unit)
                return
            taken = database.update(
                f"UPDATE {self._notes} SET driver_epoch = ? WHERE {_WHOSE} AND state_id = ? "
                "AND driver_epoch <= ?",
                *(owner.driver.epoch, *self._whose(unit), owner.state_id, owner.driver.epoch),
                limit_s=TAKE_OVER_S,
            )
        except Py4JJavaError as error:
            raise SinkError(
                f"sink {self.name}: {self.place} could not be taken over: {_words(error)}. Where "
                "an older driver stands still in a transaction, end its process, or its session "
                "in the database, and start again; nothing was changed"
            ) from None
        if not taken:
            self._raise_replaced(database, unit)
        database.commit()
        if note is not None and note.epoch != owner.driver.epoch:
            database.drop(self._staging(unit, note.epoch))

    def _begin(self, database: Database, unit: str) -> None:
        owner = self._owner
        database.update(
            f"DELETE FROM {self._notes} WHERE {_WHOSE}", *self._whose(unit), limit_s=TAKE_OVER_S
        )
        database.update(
            f"INSERT INTO {self._notes} (job_name, sink_name, unit_name, state_id, driver_epoch, "
            "commit_number, covers_digest) VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(*self._whose(unit), owner.state_id, owner.driver.epoch, -1, ""),
        )
        database.commit()

    # ---- commits

    def newest(self, unit: str) -> int | None:
        """See `CommitSink`."""
        with self._connection() as database:
            note = self._read(database, unit)
        return None if note is None or note.number < 0 else note.number

    def commit(self, unit: str, number: int, rows: DataFrame, *, covers: Any = None) -> int:
        """See `CommitSink`."""
        owner, digest = self._owner, covers_digest(covers)
        owner.fence.check()
        with self._connection() as database:
            if self._is_made(database, unit, number, digest):
                return 0
            there = database.columns_of(self.target) is not None
        if self.key:
            rows = rows.dropDuplicates([*self.key])
        count = rows.count()
        if count and not there:  # Spark makes the table that is not there
            self._write(rows.limit(0), self.target)
        staging = self._staging(unit, owner.driver.epoch)
        with self._connection() as database:
            columns = self._stage(database, rows, staging, count) if count else {}
            faults.point("table-staged")
            moved = self._move(database, unit, number, digest, staging, columns, count)
            faults.point("table-committed")
            database.drop(staging)
        self._claim.note_commit(unit, number)
        return count if moved else 0

    def _is_made(self, database: Database, unit: str, number: int, digest: str) -> bool:
        return self._claim.is_made(self._read(database, unit), unit, number, digest)

    def _stage(
        self, database: Database, frame: DataFrame, staging: str, rows: int
    ) -> dict[str, bool]:
        """Write the rows beside the table, each once, though a task may have run twice.

        Returns:
            The table's name of each column of the rows, and whether it may be NULL.
        """
        has = database.columns_of(self.target) or {}
        by_name = {name.lower(): name for name in has} | {name: name for name in has}
        unknown = [column for column in frame.columns if column.lower() not in by_name]
        if unknown:
            raise SinkError(
                f"sink {self.name}: {self.place} has no column {', '.join(unknown)}; it has "
                f"{', '.join(has)}. Add the columns, or name them alike in the dataflow"
            )
        names = [by_name.get(column) or by_name[column.lower()] for column in frame.columns]
        for _ in range(ATTEMPTS):
            database.make_like(staging, self.target, names)
            self._write(frame.toDF(*names), staging)
            staged_rows = database.count(staging)
            if staged_rows == rows:
                return {name: has[name] for name in names}
            log.warning("%s has %d rows in place of %d: written again", staging, staged_rows, rows)
        raise SinkError(
            f"sink {self.name}: {staging} did not get {rows} rows in {ATTEMPTS} attempts; nothing "
            "was committed"
        )

    def _write(self, frame: DataFrame, table: str) -> None:
        options = {n: text for n, text in self.options.items() if n.lower() != "dbtable"}
        frame.write.format("jdbc").options(**options, dbtable=table).mode("append").save()

    def _move(
        self,
        database: Database,
        unit: str,
        number: int,
        digest: str,
        staging: str,
        columns: Mapping[str, bool],
        rows: int,
    ) -> bool:
        """Note the number and move what was staged, in one step; False: it had been moved."""
        for attempt in range(ATTEMPTS):
            try:
                changed = database.update(
                    f"UPDATE {self._notes} SET commit_number = ?, covers_digest = ? "
                    f"WHERE {_WHOSE} AND state_id = ? AND driver_epoch = ? AND commit_number < ?",
                    *(number, digest, *self._whose(unit), self._owner.state_id),
                    *(self._owner.driver.epoch, number),
                )
                if not changed:
                    database.rollback()
                    if self._is_made(database, unit, number, digest):
                        return False
                    self._raise_replaced(database, unit)
                if columns:
                    self._move_rows(database, staging, columns, rows)
                faults.point("table-moved")
                database.commit()
                return True
            except Py4JJavaError as error:
                with contextlib.suppress(Py4JJavaError):  # the connection may have ended
                    database.rollback()
                self._owner.fence.check()
                if not _is_transient(error) or attempt == ATTEMPTS - 1:
                    raise SinkError(
                        f"sink {self.name}: {self.place} did not take commit {number} of "
                        f"{unit}: {_words(error)}; nothing was changed, and the rows are kept in "
                        "the state. Repair the table and start the job again"
                    ) from None
        raise AssertionError("unreachable")

    def _move_rows(
        self, database: Database, staging: str, columns: Mapping[str, bool], rows: int
    ) -> None:
        quoted = {name: database.quoted(name) for name in columns}
        if self.key:
            of_key = {column.lower() for column in self.key}
            keys = ", ".join(text for name, text in quoted.items() if name.lower() in of_key)
            ((different,),) = database.query(
                f"SELECT COUNT(*) FROM (SELECT DISTINCT {keys} FROM {staging}) keys_of_rows"
            )
            if int(different) != rows:
                raise SinkError(
                    f"sink {self.name}: {rows - int(different)} of {rows} rows have keys "
                    f"({', '.join(self.key)}) that differ in the job and are equal in "
                    f"{self.place}, which rounds them, or compares texts by other rules (case, "
                    "blanks at the end): which row stays would be left to chance. Give the key's "
                    "columns a type and collation that tell them apart, or make the keys alike in "
                    "the component; nothing was changed"
                )
            same = " AND ".join(
                _same(f"{staging}.{text}", f"{self.target}.{text}", nullable=columns[name])
                for name, text in quoted.items()
                if name.lower() in of_key
            )
            database.update(
                f"DELETE FROM {self.target} WHERE EXISTS (SELECT 1 FROM {staging} WHERE {same})"
            )
        listed = ", ".join(quoted.values())
        database.update(f"INSERT INTO {self.target} ({listed}) SELECT {listed} FROM {staging}")

    # ---- parts

    @property
    def _owner(self) -> Ownership:
        if self.ownership is None:
            raise ValueError(f"nobody owns {self.target}")
        return self.ownership

    @property
    def _claim(self) -> Claim:
        return Claim(self.name, self.place, self._owner, f"the table {self._notes}")

    def _connection(self) -> contextlib.AbstractContextManager[Database]:
        if self.session is None:
            raise ValueError(f"{self.target} was not taken over")
        return connected(self.session, self.options, sink=self.name)

    @property
    def _notes(self) -> str:
        return self._beside(NOTES)

    def _staging(self, unit: str, epoch: int) -> str:
        whose = hashlib.sha256("\0".join(self._whose(unit)).encode()).hexdigest()[:10]
        return self._beside(f"blazes_{whose}_{epoch}")

    def _beside(self, name: str) -> str:
        match = _NAME.fullmatch(self.target)
        assert match is not None
        return name if match[1] is None else f"{match[1]}.{name}"

    def _whose(self, unit: str) -> tuple[str, str, str]:
        return (self._owner.job, self.name, unit)

    def _read(self, database: Database, unit: str, *, limit_s: int = 0) -> Note | None:
        rows = database.query(
            "SELECT state_id, driver_epoch, commit_number, covers_digest FROM "
            f"{self._notes} WHERE {_WHOSE}",
            *self._whose(unit),
            limit_s=limit_s,
        )
        database.commit()
        if not rows:
            return None
        ((state, epoch, number, covers),) = rows
        return Note(state, int(epoch), int(number), covers or "")

    def _raise_replaced(self, database: Database, unit: str) -> NoReturn:
        raise self._claim.replaced(self._read(database, unit))


class Database:
    """A connection of the driver, in a transaction; made by `connected`."""

    def __init__(self, connection: Any, dialect: Any) -> None:
        self._connection = connection
        self._dialect = dialect

    def update(self, statement: str, *values: str | int, limit_s: int = 0) -> int:
        """Carry a statement out, within a limit of time if there is one; rows that it changed."""
        with self._prepared(statement, values) as prepared:
            prepared.setQueryTimeout(limit_s)
            return int(prepared.executeUpdate())

    def query(self, statement: str, *values: str | int, limit_s: int = 0) -> list[list[Any]]:
        """The rows of an answer, as texts, within a limit of time if there is one."""
        with self._prepared(statement, values) as prepared:
            prepared.setQueryTimeout(limit_s)
            answer = prepared.executeQuery()
            width = answer.getMetaData().getColumnCount()
            rows = []
            while answer.next():
                rows.append([answer.getString(at) for at in range(1, width + 1)])
            return rows

    def limit_transactions(self, url: str) -> None:
        """Have the database end a transaction in which this process stands still (`OPEN_S`).

        Its locks would hold back the driver that takes over. Other databases than PostgreSQL have
        no such limit; there the newer driver waits for `TAKE_OVER_S`, and says so.
        """
        if url.startswith("jdbc:postgresql:"):
            self.update(f"SET idle_in_transaction_session_timeout = '{OPEN_S}s'")
            self.commit()

    def commit(self) -> None:
        """End the transaction; what it did stays."""
        self._connection.commit()

    def rollback(self) -> None:
        """End the transaction; what it did is undone."""
        self._connection.rollback()

    def count(self, table: str) -> int:
        """Rows of a table."""
        ((rows,),) = self.query(f"SELECT COUNT(*) FROM {table}")
        self.commit()
        return int(rows)

    def columns_of(self, table: str) -> dict[str, bool] | None:
        """Column -> whether it may be NULL; None: there is no such table."""
        try:
            with self._prepared(f"SELECT * FROM {table} WHERE 1 = 0", ()) as prepared:
                metadata = prepared.executeQuery().getMetaData()
                columns = {
                    metadata.getColumnName(at): metadata.isNullable(at) != 0
                    for at in range(1, metadata.getColumnCount() + 1)
                }
        except Py4JJavaError:
            self.rollback()
            return None
        self.commit()
        return columns

    def make_like(self, table: str, other: str, columns: Iterable[str]) -> None:
        """Make a table with columns of another one, and no rows; one that is there goes."""
        self.drop(table)
        listed = ", ".join(map(self.quoted, columns))
        self._first_of(  # databases do not agree on how that is said
            f"CREATE TABLE {table} AS SELECT {listed} FROM {other} WHERE 1 = 0",
            f"CREATE TABLE {table} AS SELECT {listed} FROM {other} WITH NO DATA",
            f"SELECT {listed} INTO {table} FROM {other} WHERE 1 = 0",
        )

    def make_notes(self, table: str) -> None:
        """Make the table of notes if it is not there."""
        if self.columns_of(table) is None:
            with contextlib.suppress(Py4JJavaError):  # another driver may have been quicker
                self.update(f"CREATE TABLE {table} ({_COLUMNS})")
            self.commit()

    def drop(self, table: str) -> None:
        """Drop a table if it is there."""
        if self.columns_of(table) is not None:
            self.update(f"DROP TABLE {table}")
            self.commit()

    def quoted(self, name: str) -> str:
        """A column, as SQL text of this database."""
        return str(self._dialect.quoteIdentifier(name))

    def _first_of(self, *statements: str) -> None:
        for statement in statements:
            try:
                self.update(statement)
                self.commit()
                return
            except Py4JJavaError as error:
                self.rollback()
                problem = error
        raise problem

    @contextlib.contextmanager
    def _prepared(self, statement: str, values: Sequence[str | int]) -> Iterator[Any]:
        prepared = self._connection.prepareStatement(statement)
        try:
            for at, value in enumerate(values, 1):
                if isinstance(value, int):
                    prepared.setLong(at, value)
                else:
                    prepared.setString(at, value)
            yield prepared
        finally:
            prepared.close()


@contextlib.contextmanager
def connected(
    session: SparkSession, options: Mapping[str, str], *, sink: str
) -> Iterator[Database]:
    """A connection to the database of a sink, as Spark's own writer makes it.

    Raises:
        SinkError: no connection, or a database without transactions.
    """
    jvm: Any = session._jvm
    given = jvm.PythonUtils.toScalaMap({name.lower(): text for name, text in options.items()})
    url = next(text for name, text in options.items() if name.lower() == "url")
    try:
        jdbc = jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcOptionsInWrite(given)
        dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(url)
        connection = dialect.createConnectionFactory(jdbc).apply(-1)
    except Py4JJavaError as error:
        raise SinkError(
            f"sink {sink}: no connection to the database: {_words(error)}. Look at url, driver, "
            "user and password; the JDBC driver comes with `spark.jars.packages` or `spark.jars`"
        ) from None
    try:
        if not connection.getMetaData().supportsTransactions():
            raise SinkError(
                f"sink {sink}: this database has no transactions, so that rows cannot be committed "
                "exactly once; without `key` and `delivery: once` they are appended"
            )
        connection.setAutoCommit(False)
        database = Database(connection, dialect)
        database.limit_transactions(url)
        yield database
    finally:
        with contextlib.suppress(Py4JJavaError):
            connection.rollback()
        with contextlib.suppress(Py4JJavaError):
            connection.close()


def _same(one: str, other: str, *, nullable: bool) -> str:
    equal = f"{one} = {other}"
    return f"({equal} OR ({one} IS NULL AND {other} IS NULL))" if nullable else equal


def _is_transient(error: Py4JJavaError) -> bool:
    """Whether a transaction was ended for another one's sake (SQLSTATE class 40)."""
    state = getattr(error.java_exception, "getSQLState", lambda: None)
    try:
        return str(state() or "").startswith("40")
    except Exception:  # no SQLException
        return False


def _words(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage()).partition("\n")[0]

"""Mistakes planted in the product, one at a time, to see that the sweep finds them.

    python -m flux_lab.shell mistakes [--seeds 200] [--only NAME]

Each changes a line of a function of the product in this process: its text is taken, a piece that
occurs exactly once in it is replaced, and the result stands in the function's place while seeds
run, until one violates something.
"""

from __future__ import annotations
import __future__

import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from flux_lab.papers import intake as papers_intake
from flux_lab.papers.host import Host
from flux_lab.papers.ledger import PapersLedger
from flux_lab.papers.moving import Moving
from flux_lab.papers.protocol.producer import ProducerSide
from flux_lab.shell.sweep import run
from flux_runtime.operators import packing, processor_state
from flux_runtime.operators.partitioned import Partitioned
from flux_runtime.resume import controller as resume_controller
from flux_runtime.site import (
    collector,
    connection,
    controller,
    intake,
    keeping,
    moving,
    view,
    worker,
)
from flux_runtime.site.client import Client
from flux_runtime.site.client_service import ClientService
from flux_runtime.site.copies import ReplicaCopy
from flux_runtime.site.feeder import Feeder
from flux_runtime.site.finding import ZooKeeperFinder
from flux_runtime.site.journal import Journal
from flux_runtime.site.leader import Leader
from flux_runtime.site.leader_state import LeaderState
from flux_runtime.site.ledger import Ledger
from flux_runtime.site.reader import Reader
from flux_runtime.site.resume_host import ResumeHost
from flux_runtime.site.resume_host import Snapshots as ResumeSnapshots
from flux_runtime.site.resume_ledger import PlacingController, ResumeLedger
from flux_runtime.site.site_state import SiteState
from flux_runtime.site.view import View
from flux_runtime.zookeeper import control as control_log
from flux_runtime.zookeeper import membership, tail, watcher
from flux_runtime.zookeeper.election import Candidate, Leadership

CHANCE: Final = "__import__('random').Random(self.bytes_in * 31 + len(body[0])).random()"
"""A draw that follows from the run, so that a seed finds the same again."""


class Mistake(NamedTuple):
    """One line of the product turned into another.

    Attributes:
        name: what is wrong then.
        owner: the class or module of the function.
        function: its name.
        old, new: the piece of its text, and what stands there.
        setting: where it is looked for.
    """

    name: str
    owner: Any
    function: str
    old: str
    new: str
    setting: str = "any"


MISTAKES: Final = (
    # what is said
    Mistake(
        "control messages are dropped",
        connection.Connection,
        "send",
        "if self.open:",
        f"if self.open and not (kind is Kind.CONTROL and {CHANCE} < 0.03):",
    ),
    Mistake(
        "control messages come twice",
        connection.Connection,
        "send",
        "self.out.add(kind, *body)",
        "self.out.add(kind, *body)\n"
        f"        if kind is Kind.CONTROL and {CHANCE} < 0.1:\n"
        "            self.out.add(kind, *body)",
    ),
    Mistake(
        "control messages overtake each other",
        connection.Connection,
        "send",
        "self.out.add(kind, *body)",
        "held = self.__dict__.pop('held', ())\n"
        f"        if kind is Kind.CONTROL and not held and {CHANCE} < 0.1:\n"
        "            self.held = (kind, *body)\n"
        "        else:\n"
        "            self.out.add(kind, *body)\n"
        "            if held:\n"
        "                self.out.add(*held)",
    ),
    Mistake(
        "a loss is not told",
        LeaderState,
        "lost",
        "self.clients.on_loss(pair, why)",
        "pass",
        "losses",
    ),
    Mistake(
        "a site that comes back is not told what it has missed",
        View,
        "catch_up",
        "term.tell(link, piece)",
        "pass",
    ),
    Mistake(
        "a site that comes back is not told who lives",
        View,
        "catch_up",
        "term.tell(link, self._of_sites())",
        "pass",
    ),
    # the record
    Mistake(
        "the leader acts before the record is safe",
        Leader,
        "_recorder",
        "await self.loop.run_in_executor(None, self.event_record.append, events)\n",
        "keep = self.loop.run_in_executor(None, self.event_record.append, events)\n"
        "            keep.add_done_callback(lambda done: done.exception())\n",
    ),
    Mistake(
        "a record does not ask whether another leads",
        Leadership,
        "check",
        "transaction.check(self._candidate.term_path, self.token)",
        "pass",
    ),
    Mistake(
        "a record whose answer is lost is written again",
        control_log.ControlLog,
        "append",
        "if self._at(first)[:_ID_BYTES] == mark:",
        "if False:",
    ),
    Mistake(
        "a new leader does not read the end of the record",
        controller.Term,
        "run",
        "await loop.run_in_executor(None, log_.read, self.next)",
        "()",
        "zombies",
    ),
    Mistake(
        "a follower may begin in the middle",
        controller.Term,
        "_entry",
        "if self.following and number == self.next:\n        self.next += 1",
        "if self.following and number >= self.next:\n        self.next = number + 2",
    ),
    Mistake(
        "catch-ups in hand go on under a new leader",
        PapersLedger,
        "_new_leader",
        "if self.controller is not None:",
        "if False:",
        "any, papers",
    ),
    Mistake(
        "a failed site may come back",
        Ledger,
        "_failed",
        "self.fenced[record.id] = None",
        "self.numbers[record.id] = number",
    ),
    # the view
    Mistake(
        "a site that has been removed is admitted",
        LeaderState,
        "_site_registered",
        "elif gone or identity in ledger.fenced:",
        "elif False:",
    ),
    Mistake(
        "a site comes back while its failure is being recorded",
        LeaderState,
        "_site_registered",
        "elif ledger.numbers.get(identity) in self.leaving:",
        "elif False:",
        "slow record, papers",
    ),
    Mistake(
        "a site follows an older leader",
        SiteState,
        "_admitted",
        "if epoch < self.epoch:",
        "if False:",
    ),
    Mistake(
        "the connection to a site that has been removed stays",
        worker.Worker,
        "_carry_out_at_host",
        "host.disconnect(number)",
        "pass",
    ),
    Mistake(
        "a broken link is told to one leader only",
        SiteState,
        "_tell_of_broken",
        "for number, why in self.broken.items():",
        "broken, self.broken = self.broken, {}\n        for number, why in broken.items():",
        "accusations, papers",
    ),
    Mistake(
        "a site that dials a dead leader does not look who leads",
        worker.Worker,
        "_dialed",
        "if now not in (None, address) and not dialing.done():",
        "if False:",
        "silence",
    ),
    Mistake(
        "a closed connection is nobody's failure",
        LeaderState,
        "_link_closed",
        'self._site_gone(number, f"its connection was lost: {why}")',
        "pass",
        "links, papers",
    ),
    Mistake(
        "sites that do not come back to a new leader stay",
        LeaderState,
        "_tick",
        "for number in set(self.ledger.sites) - set(self.attached):",
        "for number in ():",
        "silence",
    ),
    Mistake(
        "notices are told to one leader only",
        SiteState,
        "_admitted",
        "self.told = 0",
        "del self.notices[: self.told]\n    self.told = 0",
        "leaders",
    ),
    Mistake(
        "a lost session is nobody's failure",
        controller.Term,
        "_left",
        "if self.leader is not None:",
        "if False:",
    ),
    Mistake(
        "a site whose session is lost goes on",
        worker.Worker,
        "_fence",
        "self.loop.call_soon_threadsafe(self.fail, Fenced(why))",
        "pass",
    ),
    # the ends
    Mistake(
        "resume points are ignored",
        Host,
        "resume_points",
        "if node.stage == 0 and",
        "if False and",
        "any, papers",
    ),
    Mistake(
        "a leader begins before its term is recorded",
        LeaderState,
        "_site_registered",
        "if not self.leading:",
        "if not ledger.leaders:",
    ),
    Mistake(
        "a leader begins before all sites are back",
        LeaderState,
        "_begin",
        " or set(self.attached) < set(ledger.sites)",
        "",
        "any, papers",
    ),
    Mistake(
        "the egress is not rebuilt",
        papers_intake,
        "rebuild_egress",
        "alone = inlet.status[d] is Status.ACTIVE and inlet.status[other(d)] is not Status.ACTIVE",
        "alone = False",
        "leaders, papers",
    ),
    Mistake(
        "the journal is not flushed to the system",
        Journal,
        "_flush",
        "self._file.flush()",
        "pass",
    ),
    Mistake(
        "the journal is not flushed to the disk",
        Journal,
        "_flush",
        "if self.fsync:",
        "if False:",
    ),
    Mistake(
        "what an old leader writes into the journal is read",
        Journal,
        "read",
        "if _epoch(path) == newest:",
        "if True:",
        "zombies",
    ),
    Mistake(
        "a batch is not written into the journal",
        intake.Intake,
        "pump",
        "self.journal.append(Record(self.fed, source, key, rows))",
        "pass",
    ),
    Mistake(
        "a batch is acknowledged when it is fed",
        papers_intake.PapersIntake,
        "_lowest",
        "return min(held)",
        "return self.ingress.last + 1",
        "feeding, papers",
    ),
    Mistake(
        "the journal is trimmed too far",
        Journal,
        "trim",
        "if last < below and p != self._now",
        "if p != self._now or last < below",
    ),
    Mistake(
        "a new journal forgets what has been taken",
        Journal,
        "_open",
        "in self.last.items()",
        "in ()",
    ),
    Mistake(
        "offers are taken twice",
        intake.Intake,
        "offer",
        "if key > self.seen.get(source, (NOTHING, NOTHING)):",
        "if True:",
        "feeding",
    ),
    Mistake(
        "a feeder does not offer again",
        Feeder,
        "connected",
        "self._put(channel, key, rows)",
        "pass",
    ),
    Mistake(
        "a reader forgets where it was",
        Reader,
        "_read",
        "site.tell(control.Read(offset, max_bytes))",
        "site.tell(control.Read(offset + 1, max_bytes))",
    ),
    Mistake(
        "the end of the input is not kept",
        papers_intake.PapersIntake,
        "begin",
        "self.ended = any(r.key == END_KEY for r in records)",
        "self.ended = False",
        "ends, papers",
    ),
    Mistake(
        "clients that wait for the end are forgotten",
        ClientService,
        "input_ended",
        "self._term.tell(link, control.Finished())",
        "pass",
        "ends",
    ),
    # units
    Mistake(
        "a unit tells how many partitions worked at once",
        Partitioned,
        "process_parts",
        "return [results.slice",
        "results = results.replace_schema_metadata({'parts': str(len(parts))})\n"
        "    return [results.slice",
    ),
    Mistake(
        "an empty unit is sent as rows, if another one is not empty",
        ProducerSide,
        "offer",
        "self.pending +=",
        "if parts:\n"
        "        empty = next(iter(parts.values())).slice(0, 0)\n"
        "        parts = {i: parts.get(i, empty) for i in range(len(self.outlets))}\n"
        "    self.pending +=",
        "any, papers",
    ),
    # states
    Mistake(
        "a state that waits for its connection is dropped",
        Moving,
        "ship",
        "self.unsent.append(move)",
        "pass",
        "any, papers",
    ),
    Mistake(
        "a state of an attempt that was given up is installed",
        Host,
        "install",
        "if machine.status is Status.STANDBY and state.version == node.life:",
        "if True:",
        "any, papers",
    ),
    Mistake(
        "a state that comes before word of its standby is dropped",
        Host,
        "install",
        "self._install_later(node, partial(self.install, node, state))",
        "pass",
        "any, papers",
    ),
    Mistake(
        "something that a state refers to is not sent before it",
        moving.States,
        "_send_ahead",
        "in state.messages)",
        "in state.messages[1:])",
        "large states",
    ),
    Mistake(
        "other data is taken for what has been sent",
        packing.Base,
        "number",
        "self._numbers.get(message.identity)",
        "next((i for i, m in enumerate(self.messages) if len(m) == len(message)), None)",
        "large states",
    ),
    Mistake(
        "a key that changes after its part was read does not travel again",
        processor_state._Reading,
        "note",
        "self.changed[key_id] = None",
        "pass",
        "large states",
    ),
    Mistake(
        "a key that goes while the state is read comes back",
        processor_state._Reading,
        "note",
        "self.gone[key_id] = None",
        "pass",
        "large states",
    ),
    Mistake(
        "a part that comes before word of its standby is dropped",
        Host,
        "install_part",
        "self._install_later(node, partial(self.install_part, node, part))",
        "pass",
        "large states, papers",
    ),
    Mistake(
        "what parts lack is sent to a site that has none of them",
        Host,
        "full_state",
        "machine.full_state(state)",
        "state",
        "large states, papers",
    ),
    Mistake(
        "a state is written on from a reading that another has ended",
        keeping.Beforehand,
        "of",
        " and self.operator.reads(self.parts)",
        "",
        "large states",
    ),
    Mistake(
        "a state is read for a file while it travels",
        keeping.Keeping,
        "_prepare",
        "copy.sends_parts",
        "False",
        "large states, papers",
    ),
    # the resume protocol
    Mistake(
        "the ingress of a leader before goes on",
        ResumeLedger,
        "_new_leader",
        "if self.controller is not None:",
        "if False:",
        "leaders",
    ),
    Mistake(
        "a new leader does not feed anew what is in the journal",
        intake.Intake,
        "begin",
        "self.host.begin(self.fed)",
        "self.fed += len(self.again)\n    self.again.clear()\n    self.host.begin(self.fed)",
        "zombies",
    ),
    Mistake(
        "a batch is safe when it is fed, under the resume protocol",
        intake.Intake,
        "pump",
        "min(self.fed, host.site.low[INGRESS])",
        "self.fed",
        "feeding",
    ),
    Mistake(
        "sites that come later are not told that the input has ended",
        LeaderState,
        "_attach",
        "if self.ledger.resumes and self.batches is not None:",
        "if False:",
        "ends",
    ),
    Mistake(
        "a snapshot that waits for its connection is dropped",
        ResumeSnapshots,
        "ship",
        "host.leaving.append(state)",
        "pass",
        "any",
    ),
    Mistake(
        "over a new connection nobody is asked again",
        ResumeHost,
        "reconnect",
        "self.site.reconnect(site)",
        "pass",
        "leaders",
    ),
    Mistake(
        "a copy that has moved stays where it was",
        resume_controller.Controller,
        "_plan",
        "if len(working) > wanted:",
        "if False:",
        "moves",
    ),
    Mistake(
        "whoever comes later is told of another ingress",
        view,
        "_of_layout",
        "layout.ingress",
        "1",
        "leaders",
    ),
    Mistake(
        "a state that was on disk is not read in",
        ReplicaCopy,
        "activate",
        "operator.install_state(disk.get_state())",
        "pass",
        "spilling",
    ),
    Mistake(
        "the state of a copy that is gone stays on disk",
        ResumeHost,
        "extend",
        "Part | OnDisk",
        "Part",
        "spilling",
    ),
    Mistake(
        "a state leaves memory while its parts travel",
        ReplicaCopy,
        "evict",
        " and not self.sends_parts",
        "",
        "large states on disk",
    ),
    Mistake(
        "a state is kept a batch too early",
        keeping.Keeping,
        "look",
        "copy.done == self.batch",
        "copy.done >= self.batch - 1",
        "large states",
    ),
    Mistake(
        "a copy moves to the site of the other one",
        PlacingController,
        "may_move",
        "site not in self.members[pair].values()",
        "True",
        "moves",
    ),
    Mistake(
        "changes of the leader alone have the log forgotten",
        ResumeLedger,
        "_since",
        "entry.copy.stage >= 0",
        "True",
        "moves",
    ),
    Mistake(
        "copies begin before the first batch",
        ResumeLedger,
        "_lay_out",
        "lives, 1, self.first",
        "lives, 1, 0",
        "later start",
    ),
    # ZooKeeper
    Mistake(
        "nobody waits for a server that lags",
        control_log,
        "sync",
        "ask(client, lambda: client.kazoo.sync_async(path), timeout_s=timeout_s)",
        "pass",
        "servers",
    ),
    Mistake(
        "entries of the record are skipped",
        tail.Reader,
        "_read",
        "self.next += len(entries)",
        "self.next += len(entries) + (len(entries) > 1)",
    ),
    Mistake(
        "nobody looks again by itself, and watches are not set",
        watcher.Watcher,
        "_run",
        "self._again.wait(self._every_s)",
        "self._again.wait()\n        self.poke = lambda *_: None",
    ),
    Mistake(
        "an incarnation may be taken twice",
        membership,
        "_raise_incarnation",
        "wanted = highest + 1 if to is None else to",
        "wanted = max(highest, 1) if to is None else to",
    ),
    Mistake(
        "a candidate leads for ever",
        Candidate,
        "_depose",
        "leading, self.leadership = self.leadership, None",
        "leading = None",
    ),
    Mistake(
        "nobody deposes a leader that is gone",
        ZooKeeperFinder,
        "depose",
        "if self.leader() == address:",
        "if False:",
    ),
    Mistake(
        "a collector forgets too much",
        collector.Collector,
        "commit",
        "gone = bisect_left(self.batches, offset)",
        "gone = bisect_left(self.batches, offset + 1)",
    ),
    Mistake(
        "a stop gives up where a loss is reported",
        Client,
        "stop",
        "while True:",
        "for _ in range(1):",
        "moves",
    ),
)
"""Those that the sweep has to find, and those that it need not (`HARMLESS`)."""

HARMLESS: Final = {
    "a site follows an older leader": "no leader admits a site that knows a later one",
    "the connection to a site that has been removed stays": "its link is closed all the same",
    "a lost session is nobody's failure": "whoever joins next accuses the site, only later",
    "a site whose session is lost goes on": "the leader removes it, and expels it if it returns",
    "sites that do not come back to a new leader stay": "as above: their successors accuse them",
    "a state of an attempt that was given up is installed": "whoever gives up forgets the standby",
    "a candidate leads for ever": "its sites leave it, and what it would record of that is refused",
    "a site that dials a dead leader does not look who leads": "the attempt ends, only later",
    "the ingress of a leader before goes on": "sites ask it anew, wherever it is",
    "sites that come later are not told that the input has ended": "readers ask the other copy",
    "nobody deposes a leader that is gone": "its session ends all the same, only later",
}
"""Mistakes that another line of defence makes good, and which."""


def compiled(text: str, original: Any, name: str) -> Any:
    """A function of this text, with the globals of another one that it stands in for."""
    namespace: dict[str, Any] = {}
    code = compile(text, f"<{name}>", "exec", __future__.annotations.compiler_flag)
    exec(code, original.__globals__, namespace)
    return namespace[original.__name__]


@contextmanager
def standing_in(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Another function in place of one, also for the modules that import it by its name."""
    original = getattr(owner, name)
    importing = [m for m in sys.modules.values() if vars(m).get(name) is original]
    with ExitStack() as stack:
        for holder in {owner, *importing}:
            stack.enter_context(patch.object(holder, name, replacement))
        yield


@contextmanager
def planted(mistake: Mistake) -> Iterator[None]:
    """The product with this mistake.

    Raises:
        ValueError: the piece of text does not occur exactly once.
    """
    original = getattr(mistake.owner, mistake.function)
    text = textwrap.dedent(inspect.getsource(original))
    old = mistake.old
    if text.count(old) != 1:
        raise ValueError(f"{mistake.name}: {old!r} occurs {text.count(old)} times in {original}")
    replacement = compiled(text.replace(old, mistake.new), original, mistake.name)
    with standing_in(mistake.owner, mistake.function, replacement):
        yield


def found_at(mistake: Mistake, seeds: range) -> tuple[int, str] | None:
    """The first seed that notices, and what it says."""
    with planted(mistake):
        for seed in seeds:
            done = run(seed, mistake.setting)
            if done.problem:
                return seed, done.problem
    return None

"""Attacks on what sites and their leader tell each other, against a leader and sites that run.

    python -m flux_lab.control_fuzz [ATTACKS] [--seed SEED]

An attacker knows the job's key, so the handshake does not stop it. It connects as a client, a
follower or a site, or is the leader that a site has been sent to, and says what is malformed, too
large, another one's to say, or well-formed and out of place. What it attacks are `Leader` and
`Worker` as jobs run them, on loopback. Each attack has to end with the victims alive, the honest
client served, and the attacker answered, ignored, or its connection closed.

Left out is what a role may rightly do: a client may stop the job, a site may accuse another and
hand over states, a leader may end a site.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, inspect, json, structs

from flux_lab.example import events, running_example
from flux_lab.reference import reference
from flux_runtime.operators.rows import SN
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import Shape
from flux_runtime.site import control_messages as control
from flux_runtime.site.client import DataLost, Rejected, Unreachable
from flux_runtime.site.config import ControllerConfig, SiteConfig
from flux_runtime.site.connection import Connection, dial, listen
from flux_runtime.site.control_messages import RULES, Message, Role, Rule
from flux_runtime.site.controller import Front, ledger_of
from flux_runtime.site.feeder import Feeder
from flux_runtime.site.finding import finder
from flux_runtime.site.idle import IdleSelector
from flux_runtime.site.key import JobKey
from flux_runtime.site.leader import Leader
from flux_runtime.site.reader import Reader
from flux_runtime.site.record import NoRecord
from flux_runtime.site.wire import LENGTH, Kind
from flux_runtime.site.worker import Worker

SITES: Final = 3
ROUND_ATTACKS: Final = 20
"""Attacks between two batches of the honest client."""
ANSWER_S: Final = 5.0
"""So long an answer may take; where there is none to come, so long is never waited."""
SMALL: Final = 3
"""Items of a list that is drawn."""

RIGHTFUL: Final = {
    (control.Stop, Role.CLIENT),
    (control.Finish, Role.CLIENT),
    (control.Commit, Role.CLIENT),
    (control.Disconnect, Role.CLIENT),
    (control.Keep, Role.CLIENT),
    (control.LinkLost, Role.SITE),
    (control.Stop, Role.LEADER),
    (control.Expulsion, Role.LEADER),
    (control.Keep, Role.LEADER),
}
"""The messages that an attacker does not say well-formed: a role has the right to end or change
things by them."""


class VictimError(AssertionError):
    """An attack has done what none may."""


# ---- messages by their types


def drawn(draw: random.Random, kind: type[Message]) -> Any:
    """A message of this kind within all limits, small where it may be."""
    (info,) = inspect.multi_type_info([kind])
    return _drawn(draw, info)


def _drawn(draw: random.Random, info: Any) -> Any:
    match info:
        case inspect.Metadata():
            return _drawn(draw, info.type)
        case inspect.IntType(ge=low, le=high):
            assert low is not None
            assert high is not None
            near = draw.choice((low, low, low + 1, low + 2, high, draw.randint(low, high)))
            return min(near, high)
        case inspect.FloatType(ge=low, le=high):
            return draw.choice((low, high, draw.random()))
        case inspect.StrType():
            return draw.choice(("", "127.0.0.1", "x" * draw.randint(1, 9)))
        case inspect.BoolType():
            return draw.random() < 0.5
        case inspect.NoneType():
            return None
        case inspect.UnionType():
            return _drawn(draw, draw.choice(info.types))
        case inspect.TupleType():
            return tuple(_drawn(draw, item) for item in info.item_types)
        case inspect.VarTupleType():
            size = draw.randint(info.min_length or 0, min(SMALL, info.max_length or SMALL))
            return tuple(_drawn(draw, info.item_type) for _ in range(size))
        case inspect.DictType():
            pairs = [(_drawn(draw, info.key_type), _drawn(draw, info.value_type)) for _ in "ab"]
            return dict(pairs[: draw.randint(0, 2)])
        case inspect.StructType():
            return info.cls(*(_drawn(draw, field.type) for field in info.fields))
        case _:
            raise TypeError(f"nothing to draw for {info}")


def beyond(kind: type[Struct]) -> Iterator[tuple[str, Any]]:
    """(field, value) that no message of this kind may have, whatever its limits are said to be."""
    (info,) = inspect.multi_type_info([kind])
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        yield from ((field.encode_name, value) for value in _beyond(field.type))


def _beyond(info: Any) -> list[Any]:
    match info:
        case inspect.Metadata():
            return _beyond(info.type)
        case inspect.UnionType():
            (only,) = [of for of in info.types if not isinstance(of, inspect.NoneType)]
            return [value for value in _beyond(only) if value is not None]
        case inspect.IntType():
            return [-3, 2**61, -(2**63), 2**63, 2**64, 1e300, float("nan"), 1.5, "1", True, None]
        case inspect.FloatType():
            return [-0.5, 1e19, float("inf"), float("nan"), "1", None, False]
        case inspect.StrType():
            return ["x" * 5000, 0, None, ["x"]]
        case inspect.BoolType():
            return [0, 1, "true", None]
        case inspect.VarTupleType():
            return [[None] * 200_000, [None], {}, "", 0, None]
        case inspect.DictType():
            return [dict.fromkeys(map(str, range(10_000))), [], {"x": 1}, 0, None]
        case inspect.TupleType():
            return [[], [None] * len(info.item_types), [1] * 50, "", 0, None]
        case _:
            return [[], "", 0, None, {"more": 1}]


# ---- the job under attack


def flow() -> Dataflow:
    """The running example in partition pairs."""
    return running_example(Shape(widths=(2, 2), ack_every=4, pool=64, in_hand=4))


class Job:
    """A leader, sites and an honest client, all in this process."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.key = JobKey.fresh()
        self.folder = folder
        self.front = Front()
        self.workers: list[Worker] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.batches = events(rounds, 16, keys=40)
        self.expected = reference(flow(), self.batches).output
        self.results: list[tuple[int, Any]] = []
        self.fed = self.read = 0
        self.errors: list[str] = []

    async def start(self) -> None:
        """Until the leader has its sites."""
        asyncio.get_running_loop().set_exception_handler(self._error)
        self.server, port = await listen(self.front, self.key)
        self.address = ("127.0.0.1", port)
        common: dict[str, Any] = {"key": self.key, "dataflow": flow, "controller": self.address}
        self.config = ControllerConfig(**common, sites=SITES, folder=self.folder)
        self.leader = Leader(self.config, ledger_of(self.config), NoRecord())
        self.tasks.append(asyncio.create_task(self.front.lead(self.leader)))
        for number in range(SITES):
            config = SiteConfig(**common, site=number, executor=str(number))
            worker = Worker(config, finder(config), None, IdleSelector())
            self.workers.append(worker)
            self.tasks.append(asyncio.create_task(worker.run()))
        async with asyncio.timeout(60):
            while not self.leader.feeding:
                await asyncio.sleep(0.01)
        self.feeder = Feeder(self.config, "events", patience_s=60.0)
        self.reader = Reader(self.config, patience_s=60.0)

    def _error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(f"{context['message']} ({context.get('exception')!r})")

    def check(self) -> None:
        """Everybody is alive, and nothing was raised that nobody expects."""
        if self.errors:
            raise VictimError(self.errors[0])
        for task in self.tasks:
            if task.done():
                raise VictimError(f"a victim has ended: {task.exception() or 'stopped'}")

    async def serve(self) -> None:
        """The honest client feeds a batch and reads as far as it was fed."""
        self.check()
        try:
            await asyncio.to_thread(self._serve)
        except (DataLost, Rejected, Unreachable) as error:
            raise VictimError(f"the honest client is not served: {error}") from error
        self.check()

    def _serve(self) -> None:
        self.feeder.offer(self.fed, 0, self.batches[self.fed].drop_columns(list(SN)))
        self.fed += 1
        self.feeder.flush()
        if self.fed == len(self.batches):
            self.feeder.finish()
        while self.read < self.fed:
            before = self.read
            self.read, more, _ = self.reader.read(self.read, timeout_s=60.0)
            if self.read == before:
                raise VictimError(f"batch {self.read} has no results")
            self.results += more
            self.reader.commit(self.read)
        expected = [output for output in self.expected if output[0] < self.read]
        if [batch for batch, _ in self.results] != [batch for batch, _ in expected] or not all(
            mine.equals(rows) for (_, mine), (_, rows) in zip(self.results, expected, strict=True)
        ):
            raise VictimError(f"other results than of a sequential run, up to batch {self.read}")

    async def stop(self) -> None:
        """End all of it."""
        await asyncio.to_thread(self.feeder.stop)
        await asyncio.to_thread(self.feeder.close)
        await asyncio.to_thread(self.reader.close)
        async with asyncio.timeout(60):
            await asyncio.gather(*self.tasks)
        self.server.close()


# ---- attackers


class Attacker:
    """One end of a connection that says what it likes.

    Args:
        role: what it passes for.
        draw: where its choices come from.
    """

    def __init__(self, role: Role, draw: random.Random) -> None:
        self.role = role
        self.draw = draw
        self.connection: Connection | None = None
        self.heard: list[tuple[Kind, bytes]] = []
        self.gone = False

    def opened(self, connection: Connection) -> None:
        """The handshake is done."""
        self.connection = connection

    def received(self, connection: Connection, kind: Kind, body: memoryview) -> None:
        """Whatever the victim says."""
        self.heard.append((kind, bytes(body[:200])))

    def turn_over(self, connection: Connection) -> None:
        """Nothing to do."""

    def closed(self, connection: Connection, why: str) -> None:
        """The victim has had enough."""
        self.gone = True

    def writable(self, connection: Connection) -> None:
        """Nothing to do."""

    @property
    def refused(self) -> bool:
        """Whether the victim has said why not."""
        return any(b'"refusal"' in body for kind, body in self.heard if kind is Kind.CONTROL)

    async def attack(self, victim: Role) -> list[str]:
        """Say some things; gives what kinds of things they were."""
        assert self.connection is not None
        kinds = []
        if self.draw.random() < 0.9:
            kinds.append(self._put(victim, greeting=True))
            if self.draw.random() < 0.5:  # wait for an answer, as whoever means well does
                self.connection.flush()
                for _ in range(20):
                    await asyncio.sleep(0 if self.heard or self.gone else 0.001)
        for _ in range(self.draw.randint(1, 4)):
            kinds.append(self._put(victim, greeting=self.draw.random() < 0.05))
        self.connection.flush()
        if self.draw.random() < 0.1 and self.connection.transport is not None:
            announced = self.draw.choice((8, 1 << 20, 256 << 20, (256 << 20) + 8, 7, 0))
            self.connection.transport.write(LENGTH.pack(announced) + bytes(16))
            kinds.append("announced")
        return kinds

    def _put(self, victim: Role, *, greeting: bool) -> str:
        assert self.connection is not None
        shape, draw = self.draw.random(), self.draw
        kind = Kind.GREETING if greeting else Kind.CONTROL
        if shape < 0.1 and not greeting:
            frame = draw.choice([other for other in Kind if other is not Kind.CONTROL])
            self.connection.send(frame, draw.randbytes(draw.choice((0, 4, 16, 40, 400))))
            return frame.name.lower()
        mine = [
            rule
            for rule in RULES
            if (rule.speaker, rule.hearer, rule.greeting) == (self.role, victim, greeting)
            and (rule.kind, rule.speaker) not in RIGHTFUL
        ]
        others = [
            rule for rule in RULES if rule not in mine and (rule.kind, self.role) not in RIGHTFUL
        ]
        chosen = draw.choice(others if not mine or shape < 0.2 else mine)
        message = drawn(draw, chosen.kind)
        if isinstance(message, control.Registration) and draw.random() < 0.8:
            identity = f"new-{draw.getrandbits(64):x}"
            message = structs.replace(message, id=identity, epoch=0, laid_out=False, resume=())
        body = _encoded(chosen, message)
        if shape >= 0.2 and ((greeting and shape < 0.3) or (not greeting and shape < 0.6)):
            body = _spoilt(draw, chosen, body)
            manner = "spoilt"
        else:
            manner = "misplaced" if chosen not in mine else "well-formed"
        self.connection.send(kind, body)
        return manner


def _encoded(rule: Rule, message: Message) -> bytes:
    return control.encode(message, speaker=rule.speaker, hearer=rule.hearer, greeting=rule.greeting)


def _spoilt(draw: random.Random, rule: Rule, body: bytes) -> bytes:
    """A body that is malformed, or beyond a limit."""
    match draw.randrange(5):
        case 0:
            return body[: draw.randrange(len(body))]
        case 1:
            spoilt = bytearray(body)
            spoilt[draw.randrange(len(spoilt))] = draw.randrange(256)
            return bytes(spoilt) if spoilt != body else b""
        case 2:
            return draw.choice((b"[", b'{"c":', b'[{"c":')) * draw.choice((10, 5000, 100_000))
        case 3:
            return b'{"c":"' + b"x" * (9 << 20) + b'"}'
        case _:
            fields = list(beyond(rule.kind))
            if not fields:
                return b"{}"
            field, value = draw.choice(fields)
            plain = json.decode(body)
            plain[field] = value
            return json.encode(plain)


async def attack_dialed(job: Job, draw: random.Random) -> list[str]:
    """One attack on the leader, or on a site, by somebody who connects to it."""
    leader = draw.random() < 0.5
    victim = Role.LEADER if leader else Role.SITE
    roles = sorted({rule.speaker for rule in RULES if rule.hearer is victim} | {Role.CLIENT})
    attacker = Attacker(draw.choice(roles), draw)
    port = job.address[1] if leader else draw.choice(job.workers).port
    await dial(attacker, job.key, ("127.0.0.1", port), peer="x", timeout_s=ANSWER_S)
    await _until(lambda: attacker.connection is not None or attacker.gone, "handshake")
    kinds = await attacker.attack(victim)
    await _settled(attacker, kinds)
    return [f"{attacker.role} to {victim}: {kind}" for kind in kinds]


async def attack_as_leader(job: Job, draw: random.Random) -> list[str]:
    """One attack on a site by the leader that it has been sent to."""
    attacker = Attacker(Role.LEADER, draw)
    server, port = await listen(attacker, job.key)
    config = SiteConfig(key=job.key, dataflow=flow, controller=("127.0.0.1", port), site=99)
    worker = Worker(config, finder(config), None, IdleSelector())
    task = asyncio.create_task(worker.run())
    try:
        await _until(lambda: attacker.connection is not None, "handshake")
        kinds = await attacker.attack(Role.SITE)
        await _settled(attacker, kinds)
        if task.done():
            raise VictimError(f"a site has ended over {kinds}: {task.exception() or 'stopped'}")
    finally:
        server.close()
        worker.finish()
        await asyncio.gather(task, return_exceptions=True)
    return [f"{attacker.role} to {Role.SITE}: {kind}" for kind in kinds]


async def _settled(attacker: Attacker, kinds: Sequence[str]) -> None:
    """Give the victim some turns; then the attacker is not needed any more."""
    for _ in range(20):
        await asyncio.sleep(0)
        if attacker.gone or attacker.refused:
            break
    else:
        await asyncio.sleep(0.005)
    if attacker.connection is not None:
        attacker.connection.close("enough")


async def _until(condition: Any, event: str) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def fuzz(attacks: int, seed: int, folder: Path) -> Counter[str]:
    """Attack a job so many times; gives what was tried.

    Raises:
        VictimError: a victim has ended, or the honest client was not served.
    """
    job = Job(folder, rounds=attacks // ROUND_ATTACKS + 2)
    tried: Counter[str] = Counter()
    await job.start()
    await job.serve()
    for number in range(seed, seed + attacks):
        draw = random.Random(number)
        attack = attack_as_leader if draw.random() < 0.2 else attack_dialed
        try:
            with suppress(ConnectionError):
                tried.update(await attack(job, draw))
            if (number - seed) % ROUND_ATTACKS == ROUND_ATTACKS - 1:
                await job.serve()
            job.check()
        except (VictimError, TimeoutError) as error:
            raise VictimError(f"attack {number}: {error or 'no answer'}") from error
    await job.serve()
    await job.stop()
    return tried


def main(argv: Sequence[str] | None = None) -> int:
    """Attack, and print what was tried."""
    parser = argparse.ArgumentParser(prog="python -m flux_lab.control_fuzz")
    parser.add_argument("attacks", nargs="?", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first attack")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        tried = asyncio.run(fuzz(args.attacks, args.seed, Path(folder)))
    for kind, count in sorted(tried.items()):
        print(f"{count:7} {kind}")
    print(f"{args.attacks} attacks, all victims alive, every result as of a sequential run")
    return 0


if __name__ == "__main__":
    sys.exit(main())

# ruff: noqa: E501 (each mutation is one line of text)
"""Does every rule of the protocol earn its place? Remove one at a time, run tests until one fails.

    python benchmarks/flux_mutations.py [--seeds 400] [--only RULE] [--first N] [--last N] [--keep]

Each mutation changes one line of a copy of the package. The unit tests and the named scenarios run
against it, those of the machines first, and if none fails, random schedules and faults. `killed by`
names the first test, `killed at` the first seed that noticed; survivors are listed. `--keep` writes
what was found into `benchmarks/flux_mutations.json`, which `docs/reference/flux-actions.md` is made
of; `docs/explanation/flux.md` says of each survivor why nothing notices.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import mutating
from benchmarks.mutating import ROOT

FOUND: Final = Path(__file__).with_suffix(".json")
"""What became of every mutation when it was last tried."""

NEAR: Final = {
    "outlet": ("tables",),
    "inlet": ("tables",),
    "boundary": ("segment",),
    "consumer": ("ends",),
    "producer": ("ends",),
}
"""Which tests of the machines are tried first, where they are not called like the module."""
FOLDERS: Final = ("flux_lab/papers/protocol", "flux_runtime/protocol")
TEST_FOLDERS: Final = ("tests/flux_lab/papers", "tests/flux_runtime/protocol")
TESTS: Final = (
    *TEST_FOLDERS,
    "tests/flux_lab/test_flux_scenarios.py",
    "tests/flux_lab/test_flux_sweep.py::test_runs_that_once_found_a_mistake",
)


class Mutation(NamedTuple):
    """One line of the protocol taken out or turned around; `file` without package and suffix."""

    rule: str
    file: str
    old: str
    new: str

    @property
    def path(self) -> Path:
        """The file, in one of `FOLDERS` if it names no other package of the runtime."""
        if "/" in self.file:
            return Path("flux_runtime", f"{self.file}.py")
        places = (Path(folder, f"{self.file}.py") for folder in FOLDERS)
        return next(place for place in places if (ROOT / place).exists())


MUTATIONS = (
    Mutation("NC-2a", "outlet", "if not self.conn[d] & ACK:", "if False:"),
    Mutation("NC-3", "outlet", "self.buffer.ack(batch, d, self.evict)  # NC-3", "pass"),
    Mutation("NC-4, NC-5a", "inlet", "return self.flush() if self.owed >= every else []", "return []"),
    Mutation("BUF-3 filter", "buffer", "marks = PROD | self.dangling.pop(sn, 0)", "marks = PROD"),
    Mutation(
        "BUF-5 dangling",
        "buffer",
        "for sn, marks in self.dangling.items() if marks & ~MARK_OF[d]",
        "for sn, marks in self.dangling.items()",
    ),
    Mutation("BUF-6 as BUF-7", "outlet", "self.buffer.reset(d)\n        self.evict", "self.buffer.resync(d)\n        self.evict"),
    Mutation("BUF-7 as BUF-6", "outlet", "self.buffer.resync(p)", "self.buffer.reset(p)"),
    Mutation("BUF-8", "outlet", "self.buffer.swap()", "pass"),
    Mutation("BUF-C flush before csync", "segment", "out += inlet.flush()", "pass"),
    Mutation("BUF-C flush before reverse", "inlet", "sends = self.flush() if self.conn[d] & ACK else []", "sends: list[Send] = []"),
    Mutation("BUF-C standby owes nothing", "segment", "inlet.owed = 0  #", "pass  #"),
    Mutation("TO-1 ack_all", "outlet", "self.buffer.ack_all(d, self.evict)\n", "pass\n"),
    Mutation("TO-1 del", "outlet", "self.evict &= ~MARK_OF[d]", "pass"),
    Mutation("TO-2a", "inlet", "return self.reverse_to(p)  # TO-2a", "return []"),
    Mutation("TO-3 reset", "outlet", "self.buffer.reset(d)\n            self.told", "self.told"),
    Mutation("TO-4", "segment", "self.p_fail = True  # TO-4", "pass"),
    Mutation("TO-5a", "inlet", "return []  # TO-5b\n            return self.reverse_to(SEC)", "return []  # TO-5b\n            return []"),
    Mutation("TO-5b", "inlet", "self.rev_owed = True\n                return []  # TO-5b", "return self.reverse_to(SEC)"),
    Mutation("TO-5c", "inlet", "if self.conn[PRIM] == PAUSED and not window:", "if False:"),
    Mutation("TO-7 del", "outlet", "self.evict |= MARK_OF[d]\n        self.told", "self.told"),
    Mutation("TO-7 reset", "outlet", "self.conn[d] = SEND\n        self.buffer.reset(d)\n        self.evict", "self.conn[d] = SEND\n        self.evict"),
    Mutation("TO-9 SEND term (AMB-2)", "outlet", "return self.r_done or bool(self.conn[PRIM] & SEND)", "return self.r_done"),
    Mutation("TO-9F dead term (AMB-2)", "outlet", "return self.r_done or self.status[SEC] is not ACTIVE or", "return self.r_done or"),
    Mutation("TO-9 take-over first", "segment", "self.boundary.failures and self.tk_done():", "self.boundary.failures:"),
    Mutation("AMB-8 discard", "boundary", "return -1 if side.status[d] is Status.DEAD else 0", "return 0"),
    Mutation("AMB-9", "outlet", "if self.status[d] is DEAD:  # AMB-9", "if False:"),
    Mutation("CU-0 conn", "outlet", "self.status[d] = STANDBY\n        self.conn[d] = 0", "self.status[d] = STANDBY"),
    Mutation("CU-2", "segment", "inlet.conn[PRIM] = PAUSED  # CU-2", "pass  # CU-2"),
    Mutation("CU-6 resync ingress", "outlet", "(Producer.INGRESS, ACTIVE, PRIM): OnCsync(True,", "(Producer.INGRESS, ACTIVE, PRIM): OnCsync(False,"),
    Mutation("CU-6b first marker", "outlet", "(Producer.INGRESS, ACTIVE, SEC): OnCsync(True, met=", "(Producer.INGRESS, ACTIVE, SEC): OnCsync(True, now="),
    Mutation("CU-6a first marker", "outlet", "(Producer.INGRESS, STANDBY, PRIM): OnCsync(False, met=", "(Producer.INGRESS, STANDBY, PRIM): OnCsync(False, now="),
    Mutation("CU-7", "outlet", "self.conn[PRIM] = ACK\n", "pass\n"),
    Mutation("CU-8 pause", "inlet", "(Consumer.EGRESS, ACTIVE, PRIM): OnPsync(first=((PRIM, PAUSED),)", "(Consumer.EGRESS, ACTIVE, PRIM): OnPsync(first=()"),
    Mutation("CU-8b early acks", "inlet", "(Consumer.EGRESS, STANDBY, SEC): OnPsync(first=()", "(Consumer.EGRESS, STANDBY, SEC): OnPsync(first=((SEC, ACK),)"),
    Mutation("CU-9 producers whole", "segment", "and self.consumer.is_whole()", "and True"),
    Mutation("CU-1, CU-10 waits for take-over", "segment", "if self.to_start and not self.sending and self.tk_done():", "if self.to_start and not self.sending:"),
    Mutation("CU-11 distributed pause", "segment", "out.append(Send(peer, Pause(attempt)))", "inlet.conn[PRIM] = PAUSED"),
    Mutation("CU-12 attempt", "inlet", "if of == attempt:", "if attempt:"),
    Mutation("CU-14 drain", "consumer", "room = bool(self.window) or len", "room = len"),
    Mutation("CU-15 reverse", "segment", "                out += inlet.reverse_to(SEC)", "                pass"),
    Mutation("CU-16 quiet", "segment", "and self.consumer.quiet():", "and True:"),
    Mutation("CU-16 queues travel", "segment", "            inlet.owed = 0  #", "            inlet.queue = ()  #"),
    Mutation("CU-17 swap del", "outlet", "        self.evict = evict\n        self.conn", "        self.conn"),
    Mutation("CU-17 swap status, ver, peers", "outlet", "            pair.reverse()\n        evict", "            pass\n        evict"),
    Mutation("CU-17 owed reverse", "inlet", "self.rev_owed = prim is not ACTIVE and sec is ACTIVE", "self.rev_owed = False"),
    Mutation("CU-19 b", "outlet", "(Producer.F, ACTIVE, PRIM): OnCsync(True, now=((PRIM, SEND),), met=", "(Producer.F, ACTIVE, PRIM): OnCsync(True, met=((PRIM, SEND),) + "),
    Mutation("CU-19 c first marker", "outlet", "(Producer.F, STANDBY, PRIM): OnCsync(False, met=", "(Producer.F, STANDBY, PRIM): OnCsync(False, now="),
    Mutation("CU-19 c active", "outlet", "(Producer.F, ACTIVE, SEC): OnCsync(True, met=", "(Producer.F, ACTIVE, SEC): OnCsync(True, now="),
    Mutation("CU-19 d first marker", "outlet", "(Producer.F, STANDBY, SEC): OnCsync(False, met=", "(Producer.F, STANDBY, SEC): OnCsync(False, now="),
    Mutation("CU-20 conn", "outlet", "elif self.conn[SEC] & SEND:", "elif False:"),
    Mutation("CU-20 r_done", "outlet", "        self.r_done = False\n        self.told = [NOTHING, NOTHING]\n        if", "        self.told = [NOTHING, NOTHING]\n        if"),
    Mutation("CU-21 a pause", "inlet", "(Consumer.F, ACTIVE, PRIM): OnPsync(first=((PRIM, PAUSED),)", "(Consumer.F, ACTIVE, PRIM): OnPsync(first=()"),
    Mutation("CU-21 a pause of the new", "inlet", "(Consumer.F, STANDBY, PRIM): OnPsync(first=((PRIM, PAUSED),)", "(Consumer.F, STANDBY, PRIM): OnPsync(first=((PRIM, RECV),)"),
    Mutation("CU-21 early acks", "inlet", "(Consumer.F, STANDBY, SEC): OnPsync(first=()", "(Consumer.F, STANDBY, SEC): OnPsync(first=((SEC, ACK),)"),
    Mutation("CU-22", "outlet", "return met\n\n    def sync", "return False\n\n    def sync"),
    Mutation("AB-1 attempts rise", "controller", "attempt = view.attempts + 1  # AB-1", "attempt = 1"),
    Mutation("AB-2 csync", "outlet", "return message.version <= self.exp  # AB-2", "return True"),
    Mutation("AB-2 psync", "inlet", "return message.version <= self.exp  # AB-2", "return True"),
    Mutation("AB-3 csync", "outlet", "if version < self.exp or self.status[p] is DEAD:  # AB-3, AB-4, AB-8", "if self.status[p] is DEAD:"),
    Mutation("AB-3 un-pause", "outlet", "if self.kind is Producer.F and d == PRIM:\n                self.conn", "if False:\n                self.conn"),
    Mutation("AB-3 psync", "inlet", "if version < self.exp or self.status[p] is DEAD:  # AB-3, AB-4", "if self.status[p] is DEAD:"),
    Mutation("AB-3 reverse at once", "inlet", "                return self.reverse_to(SEC)\n            return []\n        row", "                return []\n            return []\n        row"),
    Mutation("AB-4, AB-8 csync", "outlet", "if version < self.exp or self.status[p] is DEAD:  # AB-3, AB-4, AB-8", "if version < self.exp:"),
    Mutation("AB-4 psync", "inlet", "if version < self.exp or self.status[p] is DEAD:  # AB-3, AB-4", "if version < self.exp:"),
    Mutation("AB-4 sec_stopped", "inlet", "(self.sec_stopped or not self.conn[SEC] & RECV)", "(not self.conn[SEC] & RECV)"),
    Mutation("AB-5 applied early", "outlet", "if self.status[d] is STANDBY or self.between_markers():", "if False:"),
    Mutation("AB-5 ignored at the match", "outlet", "if met and self.rev_wait:", "if False:"),
    Mutation("AB-5 clear on death of SEC", "outlet", "self.rev_wait = False  # AB-5", "pass"),
    Mutation("AB-5 apply on death of PRIM", "outlet", "        elif self.rev_wait:\n            self._start_sending(SEC)", ""),
    Mutation("FS-26 not read", "inlet", "if self._ahead(p):", "if False:"),
    Mutation("FS-26 not sent to", "outlet", "if self._ahead(p):", "if False:"),
    Mutation("AB-6 p_fail", "segment", "attempt = self.consumer.window\n        self.status = ACTIVE", "attempt = self.consumer.window\n        self.p_fail = False\n        self.status = ACTIVE"),
    Mutation("AB-6 abort", "segment", "out += self._abort()", "pass"),
    Mutation("AB-7", "segment", "if self.standby is not None and self.standby.life == attempt:  # AB-7", "if self.standby is not None:"),
    Mutation("AB-9 position", "segment", "self.boundary.log_position = state.log_position", "self.boundary.log_position = 10**9 if False else self.boundary.log_position + 10**6"),
    Mutation("CT-3 source first", "controller", "for pair in self.shape.pairs()\n            if not (view", "for pair in reversed(self.shape.pairs())\n            if not (view"),
    Mutation("CT-3 one stage at a time", "controller", "if not incomplete or (started and started[0].pair.stage != incomplete[0][0].stage):", "if not incomplete:"),
    Mutation("CT-7 limit", "controller", "if len(self.in_hand) < self.parallel_max:  # CT-7", "if True:"),
    Mutation("CT-4", "controller", "if mate is None or site != mate.site]", "if True]"),
    Mutation("CT-5", "controller", "if self.pairs[pair].ready == self.failures:  # CT-5", "if self.pairs[pair].ready >= 0:"),
    Mutation("CT-6", "controller", "self._neighbours(now.pair) <= now.folded", "True"),
    Mutation("XM-1 wait for all", "consumer", "if ordered and lowest is not None and mark < lowest:", "if False:"),
    Mutation("XM-2 marks", "outlet", "if progress > self.told[d]:\n            self.told", "if False:\n            self.told"),
    Mutation("XM-2 again after reverse", "outlet", "self.evict |= MARK_OF[d]\n        self.told[d] = NOTHING", "self.evict |= MARK_OF[d]"),
    Mutation("UF-2, UF-3 reserve", "producer", "if own < reserve:", "if False:"),
    Mutation("3.4 a dangling needs no room", "buffer", "return sn not in self.dangling and not self._implied(sn)", "return True"),
    Mutation("SP-3 waits while on disk", "segment", "self.back.wait(*taken)", "pass"),
    Mutation("SP-4, DET-4 in order", "back", "return self.head.popleft()", "return self.head.pop()"),
    Mutation("XM-2 behind what waits", "segment", "return self.back.first_batch - 1 if self.back.waiting else self.consumer.complete()", "return self.consumer.complete()"),
    Mutation("AMB-6 waiting units travel", "segment", "self.back.install(state.operator, state.waiting)", "self.back.install(state.operator, ())"),
    Mutation("RS-1", "controller", "if copy is not None and copy.status is not Status.DEAD:", "if False and copy is not None:"),
    Mutation("RS-2 away from the survivors", "controller", "sites = sorted(controller.sites - taken)", "sites = sorted(controller.sites)"),
    Mutation("RS-3 all or none", "segment", "return [done]  # goes on when the whole replica set has moved", "return self._then([*self._go_on(standby=False), done])"),
    Mutation("RS-3 cut", "segment", "quiet = [\n                Send(peer, PauseAck(version))", "quiet = [\n                Send(peer, PauseAck(0))"),
    Mutation("FS-25 numbers are names", "inlet", "if self.sequence and (batch", "if (batch"),
    Mutation("UF-10 one copy of a pair", "balancing", "return unit(part) not in moved and allowed(part, donor, receiver)", "return allowed(part, donor, receiver)"),
    Mutation("UF-9 sampling error", "collection", "if not self.tuples_min:\n            return 1.0", "return 1.0"),
    Mutation("UF-9 undo detector", "collection", "self.delta_min = min(self.delta_max, 2 * self.delta_min)", "pass"),
    Mutation("credits", "channels", "self.spent[channel] -= n", "pass"),
    # ---- one by one, what the list above left out
    Mutation("NC-1 room", "producer", "if outlet.buffer.needs_room(batch) and not self.room(i):", "if False:"),
    Mutation("NC-2 guard", "outlet", "if self.status[d] is not ACTIVE or not self.conn[d] & SEND:\n            return None", "if self.status[d] is not ACTIVE:\n            return None"),
    Mutation("NC-5", "inlet", "self.queue = (*self.queue, message)  # NC-5, CU-14", "pass"),
    Mutation("NC-6", "ends", "return [AckSource(batch)]", "return []"),
    Mutation("NC-7 kept", "ends", "if self.dataflow.shape.results_max:", "if False:"),
    Mutation("NC-7 limit", "ends", "return not limit or len(self.unacked) < limit", "return True"),
    Mutation("TO-2, TO-5 conn", "inlet", "self.status[d] = DEAD\n        self.conn[d] = 0", "self.status[d] = DEAD"),
    Mutation("TO-6 conn", "outlet", "self.conn[d] = 0\n        self.buffer.ack_all", "self.buffer.ack_all"),
    Mutation("TO-6 after TO-5c", "inlet", "self.conn[PRIM] = RECV\n            return []", "return []"),
    Mutation("CU-1 remembered", "segment", "attempt, self.to_start = self.to_start, 0", "attempt = self.to_start"),
    Mutation("CU-3", "segment", "self.status = PAUSE  # CU-3", "pass"),
    Mutation("CU-4", "back", "self.operator.install_state(state)\n        self.head", "self.head"),
    Mutation("CU-5, CU-18 un-pause", "segment", "inlet.conn[PRIM] = RECV | ACK if s_cons else RECV", "pass"),
    Mutation("CU-7, CU-20 psync", "segment", "Send(peer, Psync(self.version))", "Send(peer, Psync(0))"),
    Mutation("CU-12", "outlet", "self.conn[d] = PAUSED  # CU-12", "pass"),
    Mutation("CU-13", "inlet", "self.conn[d] = PAUSED  # CU-13", "pass"),
    Mutation("CU-18 csync", "segment", "Send(peer, Csync(attempt))", "Send(peer, Csync(0))"),
    Mutation("CU-6, CU-19 ver", "outlet", "self.ver[d] = version", "pass"),
    Mutation("CU-8, CU-21 ver", "inlet", "self.ver[d] = version", "pass"),
    Mutation("CU-8b", "inlet", "(Consumer.EGRESS, STANDBY, PRIM): OnPsync(first=(), met=((SEC, RECV), (PRIM, ACK)))", "(Consumer.EGRESS, STANDBY, PRIM): OnPsync(first=(), met=((SEC, RECV),))"),
    Mutation("CT-1 numbers", "controller", "self.failures += 1", "pass"),
    Mutation("CT-2 modes", "controller", "if copy is not None and copy.status is not ACTIVE\n        ]", "if copy is not None and copy.status is DEAD\n        ]"),
    Mutation("BUF-1 marks", "buffer", "if not entry.marks & mark:", "if True:"),
    Mutation("BUF-2", "buffer", "self.cursor[d] += 1", "pass"),
    Mutation("BUF-4 dangling", "buffer", "self.dangling[sn] = self.dangling.get(sn, 0) | MARK_OF[d]", "pass"),
    Mutation("BI-1", "buffer", "if not entry.marks & PROD:", "if False:"),
    Mutation("BI-2", "buffer", "if not evict & ~entry.marks:", "if False:"),
    Mutation("BI-3", "buffer", "if entry.place < self.cursor[d] and not entry.marks & MARK_OF[d]:", "if False:"),
    Mutation("BI-4", "buffer", "if marks & PROD or sn in self.entries:", "if False:"),
    Mutation("BI-5", "buffer", "if sn in self.entries or (sn <= self.last and self.cumulative):", "if False:"),
    Mutation("BI-6", "buffer", "Entry(entry.place, entry.marks & ~mine, entry.rows)", "Entry(entry.place, entry.marks, entry.rows)"),
    Mutation("DET-1", "operators/rows", "mixed = np.full(batch.num_rows, 0x9E3779B97F4A7C15, np.uint64)", "mixed = np.full(batch.num_rows, hash('seed') % 2**63, np.uint64)"),
    Mutation("DET-2", "operators/window", "pane = (ints(batch, self.time) // self.slide)[groups.order]", "pane = np.full(len(groups.order), __import__('time').time_ns() // self.slide)"),
    Mutation("DET-3", "operators/window", '"pane": self.pane[:n][chosen],', '"pane": self.pane[:n][chosen][::-1],'),
    Mutation("XM-3", "ends", "producer.complete(END)", "pass"),
    Mutation("UF-1 quotas", "producer", "taken += max(len(outlet.buffer.entries), reserve)", "taken += max(len(outlet.buffer.entries), self.shape.pool // len(self.outlets))"),
    Mutation("UF-4 spread", "controller", "(pair.part + copy) % sites", "copy % sites"),
    Mutation("UF-7 failure between two looks", "balancer", "if self.controller.failures != self.failures or self.controller.losses:", "if self.controller.losses:"),
    Mutation("UF-7 abort", "balancer", "self.mode = Mode.RECOVERING  # UF-7", "pass  # UF-7"),
    Mutation("UF-8 number", "balancer", "self.round += 1  # UF-8", "pass"),
    Mutation("UF-8 answers", "balancer", "if round_ != self.round or self.mode", "if self.mode"),
    Mutation("UF-9 who was asked", "balancer", "asked = self.asked & self.controller.sites", "asked = self.controller.sites"),
    Mutation("UF-9 who is left", "balancer", "asked = self.asked & self.controller.sites", "asked = self.asked"),
    Mutation("UF-9 T_stat", "balancer", "self.gathering = now - self.asked_at", "self.gathering = 0.0"),
    Mutation("UF-10 apart", "controller", "            apart\n            and site in self.sites", "            site in self.sites"),
    Mutation("UF-11 ended", "controller", "return [Destroy(Node(*pair, c, copy.life)), *self.fail(pair, c), *self._plan()]", "return [*self.fail(pair, c), *self._plan()]"),
    Mutation("UF-11 target", "controller", "self.targets += ((pair, c, site),)", "pass"),
    Mutation("UF-12 end of the round", "balancer", "if orders or not self.controller.is_whole:", "if orders:"),
    Mutation("UF-13 the emptiest site", "controller", "return min(allowed)[1] if allowed else None", "return max(allowed)[1] if allowed else None"),
    Mutation("SP-1 lent", "spill", "self.pages += pages", "pass"),
    Mutation("SP-1 given back", "spill", "given = max(0, min(self.wanted_back, self.free))", "given = 0"),
    Mutation("SP-2 threshold", "spill", "while self.active and self.pool.free < wanted + self.threshold:", "while self.active and self.pool.free < wanted:"),
    Mutation("SP-2 written", "back", "self.resident = False", "pass"),
    Mutation("SP-4 turns", "spill", "part = self.active.popleft()", "part = self.active.pop()"),
    Mutation("SP-5", "spill", "return [self._read(now)]  # SP-5", "pass  # SP-5"),
    Mutation("SP-6", "spill", "gap = self.gap if self.gap is not None else self.activation_took", "gap = self.gap or 0.0"),
)  # fmt: skip

ABOUT_ALL: Final = "tests/flux_lab/papers/test_flux_actions.py"
"""Tests of the list of mutations and of its page, which are not in the copy."""
SEEDS: Final = """\
import sys
from flux_lab import sweep
for seed in range({seeds}):
    try:
        sweep.run(seed)
    except Exception as e:
        print("killed at seed", seed, (str(e) or type(e).__name__).splitlines()[0][:90])
        sys.exit()
print("survived")
"""


def _paths(mutation: Mutation, folder: Path) -> list[tuple[str, ...]]:
    """Tests to run, those of the module itself first."""
    if mutation.file.startswith("operators"):
        return [("tests/flux_runtime/operators/test_flux_operators.py",)]
    parts = NEAR.get(mutation.file, (mutation.file,))
    places = [f"{tests}/test_flux_{part}.py" for tests in TEST_FOLDERS for part in parts]
    near = tuple(place for place in places if (folder / place).exists())
    return [near, TESTS] if near else [TESTS]


def try_out(mutation: Mutation, seeds: int) -> str:
    """Run tests, then seeds, against the mutated package; what noticed."""
    with tempfile.TemporaryDirectory() as folder:
        copied = ("flux_runtime", "flux_lab", "benchmarks", "tests/flux_runtime", "tests/flux_lab")
        mutating.copied(Path(folder), {place: place for place in copied})
        target = Path(folder) / mutation.path
        text = target.read_text(encoding="utf-8")
        if text.count(mutation.old) != 1:
            return f"cannot be applied: {text.count(mutation.old)} places"
        target.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
        for paths in _paths(mutation, Path(folder)):
            killed = mutating.noticed(Path(folder), paths, f"--ignore={ABOUT_ALL}")
            if killed is not None:
                return killed
        done = mutating.run(folder, "-c", SEEDS.format(seeds=seeds))
        return (done.stdout or done.stderr[-300:]).strip()


def main() -> int:
    """Print one line per mutation, then the survivors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--only", default="", help="rules whose name contains this")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=len(MUTATIONS))
    parser.add_argument("--keep", action="store_true", help="write down what was found")
    args = parser.parse_args()
    survivors = []
    for mutation in MUTATIONS[args.first : args.last]:
        if args.only not in mutation.rule:
            continue
        started = time.perf_counter()
        said = try_out(mutation, args.seeds)
        print(f"{mutation.rule:32} {said}  ({time.perf_counter() - started:.1f} s)", flush=True)
        if not said.startswith("killed"):
            survivors.append(mutation.rule)
        if args.keep:
            rules = [each.rule for each in MUTATIONS]
            mutating.keep(FOUND, {mutation.rule: said}, rules)
    print(f"survivors: {', '.join(survivors) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

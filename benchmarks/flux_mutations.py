# ruff: noqa: E501 (each mutation is one line of text)
"""Does every rule of the protocol earn its place? Remove one at a time, run seeds until one fails.

    python benchmarks/flux_mutations.py [--seeds 3000] [--only AB]

Each mutation changes one line of a copy of the protocol package; the unit tests and the named
scenarios run against it, then random schedules and faults. `killed by` names the first test,
`killed at` the first seed that noticed; survivors are listed. `docs/explanation/flux.md` says for each survivor why nothing notices.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Mutation(NamedTuple):
    """One line of the protocol taken out or turned around."""

    rule: str
    file: str
    old: str
    new: str


MUTATIONS = (
    Mutation("NC-2a", "outlet", "if not self.conn[d] & ACK:", "if False:"),
    Mutation("NC-3", "outlet", "self.buffer.ack(batch, d, self.evict)  # NC-3", "pass"),
    Mutation("NC-5a", "inlet", "return self.flush() if self.owed >= every else []", "return []"),
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
    Mutation("CU-9 producers whole", "segment", "and self.consumer.whole()", "and True"),
    Mutation("CU-10 waits for take-over", "segment", "if self.to_start and self.tk_done():", "if self.to_start:"),
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
    Mutation("AB-4 csync", "outlet", "if version < self.exp or self.status[p] is DEAD:  # AB-3, AB-4, AB-8", "if version < self.exp:"),
    Mutation("AB-4 psync", "inlet", "if version < self.exp or self.status[p] is DEAD:  # AB-3, AB-4", "if version < self.exp:"),
    Mutation("AB-4 sec_stopped", "inlet", "(self.sec_stopped or not self.conn[SEC] & RECV)", "(not self.conn[SEC] & RECV)"),
    Mutation("AB-5 applied early", "outlet", "if self.status[d] is STANDBY or self.between_markers():", "if False:"),
    Mutation("AB-5 ignored at the match", "outlet", "if met and self.rev_wait:", "if False:"),
    Mutation("AB-5 clear on death of SEC", "outlet", "self.rev_wait = False  # AB-5", "pass"),
    Mutation("AB-5 apply on death of PRIM", "outlet", "        elif self.rev_wait:\n            self._start_sending(SEC)", ""),
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
    Mutation("XM-1 wait for all", "merge", "if ordered and any(not i.queue and i.mark < lowest for i in inlets):", "if False:"),
    Mutation("XM-2 marks", "outlet", "if progress > self.told[d]:\n            self.told", "if False:\n            self.told"),
    Mutation("XM-2 again after reverse", "outlet", "self.evict |= MARK_OF[d]\n        self.told[d] = NOTHING", "self.evict |= MARK_OF[d]"),
    Mutation("UF-2 reserve", "producer", "if own < reserve:", "if False:"),
    Mutation("3.4 a dangling needs no room", "buffer", "return sn not in self.dangling and not self._implied(sn)", "return True"),
    Mutation("SP-3 waits while on disk", "segment", "self.back.wait(*taken)", "pass"),
    Mutation("SP-4 in order", "back", "return self.head.popleft()", "return self.head.pop()"),
    Mutation("XM-2 behind what waits", "segment", "return self.back.first_batch - 1 if self.back.waiting else self.consumer.complete()", "return self.consumer.complete()"),
    Mutation("AMB-6 waiting units travel", "segment", "self.back.install(state.operator, state.waiting)", "self.back.install(state.operator, ())"),
    Mutation("RS-1", "replica_sets", "if copy is not None and copy.status is not Status.DEAD:", "if False and copy is not None:"),
    Mutation("RS-2 away from the survivors", "replica_sets", "sites = sorted(controller.sites - taken)", "sites = sorted(controller.sites)"),
    Mutation("RS-3 all or none", "segment", "return [done]  # goes on when the whole replica set has moved", "return self._then([*self._go_on(standby=False), done])"),
    Mutation("RS-3 cut", "segment", "quiet = [\n                Send(peer, PauseAck(version))", "quiet = [\n                Send(peer, PauseAck(0))"),
    Mutation("FS-25 numbers are names", "inlet", "if self.sequence and (batch", "if (batch"),
    Mutation("UF-10 one copy of a pair", "balancing", "return unit(part) not in moved and allowed(part, donor, receiver)", "return allowed(part, donor, receiver)"),
    Mutation("UF-9 sampling error", "collection", "if not self.tuples_min:\n            return 1.0", "return 1.0"),
    Mutation("UF-9 undo detector", "collection", "self.delta_min = min(self.delta_max, 2 * self.delta_min)", "pass"),
    Mutation("credits", "channels", "self.spent[channel] -= n", "pass"),
)  # fmt: skip


def try_out(mutation: Mutation, seeds: int) -> str:
    """Run seeds against the mutated protocol; what the simulator said."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "flux_runtime", Path(folder) / "flux_runtime")
        target = Path(folder) / "flux_runtime" / "protocol" / f"{mutation.file}.py"
        text = target.read_text(encoding="utf-8")
        if text.count(mutation.old) != 1:
            return f"cannot be applied: {text.count(mutation.old)} places"
        target.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
        code = (
            "import sys\nfrom flux_runtime.simulation import sweep\n"
            f"for seed in range({seeds}):\n"
            "    try: sweep.run(seed)\n"
            "    except Exception as e:\n"
            "        text = str(e).splitlines()[0] if str(e) else type(e).__name__\n"
            "        print('killed at', seed, text[:90]); sys.exit()\n"
            "print('SURVIVED')\n"
        )
        environment = {**os.environ, "PYTHONPATH": folder}
        shutil.copytree(ROOT / "tests" / "flux_runtime", Path(folder) / "tests")
        tests = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "--no-header",
            "-p",
            "no:cacheprovider",
        ]
        kept = "tests/simulation/test_flux_sweep.py::test_runs_that_once_found_a_mistake"
        paths = ["tests/protocol", "tests/simulation/test_flux_scenarios.py", kept]
        tested = subprocess.run(
            [*tests, *paths],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if tested.returncode == 1:
            failed = [line for line in tested.stdout.splitlines() if line.startswith("FAILED")]
            return "killed by " + failed[0].split("::")[1].split(" ")[0]
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return (done.stdout or done.stderr[-300:]).strip()


def main() -> int:
    """Print one line per mutation, then the survivors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    survivors = []
    for mutation in MUTATIONS:
        if args.only not in mutation.rule:
            continue
        started = time.perf_counter()
        said = try_out(mutation, args.seeds)
        print(f"{mutation.rule:32} {said}  ({time.perf_counter() - started:.1f} s)", flush=True)
        if not said.startswith("killed"):
            survivors.append(mutation.rule)
    print(f"survivors: {', '.join(survivors) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

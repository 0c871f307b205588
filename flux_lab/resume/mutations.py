# ruff: noqa: E501 (each mutation is one line of text)
"""Does every rule of the resume protocol earn its place? Random runs against each without it.

    python -m flux_lab.resume.mutations [--seeds 2000] [--only RULE]

Each mutation changes one piece of the text of a module; sites and a controller of the changed text
then run seed after seed until a run fails. Printed is the first that does, and how; a mutation that
no seed notices is a survivor.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

from flux_lab.resume.sweep import RunError, Tried, run
from flux_runtime.resume import controller, replica, site


class Mutation(NamedTuple):
    """A rule, its module, and the text that stands for it with and without.

    Attributes:
        seed: the first that notices; None where an order of events is needed that random runs
            hardly make, and `tests/flux_runtime/resume` makes on purpose.
    """

    rule: str
    module: ModuleType
    old: str
    new: str
    seed: int | None = 0


MUTATIONS: Final = (
    Mutation("RS-1 no window", site, "return due <= self.low[replica.copy.stage]", "return True", 0),
    Mutation("RS-1 stores what nobody wants", replica, "if self.done > low:", "if True:", 0),
    Mutation("RS-1 merges in order of arrival", replica, "row[slot] = unit", "row[len(self.heads) - row[-1]] = unit", 0),
    Mutation("RS-1 a row with a gap is whole", replica, "return row is not None and row[-1] == 0", "return row is not None and row[-1] <= 1", 0),
    Mutation("RS-2 serves below what is acknowledged", site, "after = max(after, self.acked[consumer.stage][consumer])", "pass", None),
    Mutation("RS-2 sends what is new only", site, "for batch, units in wanted:", "for batch, units in wanted[:0]:", 0),
    Mutation("RS-3 takes anything newer", replica, "if self.heads[slot] + 1 != batch:", "if self.heads[slot] >= batch:", None),
    Mutation("RS-3 takes anything", replica, "if self.heads[slot] + 1 != batch:", "if False:", 1),
    Mutation("RS-4 acknowledges on receipt", site, "Ack(copy, replica.done)", "Ack(copy, min(replica.heads))", 1),
    Mutation("RS-4 acknowledges never while idle", site, "(idle or batches - when >= enough)", "(batches - when >= enough)", 0),
    Mutation("RS-4 acknowledges one too much", site, "Ack(copy, replica.done)", "Ack(copy, replica.done + 1)", 0),
    Mutation("RS-5 releases on the first", site, "min(min(acked[consumer].values())", "min(max(acked[consumer].values())", 0),
    Mutation("RS-5 releases on one stage's", site, "low = min(min(acked", "low = max(min(acked", 24),
    Mutation("RS-5 acknowledgements may go back", site, "if done > known.get(copy, done):", "if copy in known:", None),
    Mutation("RS-6 asks for one too late", site, "producer, replica.heads[slot])", "producer, replica.heads[slot] + 1)", 0),
    Mutation("RS-6 asks for what is processed", site, "self._ask(Resume(consumer, producer, replica.heads[slot]))", "self._ask(Resume(consumer, producer, None))", 0),
    Mutation("RS-7 forgets who asks a standby", site, "waiting[consumer] = after", "pass", 0),
    Mutation("RS-8 no pin", site, "known[copy] = known[donor]  # RS-8, the pin", "known[copy] = max(known.values())", 9),
    Mutation("RS-9 tells the oldest producer only", site, "yield from (site for site in self.members[pair].values()", "yield from (site for site in list(self.members[pair].values())[:1]", 0),
    Mutation("RS-10 reads at once", site, "if sent.position > self.position:", "if False:", 2),
    Mutation("RS-10 forgets what came ahead", site, "self.ahead.append(sent)", "pass", 2),
    Mutation("RS-12 in the middle of a batch", site, "if replica.busy or not replica.owed:", "if not replica.owed:", 29),
    Mutation("RS-12 without held outputs", site, "held=tuple(replica.held)", "held=()", 9),
    Mutation("RS-12 without what is acknowledged", site, "self._take_acks(sent.acked)", "pass", None),
    Mutation("RS-12 state of the batch before", site, "done=replica.done,", "done=replica.done - 1,", 6),
    Mutation("RS-24 acknowledges one too much", site, "Ack(new, replica.done)", "Ack(new, replica.done + 1)", 9),
    Mutation("RS-24 acknowledges for whom the state was taken", site, "del replica.owed[copy]\n", "replica.owed[copy] = False\n", 10),
    Mutation("RS-13 knows nothing of itself", site, "self.acked[copy.stage][copy] = max(done, self.acked[copy.stage][copy])", "pass", 29),
    Mutation("RS-13 takes no source", site, "for slot in range(len(replica.sources)):", "for slot in range(0):", 0),
    Mutation("RS-14 waits for ever", site, "out.append(Void(standby))", "pass", None),
    Mutation("RS-15 waits for the dead", site, "if self.acked[copy.stage].pop(copy, None) is not None:", "if self.acked[copy.stage].get(copy) is not None:", 2),
    Mutation("RS-15 releases only later", site, "is not None:  # RS-15\n            self._changed[copy.stage] = None", "is not None:\n            pass", 25),
    Mutation("RS-15 sends to the dead", site, "del replica.subscribers[copy]", "pass", 2),
    Mutation("RS-16 stays with the dead", site, "replica.sources[slot] == copy:  # RS-16", "False:", 2),
    Mutation("RS-17 lives on", site, "self.replicas.pop(copy, None)  # RS-17", "pass", 2),
    Mutation("RS-17 owes the dead", site, "replica.owed.pop(copy, None)", "pass", None),
    Mutation("RS-18 a void copy stays", controller, "            self._append(Fail(copy))\n        self._plan()\n\n    def move", "            pass\n        self._plan()\n\n    def move", None),
    Mutation("RS-18 silent loss", controller, "self._append(Lost(pair))\n                self._start()", "pass", 176),
    Mutation("RS-19 the old copy stays", controller, "if len(working) > wanted:", "if False:", None),
    Mutation("RS-20 old frames count", site, "if sent.position < self.started:  # RS-20", "if False:", None),
    Mutation("RS-20 from the first state", site, "return [Load(copy, entry.at) for copy in here]", "return [Load(copy, 0) for copy in here]", None),
    Mutation("RS-21 an end is void without the other", site, "if donor == copy and not self.flow.is_end(copy.stage):", "if donor == copy:", 7),
    Mutation("RS-21 fails the old end first", controller, "self._append(Avail(self._new(old.pair), self.ends, old))\n                self._append(Fail(old))", "self._append(Fail(old))\n                self._append(Avail(self._new(old.pair), self.ends, old))", 7),
    Mutation("RS-22 does not ask again", site, "if source is not None and self.members[source.pair].get(source) == there:", "if False:", 8),
    Mutation("RS-22 does not tell again", site, "self._told.pop(there, None)\n        for replica", "for replica", None),
    Mutation("RS-23 does not say what works", site, "return [*known, *map(Void, gone)]", "return [*map(Void, gone)]", 7),
    Mutation("RS-23 does not say what is gone", site, "return [*known, *map(Void, gone)]", "return [*known]", None),
)  # fmt: skip


def changed(mutation: Mutation | None) -> Tried:
    """Sites and a controller made of the changed text; of the text as it is, if None.

    Raises:
        ValueError: the text is not there, or more than once.
    """
    names: dict[ModuleType, dict[str, Any]] = {}
    for module in (replica, site, controller):
        text = inspect.getsource(module)
        if mutation is not None and mutation.module is module:
            if text.count(mutation.old) != 1:
                raise ValueError(f"{mutation.rule}: {text.count(mutation.old)} places to change")
            text = text.replace(mutation.old, mutation.new)
        copied = ModuleType(f"{module.__name__}_changed")
        sys.modules[copied.__name__] = copied  # where the explorer's pickles look for its classes
        exec(compile(text, str(module.__file__), "exec"), copied.__dict__)  # our own text
        names[module] = copied.__dict__
    names[site]["Replica"] = names[replica]["Replica"]
    return Tried(names[site]["Site"], names[controller]["Controller"])


def noticed(mutation: Mutation, seeds: Iterable[int]) -> str | None:
    """The first seed that fails, and how; None if none does."""
    tried = changed(mutation)
    for seed in seeds:
        try:
            run(seed, tried=tried)
        except RunError as failure:
            return f"seed {seed}: {str(failure).partition(': ')[2].splitlines()[0]}"
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per mutation, then the survivors."""
    parser = argparse.ArgumentParser(prog="python -m flux_lab.resume.mutations")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--only", default="", help="rules whose name contains this")
    args = parser.parse_args(argv)
    survivors = []
    for mutation in MUTATIONS:
        if args.only in mutation.rule:
            how = noticed(mutation, range(args.seeds))
            print(f"{mutation.rule:42} {how or 'SURVIVED'}"[:140], flush=True)
            survivors += [] if how else [mutation.rule]
    print(f"survivors: {', '.join(survivors) or 'none'}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

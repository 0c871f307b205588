"""Control messages: every rule of the table is needed, and every limit refuses what is beyond it.

python -m tests.flux_runtime.site.test_control_messages     writes the table into the documentation
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from flux_lab.control_fuzz import beyond, drawn, flow
from flux_runtime.site import control_messages as control
from flux_runtime.site.config import SiteConfig
from flux_runtime.site.control_messages import RULES, Message, Role, Rule
from flux_runtime.site.feeder import Feeder
from flux_runtime.site.key import JobKey
from flux_runtime.site.wire import Malformed

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "flux-on-spark.md"
BEGIN, END = "<!-- the table of control messages -->\n", "<!-- end of the table -->"


@pytest.fixture(autouse=True)
def fresh_decoders() -> Iterator[None]:
    yield
    forget()


def forget() -> None:
    control._kinds.cache_clear()
    control._decoder.cache_clear()


def said(rule: Rule, message: Message) -> bytes:
    return control.encode(message, speaker=rule.speaker, hearer=rule.hearer, greeting=rule.greeting)


def heard(rule: Rule, body: bytes) -> Message:
    view = memoryview(body)
    if rule.greeting:
        speaker, message = control.decode_greeting(
            view, speakers=(rule.speaker,), hearer=rule.hearer
        )
        assert speaker is rule.speaker
        return message
    return control.decode(view, speaker=rule.speaker, hearer=rule.hearer)


def name(rule: Rule) -> str:
    return f"{rule.kind.__name__}-{rule.speaker}-{rule.hearer}"


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_message_comes_back_as_it_was(rule: Rule) -> None:
    draw = random.Random(name(rule))
    for _ in range(20):
        message = drawn(draw, rule.kind)
        assert heard(rule, said(rule, message)) == message


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_without_its_rule_a_message_is_neither_said_nor_heard(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = drawn(random.Random(0), rule.kind)
    body = said(rule, message)
    forget()
    monkeypatch.setattr(control, "RULES", tuple(other for other in RULES if other != rule))
    with pytest.raises(ValueError, match="never tells"):
        said(rule, message)
    with pytest.raises(Malformed):
        heard(rule, body)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_nobody_else_may_say_it(rule: Rule) -> None:
    body = said(rule, drawn(random.Random(1), rule.kind))
    others = {r[1:3] for r in RULES if r.kind is rule.kind}
    for speaker in Role:
        for hearer in Role:
            if (speaker, hearer) not in others:
                with pytest.raises(Malformed):
                    heard(rule._replace(speaker=speaker, hearer=hearer), body)
    with pytest.raises(Malformed):
        heard(rule._replace(greeting=not rule.greeting), body)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_field_beyond_what_anything_needs_is_refused(rule: Rule) -> None:
    plain = json.loads(said(rule, drawn(random.Random(2), rule.kind)))
    for field, value in beyond(rule.kind):
        with pytest.raises(Malformed):
            heard(rule, json.dumps({**plain, field: value}).encode())


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_field_too_many_or_too_few_is_refused(rule: Rule) -> None:
    plain = json.loads(said(rule, drawn(random.Random(3), rule.kind)))
    with pytest.raises(Malformed):
        heard(rule, json.dumps({**plain, "more": 1}).encode())
    for field in plain:
        left = {key: value for key, value in plain.items() if key != field}
        with pytest.raises(Malformed):
            heard(rule, json.dumps(left).encode())


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"[" * 200_000, b'{"c":' * 5000, b'{"c":"stop"}x', b"\xff{}"],
    ids=range(8),
)
def test_what_is_no_message_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        control.decode(memoryview(body), speaker=Role.CLIENT, hearer=Role.LEADER)


def test_a_long_log_is_told_in_pieces_that_join() -> None:
    entries = [control.Gone(0, 0, n) for n in range(2 * control.ENTRIES_MAX + 5)]
    pieces = list(control.pieces(entries, 7))
    assert [piece.start for piece in pieces] == [7 + n * control.ENTRIES_MAX for n in range(3)]
    assert [entry for piece in pieces for entry in piece.entries] == entries
    for piece in pieces:
        body = control.encode(piece, speaker=Role.LEADER, hearer=Role.SITE)
        assert control.decode(memoryview(body), speaker=Role.LEADER, hearer=Role.SITE) == piece
    assert list(control.pieces([], 3)) == [control.Log(3, ())]


def test_a_source_whose_name_no_message_takes_is_refused_at_once() -> None:
    config = SiteConfig(key=JobKey.fresh(), dataflow=flow, controller=("127.0.0.1", 1))
    with pytest.raises(ValueError, match="257 characters, at most 256"):
        Feeder(config, "x" * 257)


def written() -> str:
    return BEGIN + "".join(f"{line}\n" for line in control.table()) + END


def test_the_page_has_the_table() -> None:
    """Write it with `python -m tests.flux_runtime.site.test_control_messages`."""
    assert written() in PAGE.read_text(encoding="utf-8")


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    between = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)
    PAGE.write_text(between.sub(lambda _: written(), text), encoding="utf-8")

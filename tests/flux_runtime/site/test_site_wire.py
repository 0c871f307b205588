"""Frames, handshake and codec: what goes out comes back, and any bytes at all only close."""

from __future__ import annotations

import contextlib
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_lab.papers.frames import put_frame, take_acks, take_credits, take_message
from flux_lab.papers.hosted import entry_hosted, entry_of, notice_hosted, notice_of
from flux_lab.papers.protocol.channels import Channel, Envelope, Frame
from flux_lab.papers.protocol.messages import (
    Ack,
    Avail,
    CatchUpDone,
    CatchUpReady,
    CatchUpStart,
    Csync,
    Data,
    Fail,
    FoldInDone,
    Pause,
    PauseAck,
    Progress,
    Psync,
    Reverse,
)
from flux_runtime.protocol.vocabulary import Node, Pair
from flux_runtime.resume.messages import Avail as Announced
from flux_runtime.resume.messages import Copy, Installed, Void
from flux_runtime.resume.messages import Fail as Gone
from flux_runtime.site.codec import RowsDecoder, RowsEncoder
from flux_runtime.site.control_messages import (
    Hosted,
    Role,
    decode,
    entry_from_json,
    entry_to_json,
    notice_from_json,
    notice_to_json,
)
from flux_runtime.site.handshake import MAGIC, VERSION, Handshake, Refused
from flux_runtime.site.key import JobKey
from flux_runtime.site.wire import (
    LENGTH,
    Bundles,
    Kind,
    Malformed,
    TooLarge,
    bundle_length,
    frames,
)

numbers = st.integers(0, 2**40)
nodes = st.builds(
    Node, st.integers(-1, 9), st.integers(0, 999), st.integers(0, 1), st.integers(0, 2**31)
)
control = st.one_of(
    st.builds(Progress, numbers),
    st.builds(Psync, numbers),
    st.builds(PauseAck, numbers),
    st.builds(Ack, numbers),
    st.just(Reverse()),
    st.builds(Pause, numbers),
    st.builds(Csync, numbers),
)


def parsed(parts: list[object]) -> list[tuple[Kind, memoryview]]:
    """Read bundles as the other end does."""
    data = b"".join(bytes(part) for part in parts)  # type: ignore[call-overload]
    found: list[tuple[Kind, memoryview]] = []
    while len(data) >= LENGTH.size:
        length = bundle_length(data)
        found += frames(memoryview(data)[4 : 4 + length])
        data = data[4 + length :]
    return found


def decoded(parts: list[object]) -> tuple[list[Envelope], list[tuple[Channel, int]]]:
    """Envelopes and credits of bundles."""
    decoder = RowsDecoder()
    envelopes: list[Envelope] = []
    credits: list[tuple[Channel, int]] = []
    for kind, body in parsed(parts):
        if kind is Kind.SCHEMA:
            decoder.schema(body)
        elif kind is Kind.CREDITS:
            credits += take_credits(body)
        elif kind is Kind.ACKS:
            envelopes += take_acks(body)
        else:
            envelopes.append(take_message(body, decoder))
    return envelopes, credits


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_frames_come_back_as_they_were_and_begin_at_multiples_of_eight(bodies: list[bytes]) -> None:
    bundles = Bundles()
    for body in bodies:
        bundles.add(Kind.CONTROL, body)
    found = parsed(bundles.take())
    assert [bytes(body) for _, body in found] == bodies
    assert not bundles


def test_a_long_bundle_is_cut_and_a_frame_longer_than_a_bundle_may_be_is_refused() -> None:
    bundles = Bundles()
    for _ in range(5):
        bundles.add(Kind.STATE, bytes(700_000))
    assert len([p for p in bundles.take() if len(p) == LENGTH.size]) == 5

    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 30

    with pytest.raises(TooLarge):
        bundles.add(Kind.STATE, Huge())


@given(st.lists(st.tuples(nodes, nodes, control), max_size=20), st.integers(0, 5))
def test_messages_and_credits_come_back(sent: list[tuple[Node, Node, object]], n: int) -> None:
    envelopes = tuple(Envelope(a, b, m) for a, b, m in sent)  # type: ignore[arg-type]
    credits = tuple((Channel(a, b), i + 1) for i, (a, b, _) in enumerate(sent[:n]))
    bundles = Bundles()
    put_frame(Frame(envelopes, credits), RowsEncoder({}), bundles)
    assert decoded(bundles.take()) == (list(envelopes), list(credits))


def test_acknowledgements_in_a_row_share_a_frame_and_overtake_nothing_of_their_channel() -> None:
    """BUF-C: an acknowledgement in front of a marker or a reverse stays in front of it (CU-18)."""
    a, b, c = Node(1, 0, 0, 0), Node(0, 0, 1, 0), Node(0, 1, 1, 0)
    said = [(b, Ack(7)), (c, Ack(7)), (b, Csync(1)), (b, Ack(9)), (b, Reverse()), (c, Ack(8))]
    sent = [Envelope(a, to, message) for to, message in said]
    bundles = Bundles()
    put_frame(Frame(tuple(sent), ()), RowsEncoder({}), bundles)
    parts = bundles.take()
    kinds = [kind for kind, _ in parsed(parts)]
    assert kinds == [Kind.ACKS, Kind.MESSAGE, Kind.ACKS, Kind.MESSAGE, Kind.ACKS]
    assert decoded(parts) == (sent, [])


def rows(kind: str) -> pa.RecordBatch:
    data = {
        "integers": pa.array([1, None, 3]),
        "text": pa.array(["a", "ü", None]),
        "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
        "nested": pa.array([{"a": [1]}, None, {"a": []}]),
    }
    return pa.record_batch({kind: data[kind], "n": pa.array([1.5, 2.5, 3.5])})


def test_rows_of_any_schema_come_back_and_a_schema_is_sent_once() -> None:
    a, b = Node(0, 1, 0, 0), Node(1, 1, 1, 3)
    kinds = ["integers", "text", "integers", "dictionary", "nested", "text", "dictionary"]
    sent = tuple(Envelope(a, b, Data(i, rows(kind))) for i, kind in enumerate(kinds))
    bundles = Bundles()
    put_frame(Frame(sent, ()), RowsEncoder({}), bundles)
    parts = bundles.take()
    got, _ = decoded(parts)
    assert [e.message.batch for e in got if isinstance(e.message, Data)] == list(range(7))
    for envelope, kind in zip(got, kinds, strict=True):
        assert isinstance(envelope.message, Data)
        assert envelope.message.rows.equals(rows(kind))
    assert len([kind for kind, _ in parsed(parts) if kind is Kind.SCHEMA]) == 2


def test_a_slice_is_sent_without_the_rows_around_it() -> None:
    whole = pa.record_batch({"n": pa.array(range(100_000))})
    bundles = Bundles()
    envelope = Envelope(Node(0, 0, 0, 0), Node(1, 0, 0, 0), Data(0, whole.slice(500, 3)))
    put_frame(Frame((envelope,), ()), RowsEncoder({}), bundles)
    parts = bundles.take()
    assert sum(map(len, parts)) < 2000
    (got,), _ = decoded(parts)
    assert isinstance(got.message, Data)
    assert got.message.rows.column("n").to_pylist() == [500, 501, 502]


@given(st.data())
def test_a_changed_byte_gives_other_messages_or_malformed_and_nothing_else(
    data: st.DataObject,
) -> None:
    envelope = Envelope(Node(0, 0, 0, 0), Node(1, 0, 0, 0), Data(7, rows("text")))
    bundles = Bundles()
    credits = ((Channel(envelope.src, envelope.dst), 2),)
    back = Envelope(envelope.dst, envelope.src, Ack(6))
    put_frame(Frame((envelope, back), credits), RowsEncoder({}), bundles)
    sent = bytearray(b"".join(map(bytes, bundles.take())))
    for _ in range(data.draw(st.integers(1, 4))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Malformed):
        decoded([bytes(sent)])


@given(st.binary(max_size=400))
def test_any_bytes_are_frames_or_malformed(data: bytes) -> None:
    decoder = RowsDecoder()
    try:
        for kind, body in frames(memoryview(data)):
            match kind:
                case Kind.MESSAGE:
                    take_message(body, decoder)
                case Kind.CREDITS:
                    take_credits(body)
                case Kind.ACKS:
                    take_acks(body)
                case Kind.SCHEMA:
                    decoder.schema(body)
                case _:
                    decode(body, speaker=Role.SITE, hearer=Role.LEADER)
    except Malformed:
        pass


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=9))
def test_json_that_is_no_view_change_and_no_notice_is_malformed(value: object) -> None:
    for read in (entry_from_json, notice_from_json):
        with pytest.raises(Malformed):
            read(value)


def test_view_changes_and_notices_come_back() -> None:
    pair, copy, other = Pair(1, 2), Copy(1, 2, 3), Copy(1, 2, 4)
    for change in (
        *(Announced(copy, 7, other), Gone(copy)),
        entry_hosted(Fail(pair, 1, 9)),
        entry_hosted(Avail(pair, 0, 3), 7),
        entry_hosted(CatchUpStart(pair, 3)),
    ):
        assert entry_from_json(entry_to_json(change)) == change
    for told in (
        CatchUpReady(pair, 4),
        CatchUpDone(pair, 4),
        FoldInDone(pair, 4, Node(2, 1, 0, 5)),
    ):
        hosted = notice_from_json(notice_to_json(notice_hosted(told)))
        assert isinstance(hosted, Hosted)
        assert notice_of(hosted) == told
    for values in ((), (0, 2, 9), (1, 2, 3, 7), (2,), (3, 4)):
        with pytest.raises(Malformed, match="no view change"):
            entry_of(Hosted(1, 2, values), copies=2)
    for notice in (Installed(copy), Void(copy)):
        assert notice_from_json(notice_to_json(notice)) == notice


# ---- the job's key


def shake(listener: Handshake, dialer: Handshake) -> None:
    """Both ends to the end."""
    first = dialer.receive(listener.opening())
    dialer.receive(listener.receive(first))


def test_two_ends_that_know_the_key_meet() -> None:
    key = JobKey.fresh()
    listener, dialer = Handshake(key, dialing=False), Handshake(key, dialing=True)
    shake(listener, dialer)
    assert listener.done
    assert dialer.done


def test_without_the_key_neither_end_is_believed() -> None:
    key = JobKey.fresh()
    with pytest.raises(Refused, match="dialer does not know"):
        shake(Handshake(key, dialing=False), Handshake(JobKey.fresh(), dialing=True))
    dialer = Handshake(key, dialing=True)
    dialer.receive(Handshake(JobKey.fresh(), dialing=False).opening())
    with pytest.raises(Refused, match="listener does not know"):
        dialer.receive(bytes(32))


def test_what_was_overheard_is_of_no_use_to_another_connection() -> None:
    key = JobKey.fresh()
    listener, dialer = Handshake(key, dialing=False), Handshake(key, dialing=True)
    proof = dialer.receive(listener.opening())
    listener.receive(proof)
    with pytest.raises(Refused):
        Handshake(key, dialing=False).receive(proof)


def test_a_proof_cannot_be_sent_back_to_its_maker() -> None:
    key = JobKey.fresh()
    dialer = Handshake(key, dialing=True)
    listener = Handshake(key, dialing=False)
    answer = dialer.receive(listener.opening())
    with pytest.raises(Refused):
        dialer.receive(answer[-32:])


@given(st.binary(max_size=80))
def test_any_bytes_instead_of_a_handshake_are_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        Handshake(JobKey(bytes(32)), dialing=False).receive(data)


def test_another_version_is_refused_with_both_versions_and_what_to_do() -> None:
    other = MAGIC[:4] + (VERSION + 1).to_bytes(4, "big") + bytes(32)
    with pytest.raises(Refused, match=rf"version {VERSION + 1}, this one {VERSION}: have all"):
        Handshake(JobKey.fresh(), dialing=True).receive(other)


def test_the_key_does_not_show_itself() -> None:
    key = JobKey(b"0123456789abcdef-secret")
    assert "secret" not in f"{key!r} {key}"
    assert pickle.loads(pickle.dumps(key)).proof(b"x") == key.proof(b"x")
    with pytest.raises(ValueError, match="at least 16"):
        JobKey(b"short")

"""One connection per pair of sites: order per channel, credits, and that nothing blocks others."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_lab.papers.protocol.channels import Channel, Frame, Multiplexer
from flux_lab.papers.protocol.messages import Ack, Data, Message, Progress, Psync, Reverse
from flux_runtime.protocol.vocabulary import Node, ProtocolError

A = [Node(0, part, 0, 0) for part in range(3)]
B = [Node(1, part, 0, 0) for part in range(3)]


def ends(credits: int = 2, frame_max: int = 100) -> tuple[Multiplexer, Multiplexer]:
    here = Multiplexer(credits=credits, frame_max=frame_max)
    return here, Multiplexer(credits=credits, frame_max=frame_max)


def pump(src: Multiplexer, dst: Multiplexer) -> int:
    """Carry all frames over; gives how many there were."""
    n = 0
    while (frame := src.next_frame()) is not None:
        dst.receive(frame)
        n += 1
    return n


@given(st.integers(0, 10**9), st.integers(1, 4), st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_every_channel_is_in_order_and_never_exceeds_its_credits(
    seed: int, credits: int, frame_max: int
) -> None:
    rng = random.Random(seed)
    here, there = ends(credits, frame_max)
    wire: list[list[Frame]] = [[], []]
    sent: dict[Channel, list[Message]] = {}
    read: dict[Channel, list[Message]] = {}
    for step in range(300):
        a, b = rng.choice(A), rng.choice(B)
        match rng.randrange(5):
            case 0 if here.room(a, b):
                message: Message = Data(step, ()) if rng.random() < 0.8 else Progress(step)
                here.send(a, b, message)
                sent.setdefault(Channel(a, b), []).append(message)
            case 1:
                here.send(a, b, Psync(step))
                sent.setdefault(Channel(a, b), []).append(Psync(step))
            case 2:
                there.send(b, a, Ack(step))
                sent.setdefault(Channel(b, a), []).append(Ack(step))
            case 3:
                which = rng.randrange(2)
                end = (here, there)[which]
                if (frame := end.next_frame()) is not None:
                    wire[which].append(frame)
                if wire[which] and rng.random() < 0.7:
                    (there, here)[which].receive(wire[which].pop(0))
            case _:
                for src, dst, end in ((a, b, there), (b, a, here)):
                    if end.head(src, dst) is not None:
                        read.setdefault(Channel(src, dst), []).append(end.take(src, dst))
        for channel, n in here.spent.items():
            assert 0 <= n <= credits
            unread = sum(
                isinstance(m, Data | Progress)
                for m in there.inbox.get(channel.dst, {}).get(channel.src, ())
            )
            assert unread <= n
    for channel, messages in read.items():
        assert messages == sent[channel][: len(messages)]


@given(st.integers(0, 10**9), st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_whoever_reads_everything_gets_everything(seed: int, credits: int) -> None:
    """No credit is lost: a sender that has used its credits gets them back by reading alone."""
    rng = random.Random(seed)
    here, there = ends(credits)
    left = {Channel(a, b): rng.randrange(20) for a in A for b in B}
    wanted = sum(left.values())
    got = 0
    while got < wanted:
        before = got
        for channel in left:
            while left[channel] and here.room(*channel):
                here.send(*channel, Data(left[channel], ()))
                left[channel] -= 1
        pump(here, there)
        for channel in left:
            while there.head(*channel) is not None:
                there.take(*channel)
                got += 1
        pump(there, here)
        assert got > before


def test_a_paused_partition_stops_neither_others_nor_acknowledgements() -> None:
    here, there = ends(credits=2)
    for batch in range(2):
        here.send(A[0], B[0], Data(batch, ()))
    assert not here.room(A[0], B[0])
    pump(here, there)  # nobody reads B[0]
    for batch in range(10):
        assert here.room(A[0], B[1])
        here.send(A[0], B[1], Data(batch, ()))
        there.send(B[0], A[0], Ack(batch))
        pump(here, there)
        there.take(A[0], B[1])
        pump(there, here)
        assert here.take(B[0], A[0]) == Ack(batch)
    assert there.head(A[0], B[0]) == Data(0, ())
    assert list(there.readable(B[0])) == [A[0]]
    assert list(there.readable(B[1])) == []


def test_markers_stay_behind_rows_and_need_no_credit() -> None:
    here, there = ends(credits=1)
    here.send(A[0], B[0], Data(0, ()))
    here.send(A[0], B[0], Psync(7))
    here.send(A[0], B[0], Reverse())
    pump(here, there)
    assert [there.take(A[0], B[0]) for _ in range(3)] == [Data(0, ()), Psync(7), Reverse()]


def test_rows_without_a_credit_are_a_mistake_of_the_host() -> None:
    here, _ = ends(credits=1)
    here.send(A[0], B[0], Data(0, ()))
    with pytest.raises(ProtocolError, match="without a credit"):
        here.send(A[0], B[0], Data(1, ()))


def test_the_messages_of_a_turn_share_a_frame_up_to_its_limit() -> None:
    here, there = ends(credits=2)
    for a in A:
        for b in B:
            here.send(a, b, Data(0, ()))
    assert pump(here, there) == 1
    here, there = ends(credits=2, frame_max=4)
    for a in A:
        for b in B:
            here.send(a, b, Data(0, ()))
    assert pump(here, there) == 3


def test_credits_wait_for_company_but_not_for_ever() -> None:
    here, there = ends(credits=4)
    for batch in range(3):
        here.send(A[0], B[0], Data(batch, ()))
    pump(here, there)
    there.take(A[0], B[0])
    assert there.next_frame() is None
    there.send(B[0], A[0], Ack(0))
    frame = there.next_frame()
    assert frame is not None
    assert frame.credits == ((Channel(A[0], B[0]), 1),)
    assert here.receive(frame) == {A[0]}
    there.take(A[0], B[0])
    there.take(A[0], B[0])
    assert there.next_frame() == Frame((), ((Channel(A[0], B[0]), 2),))


def test_a_dead_node_leaves_nothing_behind() -> None:
    here, there = ends(credits=1)
    here.send(A[0], B[0], Data(0, ()))
    here.send(A[0], B[1], Data(0, ()))
    frame = here.next_frame()
    assert frame is not None
    there.forget(B[0])
    assert there.receive(frame) == {B[1]}
    assert there.head(A[0], B[0]) is None
    here.forget(B[0])
    here.send(A[0], B[0], Psync(1))
    assert here.next_frame() is None
    there.take(A[0], B[1])
    there.owed[Channel(A[0], B[0])] = 1  # sent before it learnt
    late = there.next_frame()
    assert late is not None
    assert here.receive(late) == {A[0]}
    assert here.room(A[0], B[1])


def test_settings_that_could_never_work_are_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        Multiplexer(credits=0)

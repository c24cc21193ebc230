"""What arrives is what was sent; what is no message is told from one."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import MappingProxyType

import msgspec
import pytest

from queuer.domain.reasons import Explanation, Token, simple
from queuer.solver.process import wire
from queuer.solver.records import Budget, Plan
from tests.solver.make import gang, node, pod_set, queue, running, snapshot
from tests.solver.process.targets import sound

QUOTA = simple(Token.WAITING_FOR_QUOTA, "The queue is full.", queue="root.a", asks=8)


def body(message: bytes) -> bytes:
    head = message[: wire.HEADER.size]
    assert wire.length_of(head) == len(message) - wire.HEADER.size
    return message[wire.HEADER.size :]


def plan(**explanations: Explanation) -> Plan:
    empty = sound(snapshot([], []), now=0.0, seed=0, budget=Budget())
    return replace(empty, explanations=explanations, order=tuple(explanations))


def test_a_request_arrives_with_its_read_only_mappings() -> None:
    held = replace(running(gang("g", pod_set(1, 1)), {"n1": 1}), counts=MappingProxyType({"main": 1}))
    told = snapshot([node("n1")], [queue("root.a")], admitted=[held])
    request = wire.Request(told=told, now=1.5, seed=7, budget=Budget(wall=2.0))
    found = wire.unpack(body(wire.pack(request)))
    assert found == request
    assert isinstance(found.told, type(told))
    with pytest.raises(TypeError):
        found.told.admitted[0].counts["main"] = 2  # type: ignore[index]


def test_a_plan_arrives_and_shared_explanations_are_sent_once() -> None:
    many = plan(**{f"g{i}": QUOTA for i in range(1000)}, other=simple(Token.ON_HOLD, "It is on hold."))
    message = wire.pack_answer(many)
    found, error = wire.unpack_answer(body(message))
    assert (found, error) == (many, "")
    assert found is not None
    assert len({id(reason) for reason in found.explanations.values()}) == 2
    assert message.count(b"The queue is full.") == 1


def test_an_error_and_the_word_that_a_snapshot_was_taken_over_arrive() -> None:
    assert wire.unpack_answer(body(wire.pack_answer(error="ValueError: x"))) == (None, "ValueError: x")
    assert wire.unpack_answer(body(wire.pack_answer())) == (None, "")


@pytest.mark.parametrize("head", [b"noise noise ", wire.HEADER.pack(wire.MARK, wire.MOST_BYTES + 1)])
def test_bytes_that_are_no_header_are_refused(head: bytes) -> None:
    with pytest.raises(ValueError, match="no message"):
        wire.length_of(head)


@pytest.mark.parametrize("garbage", [b"", b"\xff\x00abc", pickle.dumps("a plan"), b"\x92\xc0\xa1\xff"])
def test_garbage_raises_an_error_and_no_more(garbage: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        wire.unpack_answer(garbage)

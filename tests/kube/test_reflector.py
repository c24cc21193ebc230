"""The local copy stays equal to the server's collection through every kind of gap, and says each change once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from queuer.domain.backoff import BackOff
from queuer.kube.client import Client
from queuer.kube.objects import NAMESPACES, Namespace, NodeObject
from queuer.kube.reflector import Change, ChangeKind, Reflector, Timing
from tests.kube.stub import DEEP, Stub, serving
from tests.waiting import beside, until

FAST = Timing(silence=5.0, relist=3600.0, pauses=BackOff(first=0.01, longest=0.05))

OFTEN = Timing(silence=0.1, relist=0.05, pauses=BackOff(first=0.01, longest=0.02))
SLOW = Timing(relist=1.0, share=0.0001)
STORM = Timing(pauses=BackOff(first=0.01, longest=0.2))


class Copy:
    """A running reflector, and all that it reported."""

    def __init__(self) -> None:
        self.changes: list[tuple[ChangeKind, str]] = []
        self.reflector: Reflector[Any]

    def note(self, change: Change[Any]) -> None:
        assert (change.old is None) == (change.kind is ChangeKind.ADDED)
        self.changes.append((change.kind, change.object.metadata.uid))

    @property
    def uids(self) -> set[str]:
        return set(self.reflector.items)


@asynccontextmanager
async def copying(stub: Stub, timing: Timing = FAST, *, kind: type[Any] = Namespace) -> AsyncIterator[Copy]:
    copy = Copy()
    async with serving(stub) as client:
        copy.reflector = Reflector(client, NAMESPACES, kind, on_change=copy.note, timing=timing)
        async with beside(copy.reflector.run()):
            await until(copy.reflector.synced.is_set)
            await until(lambda: stub.watches)
            yield copy


async def test_lists_in_pages_and_then_follows_the_watch() -> None:
    """1,200 objects come in three pages; `synced` is set only after the last of them."""
    stub = Stub(*(f"o{number:04}" for number in range(1200)))
    async with copying(stub) as copy:
        assert len(copy.uids) == 1200
        assert stub.lists == 3
        stub.put("o0000", team="a")
        stub.delete("o0001")
        stub.put("new")
        await until(lambda: "new" in copy.uids)
        expected = [(ChangeKind.MODIFIED, "o0000"), (ChangeKind.DELETED, "o0001"), (ChangeKind.ADDED, "new")]
        assert copy.changes[1200:] == expected
        assert copy.reflector.items["o0000"].metadata.labels == {"team": "a"}


async def test_nul_characters_never_get_further() -> None:
    """An annotation may hold NUL, a PostgreSQL text may not: one such job must not stop all others."""
    stub = Stub()
    stub.put("one", note="a\x00b")
    async with copying(stub) as copy:
        stub.put("two", note="\x00")
        await until(lambda: copy.uids == {"one", "two"})
        notes = [item.metadata.labels["note"] for item in copy.reflector.items.values()]
    assert notes == ["a\ufffdb", "\ufffd"]


async def test_a_cut_watch_is_resumed_where_it_broke_without_listing_again() -> None:
    """Events from the time without a connection arrive from the log."""
    stub = Stub("a")
    async with copying(stub) as copy:
        stub.put("b")
        await until(lambda: "b" in copy.uids)
        stub.cut()
        stub.delete("a")
        stub.put("c")
        await until(lambda: copy.uids == {"b", "c"})
        assert stub.lists == 1
        assert stub.watches[-1]["resourceVersion"] >= "102"
        assert copy.changes.count((ChangeKind.ADDED, "b")) == 1


async def test_deletions_that_a_compacted_log_hides_are_reported() -> None:
    """410: everything is listed again, and what is gone is reported DELETED. Or quota would leak for ever."""
    stub = Stub(*"abcd")
    async with copying(stub) as copy:
        stub.mute = True
        stub.delete("b")
        stub.delete("c")
        stub.put("e")
        stub.compact()
        stub.mute = False
        stub.cut()
        await until(lambda: copy.uids == {"a", "d", "e"})
        assert {uid for kind, uid in copy.changes if kind is ChangeKind.DELETED} == {"b", "c"}
        assert copy.changes.count((ChangeKind.ADDED, "a")) == 1  # the unchanged ones are not news


async def test_410_as_an_answer_to_the_watch_request_itself() -> None:
    """Some servers say it by HTTP status instead of an event."""
    stub = Stub("a")
    async with copying(stub) as copy:
        stub.mute = True
        stub.delete("a")
        stub.failures = [web.json_response({"reason": "Expired", "message": "old"}, status=410)]
        stub.compact()
        stub.mute = False
        stub.cut()
        await until(lambda: not copy.uids)
        assert copy.changes[-1] == (ChangeKind.DELETED, "a")


async def test_a_silent_stream_is_taken_for_dead() -> None:
    """A half-open connection says nothing for ever: neither events nor bookmarks."""
    stub = Stub("a")
    async with copying(stub, Timing(silence=0.2, pauses=BackOff(first=0.01, longest=0.05))) as copy:
        stub.mute = True
        stub.put("b")
        await until(lambda: len(stub.watches) >= 2)
        stub.mute = False
        stub.put("c")
        await until(lambda: copy.uids == {"a", "b", "c"})


async def test_bookmarks_move_the_point_of_resumption() -> None:
    """A quiet kind keeps up with the log, so that a cut does not cost a full list."""
    stub = Stub("a")
    async with copying(stub):
        stub.version = 500
        stub.bookmark()
        stub.end()
        await until(lambda: len(stub.watches) == 2)
        assert stub.watches[-1]["resourceVersion"] == "500"
        assert stub.lists == 1


async def test_lists_fully_again_now_and_then() -> None:
    """A missed event cannot stay missed: what came, changed and vanished unheard is reported at the next full list."""
    stub = Stub(*"abc")
    async with copying(stub, OFTEN) as copy:
        del stub.objects["a"]  # none of this is told
        stub.mute = True
        stub.put("b", note="new")
        stub.put("d")
        await until(lambda: copy.uids == {"b", "c", "d"})
        assert copy.changes[3:] == [
            (ChangeKind.MODIFIED, "b"), (ChangeKind.ADDED, "d"), (ChangeKind.DELETED, "a"),
        ]  # fmt: skip


async def test_a_watch_ends_when_the_next_list_is_due() -> None:
    """And that is later where listing takes long: it gets a small part of the time."""
    for timing, seconds in ((Timing(relist=42.0), range(41, 43)), (SLOW, range(5, 10_000))):
        stub = Stub("a")
        async with copying(stub, timing):
            assert int(stub.watches[0]["timeoutSeconds"]) in seconds


async def test_where_a_list_fails_the_watch_goes_on() -> None:
    """A server that can answer no list, but watches, keeps the copy live."""

    class Full(Stub):
        full = False

        async def _list(self, request: web.Request) -> web.Response:
            return web.Response(status=504) if self.full else await super()._list(request)

    stub = Full("a")
    async with copying(stub, OFTEN) as copy:
        stub.full, lists = True, stub.lists
        await until(lambda: stub.lists > lists)
        stub.put("b")
        await until(lambda: "b" in copy.uids)


async def test_a_watch_that_tells_something_is_opened_anew_at_once_when_it_is_cut() -> None:
    """However often that happens, and whatever failed before: only a server that tells nothing is asked less often."""
    stub = Stub()
    async with copying(stub, Timing(pauses=BackOff(first=0.01, longest=60.0))) as copy:
        stub.failures = [web.Response(status=503) for _ in range(4)]
        for number in range(20):
            stub.put(f"o{number}")
            await until(lambda: len(copy.uids) == number + 1)  # noqa: B023
            stub.cut()


async def test_in_a_storm_of_410_lists_become_rare() -> None:
    """A server that forgets at once where we were must not be asked for everything in a busy loop."""
    times = list[float]()

    class Timed(Stub):
        async def _list(self, request: web.Request) -> web.Response:
            times.append(asyncio.get_running_loop().time())
            return await super()._list(request)

    stub = Timed("a")
    stub.oldest = 1_000
    async with copying(stub, STORM):
        await until(lambda: len(times) >= 6)
    assert times[-1] - times[-2] >= 0.5 * STORM.pauses.longest


async def test_staleness_is_told_while_the_server_does_not_answer() -> None:
    """`stale_since` is set by failures and cleared by the next connection; the copy itself is kept."""
    stub = Stub("a")
    async with copying(stub) as copy:
        await until(lambda: copy.reflector.stale_since is None)
        stub.failures = [web.Response(status=503) for _ in range(4)]
        stub.cut()
        await until(lambda: copy.reflector.stale_since is not None)
        since = copy.reflector.stale_since
        while stub.failures:
            assert copy.reflector.stale_since == since, "an attempt that failed is no answer"
            await asyncio.sleep(0)
        assert copy.uids == {"a"}
        await until(lambda: not stub.failures and copy.reflector.stale_since is None)


async def test_the_server_s_pause_is_respected() -> None:
    """429 with Retry-After: no request before that."""
    slower = web.json_response({"message": "slow down"}, status=429, headers={"Retry-After": "1"})
    stub = Stub(failures=[slower])
    started = asyncio.get_running_loop().time()
    async with copying(stub):
        assert asyncio.get_running_loop().time() - started >= 1.0
        assert stub.lists == 2


async def test_an_object_that_cannot_be_read_stops_nobody() -> None:
    """One broken object is logged; all others go on. One that breaks later stays as it was last understood."""
    stub = Stub("good", "bad", "breaks")
    stub.objects["bad"]["spec"] = {"unschedulable": "perhaps"}
    async with copying(stub, kind=NodeObject) as copy:
        assert copy.uids == {"good", "breaks"}
        broken = {"metadata": {**stub.objects["breaks"]["metadata"], "resourceVersion": "900"}, "spec": 5}
        stub.version = 900
        stub.send_raw({"type": "MODIFIED", "object": broken})
        stub.put("later")
        await until(lambda: "later" in copy.uids)
        assert copy.reflector.items["breaks"].metadata.resource_version == "103"
        assert copy.reflector.undecodable == 2
        assert stub.lists == 1


async def test_an_object_of_any_depth_is_read_like_all_others() -> None:
    """Any tenant may write managed fields that are nested beyond Python's recursion limit: listed, changed, deleted."""
    stub = Stub("deep", "plain")
    deep = stub.objects["deep"]["metadata"]
    deep |= {"managedFields": [{"manager": 'a"{', "fieldsV1": DEEP}, {"manager": "b"}]}
    async with copying(stub) as copy:
        assert copy.uids == {"deep", "plain"}
        stub.version = 900
        changed = {"metadata": {**deep, "resourceVersion": "900", "labels": {"a": "b"}}}
        stub.send_raw({"type": "MODIFIED", "object": changed})
        await until(lambda: copy.reflector.items["deep"].metadata.labels == {"a": "b"})
        stub.send_raw({"type": "DELETED", "object": {"metadata": {**deep, "resourceVersion": "901"}}})
        await until(lambda: copy.uids == {"plain"})
        assert (copy.reflector.undecodable, stub.lists) == (0, 1)


async def test_an_object_that_cannot_be_taken_over_is_named_and_stops_nobody() -> None:
    """A fault behind the reflector, met on one object: the others are taken over, and the log says which it was."""
    stub = Stub("a", "odd", "z")
    async with serving(stub) as client:
        heard: list[str] = []

        def note(change: Change[Any]) -> None:
            heard.append(change.object.metadata.uid)
            if change.object.metadata.uid == "odd":
                raise ValueError("too odd")

        reflector = Reflector(client, NAMESPACES, Namespace, on_change=note, timing=FAST)
        async with beside(reflector.run()):
            with capture_logs() as logs:
                await until(lambda: heard == ["a", "odd", "z"])
            stub.put("later")
            await until(lambda: heard[-1] == "later")
    assert reflector.undecodable == 1
    assert [line["object"] for line in logs if line["event"] == "object not understood"] == ["n/odd"]


async def test_an_unexpected_fault_restarts_the_watch_and_never_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All watches share one task group with the leadership: a fault of one would end the process, again and again."""
    faults: list[Exception] = [RecursionError(), ValueError(), KeyError()]
    watch = Client.watch

    def odd(self: Client, path: str, **asked: Any) -> Any:
        if faults:
            raise faults.pop()
        return watch(self, path, **asked)

    monkeypatch.setattr(Client, "watch", odd)
    stub = Stub("a")
    async with copying(stub) as copy:
        stub.put("b")
        await until(lambda: copy.uids == {"a", "b"})
        assert stub.lists == 4
        stub.version += 1
        stub.send_raw({"type": "MODIFIED", "object": {"metadata": 5}})
        await until(lambda: stub.lists == 5)
        stub.put("c")
        await until(lambda: "c" in copy.uids)


async def test_the_same_version_twice_is_one_change() -> None:
    """After a resumption the server may send again what is known; only another resourceVersion is news."""
    stub = Stub("a")
    async with copying(stub) as copy:
        stub.send_raw({"type": "MODIFIED", "object": stub.objects["a"]})
        stub.put("b")
        await until(lambda: "b" in copy.uids)
        assert copy.changes == [(ChangeKind.ADDED, "a"), (ChangeKind.ADDED, "b")]

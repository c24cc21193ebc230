"""Failures of the API server arrive as errors that say what kind they are; a newer server is asked for politely."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from queuer.domain.errors import Unavailable
from queuer.kube.client import (
    ApiError,
    Client,
    ConflictError,
    GoneError,
    InvalidError,
    NotFoundError,
    ThrottledError,
)
from queuer.kube.config import Access
from queuer.kube.versions import Form
from tests.kube.stub import Stub, serving


def _status(code: int, **headers: str) -> web.Response:
    body = {"kind": "Status", "reason": "Because", "message": "it is so"}
    return web.json_response(body, status=code, headers=headers)


def _said(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "reason": "Forbidden", "message": message}, status=code)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, NotFoundError), (409, ConflictError), (410, GoneError), (422, InvalidError), (429, ThrottledError),
        (403, ApiError), (500, ApiError),
    ],
)  # fmt: skip
async def test_each_status_is_its_own_error(status: int, kind: type[ApiError]) -> None:
    """Callers decide by class: try again, read again, give up."""
    async with serving(Stub(failures=[_status(status, **{"Retry-After": "7"})])) as client:
        with pytest.raises(ApiError) as caught:
            await client.get("/api/v1/x")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason, caught.value.message) == (status, "Because", "it is so")
    assert caught.value.retry_after == 7


@pytest.mark.parametrize(
    ("answer", "ours"),
    [
        (_said(401, "Unauthorized"), True),
        (_said(403, 'jobs.batch "j" is forbidden: User "system:serviceaccount:q:c" cannot patch resource'), True),
        (_said(403, 'forbidden: User "system:anonymous" cannot get path "/version"'), True),
        (web.Response(status=403, text="<html>not from here</html>"), True),
        (_said(403, 'jobs.batch "j" is forbidden: ValidatingAdmissionPolicy \'p\' denied request: User "x"'), False),
        (_said(403, 'admission webhook "w" denied the request: forbidden: User "x"'), False),
        (_said(403, 'pods "j-1" is forbidden: exceeded quota: gpus'), False),
    ],
)  # fmt: skip
async def test_missing_rights_are_no_fault_of_the_object(answer: web.Response, *, ours: bool) -> None:
    """A ClusterRole that is replaced, or a token refused for a minute, would blame each job in its turn."""
    async with serving(Stub(failures=[answer])) as client:
        with pytest.raises(ApiError) as caught:
            await client.merge_patch("/apis/batch/v1/namespaces/n/jobs/j", {}, resource="jobs")
    assert isinstance(caught.value, Unavailable) is ours


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('Pod "p" is invalid: metadata.uid: Invalid value: "a": field is immutable', ConflictError),
        ("ValidatingAdmissionPolicy 'x' denied request: finalizers stay", InvalidError),
    ],
    ids=["a reused name", "a policy"],
)
async def test_a_finalizer_of_a_reused_name_is_a_conflict(message: str, kind: type[ApiError]) -> None:
    """Guards the applier: a StatefulSet makes a pod of the same name, and its retry would never end."""
    body = {"kind": "Status", "reason": "Invalid", "message": message}
    async with serving(Stub(failures=[web.json_response(body, status=422)])) as client:
        with pytest.raises(ApiError) as caught:
            await client.remove_finalizer("/api/v1/namespaces/n/pods/p", "f", uid="a", resource="pods")
    assert type(caught.value) is kind


async def test_a_page_that_comes_too_late_is_asked_for_in_halves() -> None:
    """500 objects of a megabyte are no page of 20 s: lists that fail alike for ever would never be whole."""

    class Heavy(Stub):
        async def handle(self, request: web.Request) -> web.StreamResponse:
            if int(request.query["limit"]) > 200:
                self.requests.append(dict(request.query))
                await asyncio.sleep(60)
            return await super().handle(request)

    stub = Heavy(*(f"o{number:03}" for number in range(130)))
    async with serving(stub, patience=1.0) as client:
        for _ in range(2):
            with pytest.raises(Unavailable, match="does not answer"):
                await anext(client.pages("/x"))
        assert [len(page.items or ()) async for page in client.pages("/x")] == [125, 5]
        with pytest.raises(Unavailable):
            await anext(client.pages("/x"))
        limits = [asked["limit"] for asked in stub.requests]
    assert limits == ["500", "250", "125", "125", "250"]


async def test_a_redirect_to_another_server_takes_no_token_along() -> None:
    """A man in the middle of one answer must not get the controller's rights."""

    class Noting(Stub):
        heard: tuple[str | None, ...] = ()

        async def handle(self, request: web.Request) -> web.StreamResponse:
            self.heard = (*self.heard, request.headers.get("Authorization"))
            return await super().handle(request)

    ours, other = Noting(), Noting()
    async with serving(other) as foreign, serving(ours) as client:
        away = {"Location": f"{foreign._access.url}/api/v1/x"}
        ours.failures = [web.Response(status=307, headers=away)]
        other.failures = [web.json_response({})]
        await client.get("/api/v1/x")
    assert (ours.heard, other.heard) == (("Bearer secret",), (None,))


async def test_a_proxy_s_page_instead_of_a_status_is_readable() -> None:
    """Not every failure comes from the API server."""
    async with serving(Stub(failures=[web.Response(status=502, text="bad gateway")])) as client:
        with pytest.raises(ApiError, match="bad gateway"):
            await client.get("/api/v1/x")


async def test_no_server_is_unavailable_not_a_library_s_error() -> None:
    """Port 1 of this machine answers nobody."""

    async def headers() -> dict[str, str]:
        return {}

    async with Client(Access(url="http://127.0.0.1:1", ssl=None, headers=headers)) as client:
        with pytest.raises(Unavailable, match="does not answer"):
            await client.get("/version")


@pytest.mark.parametrize(
    ("version", "form"),
    [
        ("v1.36.2", Form.FULL),
        ("v1.37.0-alpha.1", Form.FULL),
        ("v1.36.2+k3s1", Form.FULL),
        ("v1.36.2-gke.1041000", Form.FULL),
        ("v1.36.1", None),
        ("v1.36.0-rc.1", None),
        ("v1.35.4-eks-a1b2c3d", Form.REDUCED),
        ("v1.34.2", Form.REDUCED),
        ("v1.34.1", None),
    ],
)
async def test_the_version_says_the_form_and_an_old_server_is_refused_with_a_sentence(
    version: str, form: Form | None
) -> None:
    """Before 1.36 there are no mutating policies, before 1.36.2 no re-admission in one PATCH; older ones are broken."""
    async with serving(Stub(failures=[web.json_response({"gitVersion": version})])) as client:
        if form is not None:
            assert await client.form() is form
        else:
            with pytest.raises(Unavailable, match=r"Queuer needs 1\.34\.2 or newer, and not 1\.36\.0"):
                await client.form()


async def test_a_patch_is_counted_and_carries_its_preconditions() -> None:
    """The number of writes per job is measured by this counter; compare-and-set rests on the body as given."""
    seen: list[tuple[str, str, dict[str, object]]] = []

    class Echo(Stub):
        async def handle(self, request: web.Request) -> web.StreamResponse:
            seen.append((request.method, request.headers["Content-Type"], await request.json()))
            assert request.headers["Authorization"] == "Bearer secret"
            assert request.query["fieldManager"] == "queuer"
            return web.json_response({"metadata": {"resourceVersion": "8"}})

    body = {"metadata": {"resourceVersion": "7", "uid": "u"}, "spec": {"suspend": False}}
    async with serving(Echo()) as client:
        assert await client.merge_patch("/x", body, resource="jobs") == "8"
        assert client.writes == {("patch", "jobs"): 1}
    assert seen == [("PATCH", "application/merge-patch+json", json.loads(json.dumps(body)))]

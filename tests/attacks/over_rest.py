"""Alice's attempts over REST, with her real token or with an invalid one. Each row: what, how, how it
ends.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote
from uuid import uuid4

import httpx2

from tests.attacks.field import KEY, MINE, THEIRS, Field, document
from tests.e2e.tokens import create_token, signed

Answers = httpx2.Response | list[httpx2.Response]
End = Callable[[httpx2.Response], None]
HEAVY = document(MINE, weight=1000)
RUNS, WAITS = "secret-runs-known", "secret-waits-known"


@dataclass(frozen=True, slots=True)
class Attack:
    """`act` is done by Alice; each of its answers ends as `end` says. Nothing may leak or change besides."""

    name: str
    act: Callable[[Field], Answers]
    end: End


def refused(status: int, code: str) -> End:
    """A problem of this kind."""

    def check(answer: httpx2.Response) -> None:
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        assert answer.json()["code"] == code, answer.text

    return check


FORBIDDEN, FOREIGN = refused(403, "forbidden"), refused(403, "foreign_origin")
STRANGER = refused(401, "unauthenticated")
UNKNOWN, INVALID = refused(404, "not_found"), refused(422, "invalid_input")


def nothing(answer: httpx2.Response) -> None:
    """A list with nothing in it."""
    assert answer.status_code == 200, answer.text
    assert answer.json()["items"] == [], answer.text


def only_mine(answer: httpx2.Response) -> None:
    """Her own jobs and no other."""
    assert answer.status_code == 200, answer.text
    assert {item["name"] for item in answer.json()["items"]} <= {"mine-runs-known", "mine-waits-known"}


def figures(answer: httpx2.Response) -> None:
    """An answer, for counts and amounts are everybody's; that it holds no more is looked for in every answer."""
    assert answer.status_code == 200, answer.text


def refused_by_controller(answer: httpx2.Response) -> None:
    """The command is taken up, and refused."""
    assert answer.status_code == 200, answer.text
    assert answer.json()["outcome"] == "refused", answer.text


def each_unknown(answer: httpx2.Response) -> None:
    """Of many, none was commanded."""
    assert {item["refused"]["code"] for item in answer.json()["items"]} == {"not_found"}, answer.text


def as_alice(answer: httpx2.Response) -> None:
    """She stays who she is."""
    assert answer.status_code == 200, answer.text
    assert (answer.json()["name"], answer.json()["administers"]) == ("alice", [])


def bad_or_missing(answer: httpx2.Response) -> None:
    """Not there, or no address at all; said as a problem, without a word of what is behind."""
    assert answer.status_code in (400, 404, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def refused_or_mine(answer: httpx2.Response) -> None:
    """No cursor of hers, or one that shows nothing but her own."""
    (only_mine if answer.status_code == 200 else bad_or_missing)(answer)


def _each(*paths: str) -> Callable[[Field], Answers]:
    return lambda at: [at.get(path) for path in paths]


def _of(name: str, *parts: str) -> Callable[[Field], Answers]:
    return lambda at: [at.get(f"/workloads/{at.uid(name)}{part}") for part in parts]


def _commands(name: str, *verbs: str) -> Callable[[Field], Answers]:
    return lambda at: [at.post(f"/workloads/{at.uid(name)}:{verb}") for verb in verbs]


# Reading what is Bob's

READING = [
    Attack("jobs of another namespace", lambda at: at.get(f"/workloads?namespace={at.theirs}"), nothing),
    Attack(
        "jobs by the name of another's", _each(f"/workloads?name={RUNS}", f"/workloads?name={WAITS}"), nothing
    ),
    Attack("jobs of another's queue", _each(f"/workloads?queue={THEIRS}"), nothing),
    Attack(
        "jobs of the whole tree, those that are gone too",
        _each("/workloads?deleted=true&queue=root"),
        only_mine,
    ),
    Attack("a job by its uid", _of(RUNS, "", "/explanation", "/timeline"), UNKNOWN),
    Attack(
        "a job by its name, there or not",
        lambda at: [at.get(f"/workloads/by-ref/{at.theirs}/job/{name}") for name in (RUNS, "none")],
        FORBIDDEN,
    ),
    Attack("events of a job", lambda at: at.get(f"/events?uid={at.uid(RUNS)}"), nothing),
    Attack("events of all, in order", _each("/events?limit=1000", "/events?after=0&limit=1000"), figures),
    Attack("events by a wildcard", _each("/events?type=%25", f"/events?type=_&queue={THEIRS}"), INVALID),
    Attack("who did what", lambda at: [at.get("/audit"), at.get(f"/audit?target={at.uid(RUNS)}")], FORBIDDEN),
    Attack("the cycles", _each("/cycles", "/cycles/1", "/cycles/1/replay"), FORBIDDEN),
    Attack(
        "who waits in another's queue", _each(f"/queues/{THEIRS}/pending", "/queues/root/pending"), figures
    ),
    Attack(
        "the amounts of all",
        _each(
            "/queues",
            f"/queues/{THEIRS}",
            f"/queues/{THEIRS}/headroom",
            f"/queues/{THEIRS}/history",
            "/fair-share",
            "/overview",
            "/topology",
            "/topology/slots?shape=8xgpu:8",
        ),
        figures,
    ),
    Attack("metrics and pages, without a token", lambda at: at.ask("GET", "/metrics", by=None), figures),
    Attack("another's command", lambda at: at.get(f"/commands/{at.command}"), UNKNOWN),
    Attack("another's plan", lambda at: at.get(f"/changesets/{at.plan}"), FORBIDDEN),
    Attack("what was changed", lambda at: at.get("/changesets"), FORBIDDEN),
    Attack("one change by its number", lambda at: at.get("/changesets/1"), figures),
]


# Pages


def _bobs_cursor(at: Field) -> Answers:
    cursor = at.get("/workloads?limit=1", by="bob").json()["next"]
    return at.get(f"/workloads?cursor={cursor}")


def _made_cursors(at: Field) -> Answers:
    places = ([time.time() + 1e6, at.uid(RUNS)], [0, "' OR 1=1 --"], [1e10, "z" * 5000])
    made = [base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=") for place in places]
    return [at.get(f"/workloads?cursor={cursor}") for cursor in made]


PAGES = [
    Attack("a cursor that Bob was given", _bobs_cursor, only_mine),
    Attack("cursors that nobody was given", _made_cursors, refused_or_mine),
    Attack(
        "cursors that are none",
        _each("/workloads?cursor=%00", "/workloads?cursor=../..", f"/workloads?cursor={'QUFB' * 900}"),
        bad_or_missing,
    ),
    Attack(
        "statements of SQL as filters",
        _each(
            "/workloads?name=' OR '1'='1",
            "/workloads?namespace=x'); DROP TABLE workload; --",
            "/workloads?name=%25",
            "/workloads?namespace=_______%25",
        ),
        nothing,
    ),
]


# Changing what is Bob's, or her own share


def _put(at: Field) -> Answers:
    params = {"reason": "we need it more than others"}
    return [
        at.ask("PUT", "/api/v1/queue-tree", json=wish, params=params, headers={"If-Match": "*"})
        for wish in (HEAVY, document(MINE, namespaces=[at.mine], quota=[]), document("root", weight=1),
                     {**document(THEIRS), "prune": True})
    ]  # fmt: skip


def _key_of_bob(at: Field) -> Answers:
    body = document(THEIRS, weight=3, namespaces=[at.theirs])
    return at.post("/changesets", body, headers=KEY)


def _patch(name: str, priority: object) -> Callable[[Field], Answers]:
    return lambda at: at.ask(
        "PATCH",
        f"/api/v1/workloads/{at.uid(name)}?wait=10s",
        json={"priority": priority, "reason": "we first"},
    )


CHANGING = [
    Attack("her own weight and quota, the root, another's queue", _put, FORBIDDEN),
    Attack("a plan to raise her weight", lambda at: at.post("/changesets", HEAVY), FORBIDDEN),
    Attack(
        "a plan whose managedBy is another's",
        lambda at: at.post("/changesets", document(MINE, weight=9, managedBy="crd")),
        FORBIDDEN,
    ),
    Attack("that a change be taken back", lambda at: at.post("/changesets", {"revert": 1}), FORBIDDEN),
    Attack(
        "to apply or discard another's plan",
        lambda at: [at.post(f"/changesets/{at.plan}:{verb}", headers=KEY) for verb in ("apply", "discard")],
        FORBIDDEN,
    ),
    Attack("to stop another's queue", lambda at: at.post(f"/queues/{THEIRS}:hold"), FORBIDDEN),
    Attack("another's Idempotency-Key", _key_of_bob, FORBIDDEN),
    Attack("commands on another's job", _commands(RUNS, "hold", "release", "evict"), UNKNOWN),
    Attack("a release of what Bob holds", _commands("secret-held-known", "release"), UNKNOWN),
    Attack("a priority for another's job", _patch(WAITS, -5), UNKNOWN),
    Attack(
        "commands on many",
        lambda at: [
            at.post(f"/workloads:{verb}", {"uids": [at.uid(RUNS), at.uid(WAITS), str(uuid4())]})
            for verb in ("hold", "release", "evict")
        ],
        each_unknown,
    ),
    Attack("to evict, although it is her own", _commands("mine-runs-known", "evict"), FORBIDDEN),
    Attack("a higher priority for her own job", _patch("mine-waits-known", 1000), refused_by_controller),
]


# The what-if as an oracle


def _simulated(queue: str, namespace: str = "") -> Callable[[Field], Answers]:
    def ask(at: Field) -> Answers:
        wish = {"shape": "2xgpu:8", "queue": queue, "namespace": namespace or at.mine}
        tree = {"queueTree": document(MINE, namespaces=[at.mine], weight=50)}
        return [at.post("/simulations", wish), at.post("/simulations", wish | tree)]

    return ask


ORACLES = [
    Attack(
        "a simulation in another namespace",
        lambda at: at.post("/simulations", {"shape": "1xgpu:1", "queue": THEIRS, "namespace": at.theirs}),
        FORBIDDEN,
    ),
    Attack("a simulation in another's queue", _simulated(THEIRS), figures),
    Attack("a simulation that would evict", _simulated(MINE), figures),
    Attack("a simulation in a queue that is none", _simulated("root.nowhere"), figures),
]


# Her identity


def _strangers(at: Field) -> Answers:
    now = int(time.time())
    known = signed(at.cluster, at.mine, begins=now - 60, ends=now + 600)
    assert at.get("/me", by=None, headers={"Authorization": f"Bearer {known}"}).status_code == 200
    tokens = [
        create_token(at.cluster, at.mine, "--audience=vault"),
        signed(at.cluster, at.mine, begins=now - 600, ends=now - 60),
        create_token(at.cluster, at.mine, "--audience=queuer")[:-4] + "AAAA",
        "x", "a.b.c", "Bearer", "e30.e30.",
    ]  # fmt: skip
    sent = [{}, {"Authorization": "Basic Ym9iOmJvYg=="}]
    sent += [{"Authorization": f"Bearer {token}"} for token in tokens]
    return [at.get("/workloads", by=None, headers=headers) for headers in sent]


def _claims(at: Field) -> Answers:
    claims = [
        {"X-Forwarded-User": "admin", "X-Remote-User": "admin", "X-Remote-Group": "system:masters"},
        {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"},
        {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "https", "Forwarded": "for=admin"},
        {"Cookie": f"queuer-token={at.cluster.token('admin')}"},
    ]
    return [at.get("/me", headers=headers) for headers in claims]


def _cookie(**headers: str) -> Callable[[Field], Answers]:
    """Her browser, on a page of somebody else, writes with her cookie."""

    def write(at: Field) -> Answers:
        sent = {"Cookie": f"queuer-token={at.cluster.token('alice')}", **headers}
        job = at.uid("mine-waits-known")
        return at.post(f"/workloads/{job}:hold", {"reason": "a page of mine"}, by=None, headers=sent)

    return write


IDENTITY = [
    Attack("tokens of others: another audience, expired, tampered with, none", _strangers, STRANGER),
    Attack(
        "a token in the address", lambda at: at.get(f"/me?access_token={'x' * 32}", by=None), bad_or_missing
    ),
    Attack("headers that say who she is", _claims, as_alice),
    Attack("a write with a cookie from nowhere", _cookie(), FOREIGN),
    Attack("a write with a cookie from another origin", _cookie(Origin="https://evil.example"), FOREIGN),
    Attack("a write with a cookie from another site", _cookie(**{"Sec-Fetch-Site": "cross-site"}), FOREIGN),
    Attack(
        "another host name",
        lambda at: at.get("/me", headers={"Host": "evil.example"}),
        refused(421, "misdirected"),
    ),
    Attack(
        "a method in a header",
        lambda at: at.get(
            f"/workloads/{at.uid('mine-runs-known')}:evict", headers={"X-HTTP-Method-Override": "POST"}
        ),
        refused(405, "method_not_allowed"),
    ),
]


# Addresses and bodies


def _two_lengths(at: Field) -> Answers:
    """A request within another, where a proxy before us would see one."""
    head = f"Host: 127.0.0.1\r\nAuthorization: {at.bearer('alice')['Authorization']}\r\n"
    inner = f"GET /api/v1/me HTTP/1.1\r\n{head}\r\n"
    told = at.raw(
        f"POST /api/v1/changesets HTTP/1.1\r\n{head}Content-Length: {len(inner) + 5}\r\n"
        f"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}".encode()
    )
    assert told.count(b"HTTP/1.1 ") == 1, told
    assert told.startswith(b"HTTP/1.1 400"), told
    return []


def _addresses(at: Field) -> Answers:
    alike = "root.mіne"  # noqa: RUF001 - the i is Cyrillic
    names = (
        "..", "%2e%2e", "root.mine/../theirs", "root.mine%2f..%2ftheirs", "root.mine%00", quote(alike),
        "root..mine", "ROOT.MINE", "root.mine%0d%0aSet-Cookie:a=b", "a" * 10_000, "%ff%fe", "root.mine.", "*",
    )  # fmt: skip
    return [at.get(f"/queues/{name}") for name in names]


def _no_new_header(answer: httpx2.Response) -> None:
    assert "set-cookie" not in answer.headers
    assert "x-evil" not in answer.headers
    assert answer.status_code in (200, 400, 404, 422), answer.text


def _injected(at: Field) -> Answers:
    line = "a%0d%0aX-Evil:%201"
    ours = "/workloads?limit=1"
    return [
        at.get(f"/workloads?name={line}"), at.get(f"/queues/{line}"), at.get(f"/workloads/by-ref/{at.mine}/job/{line}"),
        at.get(ours, headers={"X-Forwarded-Host": "evil.example", "X-Request-Id": "evil"}),
    ]  # fmt: skip


def _body(content: bytes, media: str = "application/json") -> Callable[[Field], Answers]:
    return lambda at: [
        at.ask("POST", path, content=content, headers={"Content-Type": media})
        for path in ("/api/v1/changesets", "/api/v1/simulations")
    ]


_BOMB = b"a0: &a0 [x, x]\n" + b"".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n".encode() for n in range(1, 40))
ADDRESSES = [
    Attack("tricks in a queue's name", _addresses, bad_or_missing),
    Attack("lines in an address", _injected, _no_new_header),
    Attack("a request within another", _two_lengths, bad_or_missing),
    Attack("a body of two megabytes", _body(b" " * 2**21), refused(413, "too_large")),
    Attack("JSON nested a hundred thousand deep", _body(b"[" * 100_000), INVALID),
    Attack("YAML that unfolds to a trillion", _body(_BOMB, "application/yaml"), INVALID),
    Attack(
        "YAML that names a Python object",
        _body(b"!!python/object/apply:os.system [id]", "application/yaml"),
        INVALID,
    ),
    Attack("numbers of ten thousand digits", _body(b'{"revert": ' + b"9" * 10_000 + b"}"), INVALID),
    Attack("a form of a page", _body(b"{}", "text/plain"), refused(415, "unsupported_media_type")),
]

ATTACKS = [*READING, *PAGES, *CHANGING, *ORACLES, *IDENTITY, *ADDRESSES]

"""The command line's words when something is wrong: nobody decides, a right is missing, a name is mistyped."""

from __future__ import annotations

import re
import time
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from queuer.api.workloads.paragraphs import duration
from queuer.cli.failures import Exit
from queuer.domain.reasons import Token
from queuer.domain.workload import State
from queuer.store import rollup
from queuer.store.engine import begin
from tests.api import cli
from tests.api.identity import Api
from tests.api.rows import NOW, A, Author, waits
from tests.api.test_queue_figures import decided
from tests.store.support import Eviction, workload

SILENT = re.compile(
    r"warning: the controller has not been heard of since .* UTC: nothing starts until it does; "
    r"what is shown is from then\n"
)


@pytest_asyncio.fixture
async def shared(shared: Api, author: Author) -> Api:
    """An API with users, a cycle, and one job that waits."""
    await author.tree()
    await decided(author, workload("a1", name="llama", queue=A, namespace="team-a", pods=9, gpus=8))
    return shared


run = partial(cli.run, user="root")


async def test_every_verb_says_that_nobody_decides(shared: Api, author: Author) -> None:
    """In one line on stderr, in any format; what is printed for a program is the answer alone."""
    await author.beat(silent=60)
    for arguments in (
        ["ahead", "llama"], ["jobs"], ["queue", "ls"], ["queue", "pending", A], ["queue", "tree"], ["share"],
        ["sim", "shape", "1xgpu:8", "-n", "team-a", "-q", A], ["topo"], ["topo", "--slots", "1xgpu:8"],
        ["why", "--all"], ["why", "llama"], ["events"], ["audit"], ["cycles"], ["whoami"], ["queue", "history", A],
    ):  # fmt: skip
        for form in ("table", "json"):
            done = await run(shared, *arguments, "-o", form)
            assert (done.code, len(SILENT.findall(done.err))) == (0, 1), (arguments, done.err)
            assert "warning: " not in done.out
    assert "has not been heard of since" in (await run(shared, "status")).out
    assert "has not been heard of since" in (await run(shared, "top")).out
    refused = await run(shared, "queue", "show", "root.nosuch")
    assert (refused.code, len(SILENT.findall(refused.err))) == (Exit.NOT_FOUND, 1)
    await author.beat(silent=0)
    assert not SILENT.search((await run(shared, "jobs")).err)


async def test_a_job_of_another_kind_is_offered(shared: Api) -> None:
    done = await run(shared, "why", "pytorchjob/llama", "-n", "team-a")
    assert done.code == Exit.NOT_FOUND
    assert "did you mean job/llama?\n  next: queuer why job/llama -n team-a" in done.err


async def test_a_namespace_narrows_events_and_audit(shared: Api, author: Author) -> None:
    await author.submit(workload("b1", name="other", queue=A, namespace="team-b"))
    done = await run(shared, "events", "-n", "team-b", "-o", "csv")
    assert "job/other" in done.out
    assert "llama" not in done.out
    for verb in ("events", "audit"):
        assert (await run(shared, verb, "-n", "nowhere")).code == Exit.NOT_FOUND


@pytest.mark.parametrize(
    ("silent", "said"),
    [(0, "only seen with the label"), (15, "the controller has not seen it yet; it was last heard of"),
     (60, "the controller has not seen it yet; it was last heard of")],
)  # fmt: skip
async def test_a_job_that_nobody_may_have_read_is_not_said_to_lack_its_label(
    shared: Api, author: Author, silent: float, said: str
) -> None:
    """The controller is taken to be gone after 30 s; a job that is unknown before may be one that it has not read."""
    await author.beat(silent=silent)
    done = await run(shared, "why", "new", "-n", "team-a")
    assert done.code == Exit.NOT_FOUND
    assert said in done.err
    assert ("label" in done.err) is (silent == 0)


async def test_a_namespace_of_which_nothing_is_seen_is_told_with_the_right_that_may_be_missing(
    shared: Api,
) -> None:
    """The same words whether or not there is such a namespace; who sees everything is told that there is none."""
    for arguments in (["jobs"], ["why", "llama"], ["events", "llama"]):
        foreign, absent = [
            await run(shared, *arguments, "-n", name, user="alice") for name in ("team-b", "nowhere")
        ]
        assert (foreign.code, foreign.out) == (Exit.FORBIDDEN, ""), arguments
        assert "you may not get workloads.queuer.dev there" in foreign.err
        assert "kubectl create rolebinding queuer-viewer-alice -n team-b" in foreign.err
        assert absent.err == foreign.err.replace("team-b", "nowhere")
    own = await run(shared, "jobs", "-n", "team-a", "--state", "Running", user="alice")
    assert (own.code, own.err) == (0, "no job matches\n")
    assert (await run(shared, "jobs", "-n", "team-b")).code == 0
    none = await run(shared, "jobs", "-n", "nowhere")
    assert (none.code, "no queue names namespace nowhere" in none.err) == (Exit.NOT_FOUND, True)


async def test_a_refusal_is_in_the_audit_with_what_was_asked_and_which_right_was_missing(shared: Api) -> None:
    refused = await run(shared, "cycles", user="alice")
    assert refused.code == Exit.FORBIDDEN
    row = next(line for line in (await run(shared, "audit")).out.splitlines() if "denied" in line)
    told = ["alice", "denied", "-", "refused: may not get cycles.queuer.dev (GET /api/v1/cycles)"]
    assert re.split(r"  +", row)[1:] == told


async def test_a_job_that_would_go_to_no_queue_is_not_found(shared: Api) -> None:
    done = await run(shared, "queue", "where", f"{A}x", "-n", "team-a")
    assert (done.code, done.out) == (Exit.NOT_FOUND, "")
    assert f"did you mean {A}" in done.err


async def test_a_simulation_ends_with_the_verdict_where_it_is_asked_to(shared: Api) -> None:
    """The namespace is found where the queue serves one."""
    ask = ["sim", "shape", "-q", A, "--exit-status"]
    assert [(await run(shared, *ask, shape)).code for shape in ("1xgpu:8", "99xgpu:8")] == [0, 11]
    assert (await run(shared, *ask[:-1], "99xgpu:8")).code == 0


MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata: {{name: train, namespace: team-a, labels: {{queuer.dev/queue: {queue}}}, annotations: {{{note}}}}}
spec: {{template: {{spec: {{containers: [{{name: main, resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]}}}}}}
"""


@pytest.mark.parametrize(
    ("note", "code", "said"),
    [
        ("example.com/due: 2026-12-01", 0, ""),
        ("example.com/due: !!timestamp 2026-12-01", Exit.USAGE, "!!timestamp is no value of JSON"),
        ("a: !!binary aGk=", Exit.USAGE, "!!binary is no value of JSON"),
        ("a: !!set {b}", Exit.USAGE, "!!set is no value of JSON"),
        ("a: b, a: c", Exit.USAGE, "'a' is given twice"),
        ("a: [", Exit.USAGE, "is no YAML or JSON"),
    ],
)
async def test_a_manifest_is_read_as_kubectl_reads_it(
    shared: Api, tmp_path: Path, note: str, code: int, said: str
) -> None:
    """A date is a text, as any annotation; what cannot be sent, or would be dropped, is told with its line."""
    file = tmp_path / "job.yaml"
    file.write_text(MANIFEST.format(queue=A, note=note))
    done = await run(shared, "sim", "job", "-f", str(file))
    assert (done.code, said in done.err, "Traceback" in done.err) == (code, True, False), done.err
    assert code == 0 or "line" in done.err


@pytest.mark.parametrize("flags", [["--resource", "nope"], ["--flavor", "nope"]])
async def test_a_mistyped_amount_is_no_empty_table(shared: Api, flags: list[str]) -> None:
    done = await run(shared, "queue", "tree", *flags)
    assert (done.code, done.out, "nvidia.com/gpu" in done.err) == (Exit.USAGE, "", True)


async def test_a_resource_is_named_by_its_end(shared: Api) -> None:
    """As in a shape. `did you mean cpu?` led whoever asked for `gpu` to another resource."""
    for arguments, heading in (
        (["queue", "tree"], "nvidia.com/gpu\n"),
        (["topo"], "nvidia.com/gpu as of cycle"),
    ):
        done = await run(shared, *arguments, "--resource", "gpu")
        assert (done.code, heading in done.out + done.err) == (0, True), done.err


async def test_a_history_of_a_resource_that_was_not_recorded_is_refused(shared: Api, author: Author) -> None:
    """A table of dashes would say that nothing of it was used."""
    async with begin(author.engine) as connection:
        await rollup.record(connection, author.epoch, at=time.time())
    known = await run(shared, "queue", "history", A, "--resource", "gpu")
    assert (known.code, "nvidia.com/gpu; " in known.err) == (0, True), known.err
    wrong = await run(shared, "queue", "history", A, "--resource", "gpux")
    assert (wrong.code, wrong.out) == (Exit.USAGE, "")


async def test_the_reasons_that_why_prints_sum_to_the_time_that_it_waited(
    shared: Api, author: Author
) -> None:
    """Over two attempts, with a time in which no cycle had looked at it."""
    made = workload("b2", name="evicted", queue=A, submitted=NOW - 7)
    await author.submit(made)
    await author.cycle(explain={"b2": waits()})
    await author.cycle(admit=[made])
    await author.evict(Eviction(uid="b2", cause="reclaim", patch={}, beneficiary="a1", note="evicted"))
    await author.step("b2", State.QUEUED, at=NOW + 100)
    await author.cycle(explain={"b2": waits(Token.WAITING_FOR_QUOTA, "48 of 64 are used")})
    out = (await run(shared, "why", "evicted")).out
    timeline = (await shared.get("/api/v1/workloads/b2/timeline")).json()
    total, _, parts = (
        next(line for line in out.splitlines() if "  waited " in line).split(maxsplit=1)[1].partition(": ")
    )
    told = {token: seconds(length) for length, token in (part.split() for part in parts.split(", "))}
    assert {row["token"] for row in timeline["reasons"]} == told.keys()
    assert sum(told.values()) == seconds(total)
    assert -2 <= timeline["waitedSeconds"] - seconds(total) <= 60  # which is how much later it may be asked


def seconds(text: str) -> int:
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    return sum(int(count) * units[unit] for count, unit in re.findall(r"(\d+)([dhms])", text))


@pytest.mark.parametrize(
    ("length", "text"), [(0, "0s"), (59, "59s"), (3600, "1h"), (3725, "1h2m5s"), (90061, "1d1h1m1s")]
)
def test_a_duration_is_exact(length: int, text: str) -> None:
    assert (duration(length), seconds(text)) == (text, length)

"""Replaying traces: published waits of real queues come out of `decide()`, and wrong files are told what is wrong."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from math import inf, nextafter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from queuer.cli.sim import app
from queuer.domain.errors import InvalidInput
from queuer.domain.workload import GRACE
from queuer.sim.policy import ReplayPolicy
from queuer.sim.replay import Setup, prepare, replay
from queuer.sim.report import JobOutcome, Report, Run, RunTimes, Spread
from queuer.sim.trace import SHOWN, gang_of, read_jobs

DATA = Path(__file__).parents[2] / "bench" / "data"
PHILLY, QUEUES = DATA / "philly_two_queues.csv", DATA / "philly_queues.csv"
WINDOW = (4062780.0, 9333120.0)
HEADER = "job_id,submit_s,duration_s,queue,pods,gpus_per_pod,walltime_s"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A CSV file of these rows."""

    def writer(*rows: str, header: str = HEADER, name: str = "jobs.csv") -> Path:
        path = tmp_path / name
        path.write_text("\n".join((header, *rows)) + "\n")
        return path

    return writer


def run(what: Setup, *, seed: int = 0, estimates: float = 0.0) -> Report:
    """The replay, a decision a second on the wall."""
    ticks = iter(range(1_000_000))
    return replay(what, clock=lambda: float(next(ticks)), seed=seed, estimates=estimates)


def test_data_is_what_it_was() -> None:
    """A figure that moves must not come from an input that moved."""
    for line in (DATA / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize(
    ("queue", "nodes", "policy", "jobs", "published"),
    [
        ("7f04ca", 32, ReplayPolicy.FIFO, 1098, 1412),
        ("7f04ca", 32, ReplayPolicy.SJF, 1098, 857),
        ("2869ce", 16, ReplayPolicy.FIFO, 747, 21171),
        ("2869ce", 16, ReplayPolicy.SJF, 747, 7344),
    ],
)
def test_published_waits(queue: str, nodes: int, policy: ReplayPolicy, jobs: int, published: float) -> None:
    """Mean waits that another simulator printed for the same jobs (bench/data/README.md), within 0.1 %."""
    report = run(
        prepare(
            PHILLY, only=[queue], window=WINDOW, nodes=nodes, gpus_per_node=8, policy=policy, borrowing=False
        )
    )
    assert report.jobs == jobs
    assert report.wait.mean == pytest.approx(published, rel=1e-3)
    assert report.evictions == 0


def test_published_waits_of_both_queues_side_by_side() -> None:
    """Without borrowing each queue is alone on its nodes, and fares as if the other were not there.

    The command line says the same as the library, and every key that is promised is in its JSON.
    """
    arguments = (
        f"replay --jobs {PHILLY} --queues {QUEUES} --queue 7f04ca --queue 2869ce --from 4062780 --to 9333120"
    )
    options = "--nodes 48 --gpus-per-node 8 --policy sjf --no-borrowing --json"
    result = CliRunner().invoke(app, [*arguments.split(), *options.split()], catch_exceptions=False)
    report = json.loads(result.stdout)
    assert report["queues"]["7f04ca"]["wait"]["mean"] == pytest.approx(857, rel=1e-3)
    assert report["queues"]["2869ce"]["wait"]["mean"] == pytest.approx(7344, rel=1e-3)
    assert report["wait"]["mean"] == pytest.approx(3483, rel=1e-3)
    assert set(report["wait"]) == {"mean", "p50", "p95", "max"}
    assert report["evictions"] == 0
    assert 0 < report["utilisation"] < 1
    assert report["decisions_per_s"] > 0


def test_strict_order_by_hand(write: Write) -> None:
    """One node of 8: the head blocks, shorter first only under sjf, an end comes before an arrival."""
    jobs = write(
        "a,0,100,q,1,6,",
        "b,10,50,q,1,8,",  # waits for a
        "c,20,5,q,1,2,",  # would fit beside a; fifo keeps it behind b, sjf lets it go first
        "d,250,0,q,,8,",  # comes when the node is free again; a duration of 0 is 1 s
        "e,251,7,q,,8,",  # comes at the second at which d ends
    )
    waits = {}
    for policy in (ReplayPolicy.FIFO, ReplayPolicy.SJF):
        report = run(prepare(jobs, nodes=1, gpus_per_node=8, policy=policy))
        waits[policy] = (report.wait.mean * 5, report.wait.max)
    assert waits == {ReplayPolicy.FIFO: (90 + 130, 130), ReplayPolicy.SJF: (90, 90)}


def test_gangs_are_whole(write: Write) -> None:
    """16 GPUs are two pods of 8 and wait until two nodes are free, though 16 GPUs are free before."""
    jobs = write("a,0,100,q,1,1,", "b,0,200,q,1,8,", "big,1,10,q,,16,")
    report = run(prepare(jobs, nodes=3, gpus_per_node=8, policy=ReplayPolicy.FIFO))
    assert report.wait.max == 99
    assert [gang_of(n, per_node=8) for n in (4, 16, 12, 20, 7, 13)] == [
        (1, 4), (2, 8), (2, 6), (4, 5), (1, 7), (13, 1),
    ]  # fmt: skip


def test_borrowing_and_what_it_costs(write: Write) -> None:
    """Two queues of a node each: b borrows a's node until a comes; the evicted job runs again from its start."""
    jobs = write("b1,0,1000,b,1,8,", "b2,0,1000,b,1,8,", "a1,100,50,a,1,8,")
    queues = write("a,1,8", "b,1,8", header="queue,nodes,gpus_per_node", name="queues.csv")

    def replayed(policy: ReplayPolicy, *, borrowing: bool) -> Report:
        what = prepare(jobs, queues_file=queues, nodes=2, gpus_per_node=8, policy=policy, borrowing=borrowing)
        return run(replace(what, window=(0.0, 1000.0)))

    alone = replayed(ReplayPolicy.GREEDY, borrowing=False)
    assert (alone.queues["a"].wait.max, alone.queues["b"].wait.max, alone.evictions) == (0, 1000, 0)
    for policy in (ReplayPolicy.GREEDY, ReplayPolicy.QUEUER):
        shared = replayed(policy, borrowing=True)
        assert (shared.queues["a"].wait.max, shared.queues["b"].wait.max) == (GRACE, 0)
        assert (shared.queues["a"].evictions, shared.queues["b"].evictions) == (0, 1)
        assert shared.queues["b"].turnaround.max == 100 + GRACE + 50 + 1000
        held = 1000 + (100 + GRACE) + (1000 - 100 - GRACE - 50)  # pods that are going still hold their GPUs
        assert shared.queues["b"].gpus * 1000 == 8 * held


def test_order_of_the_product(write: Write) -> None:
    """Where the order is not strict, a job that fits passes one that does not."""
    jobs = write("a,0,100,q,1,6,", "b,10,50,q,1,8,", "c,20,5,q,1,2,")
    for policy in (ReplayPolicy.GREEDY, ReplayPolicy.QUEUER):
        assert run(prepare(jobs, nodes=1, gpus_per_node=8, policy=policy)).wait.mean * 3 == 90


def test_walltime_makes_room_for_backfill(write: Write) -> None:
    """With the users' estimates a large job has a reservation: what would delay it waits."""
    jobs = write("a,0,100,q,1,6,100", "big,10,50,q,1,8,50", "long,20,500,q,1,2,500", "short,30,60,q,1,2,60")
    report = run(prepare(jobs, nodes=1, gpus_per_node=8, policy=ReplayPolicy.GREEDY))
    assert (report.wait.mean * 4, report.wait.max) == (90 + 130, 130)  # big, long; short waits for nobody


def test_start_ranges_are_held_against_real_starts(write: Write) -> None:
    """One GPU. Told at 0: b starts when a's 100 s or so are over, c 50 s or so later."""
    told = prepare(
        write("a,0,100,q,1,1,100", "b,0,50,q,1,1,50", "c,0,10,q,1,1,"),
        nodes=1,
        gpus_per_node=1,
        policy=ReplayPolicy.GREEDY,
    )
    done = run(told, estimates=60.0).estimates
    assert done is not None
    assert (done.first.told, done.first.inside, done.first.early, done.first.late) == (2, 1.0, 0, 0)
    assert done.first.error is not None
    assert 0.0 < done.first.error.max < 100.0
    assert done.forecasts == 2
    assert run(told).estimates is None


def test_a_start_after_its_range_is_late(write: Write) -> None:
    jobs = write("a,0,500,q,1,1,100", "b,0,50,q,1,1,50")
    done = run(
        prepare(jobs, nodes=1, gpus_per_node=1, policy=ReplayPolicy.GREEDY), estimates=1_000.0
    ).estimates
    assert done is not None
    assert (done.first.late, done.first.inside) == (1, 0.0)
    assert done.first.error is not None
    assert 300.0 < done.first.error.max < 450.0


def test_run_times_are_learned_from_what_ended(write: Write) -> None:
    """Nobody declares anything; earlier runs of the same shapes say that the long one would delay the large one."""
    jobs = write(
        "a0,0,100,q,1,6,", "long0,0,500,q,1,2,", "a,1000,100,q,1,6,", "big,1010,50,q,1,8,", "long,1020,500,q,1,2,"
    )  # fmt: skip
    report = run(prepare(jobs, nodes=1, gpus_per_node=8, policy=ReplayPolicy.GREEDY))
    assert report.wait.mean * 5 == 90 + 130
    told = report.run_times  # of a and long just right; of big, the first of its shape, the queue's 500 s
    assert (told.known, told.under, told.factor_p50) == (3 / 5, 0, 1)
    assert told.within_2 == pytest.approx(2 / 3)


def test_utilisation_counts_the_window(write: Write) -> None:
    """GPU time between first and last submission, or in the window that was asked for."""
    jobs = write("a,0,1000,q,1,4,", "b,100,10,q,1,4,")
    report = run(prepare(jobs, nodes=1, gpus_per_node=8, policy=ReplayPolicy.FIFO))
    assert report.utilisation == 0.5
    wider = prepare(jobs, nodes=1, gpus_per_node=8, policy=ReplayPolicy.FIFO, window=(0.0, 2000.0))
    assert run(wider).utilisation == pytest.approx((4 * 1000 + 4 * 10) / (8 * 2000))


def test_use_of_jobs_that_came_at_once_is_counted_until_the_last_has_ended(write: Write) -> None:
    """Between the first and the last submission there is no time."""
    for rows, used in (
        (["a,50,100,q,1,4,"], 4 * 100),
        (["a,50,100,q,1,4,", "b,50,50,q,1,2,"], 4 * 100 + 2 * 50),
    ):
        what = prepare(write(*rows), nodes=1, gpus_per_node=8, policy=ReplayPolicy.FIFO)
        report = run(what)
        assert report.utilisation == pytest.approx(used / (8 * 100))
        assert report.queues["q"].gpus == pytest.approx(used / 100)


@pytest.mark.parametrize("rows", [("a,1e10,1e-9,q,1,8,",), ("a,1e10,1e-9,q,1,8,", "b,1e10,1e-9,q,1,8,")])
def test_a_run_too_short_for_the_clock_ends_after_it_began(write: Write, rows: tuple[str, ...]) -> None:
    """Seconds since the epoch plus a nanosecond are the same seconds: the job must not stay till others move."""
    report = run(prepare(write(*rows), nodes=1, gpus_per_node=8, policy=ReplayPolicy.FIFO))
    least = nextafter(1e10, inf) - 1e10
    assert report.turnaround.max == len(rows) * least
    assert report.wait.max == (len(rows) - 1) * least
    assert report.utilisation == 1.0


def test_same_trace_same_report() -> None:
    """Nothing but seed and trace decides."""
    what = prepare(
        PHILLY, queues_file=QUEUES, only=["7f04ca", "2869ce"], window=(4062780.0, 4262780.0), nodes=32,
        gpus_per_node=8, policy=ReplayPolicy.QUEUER,
    )  # fmt: skip
    assert run(what, seed=3) == run(what, seed=3)


def test_percentiles_are_by_nearest_rank() -> None:
    """Each is one of the values, the median of how far run times are off too: factors of 1 and 3 here."""
    spread = Spread.of([float(n) for n in range(100, 0, -1)])
    assert (spread.mean, spread.p50, spread.p95, spread.max) == (50.5, 50, 95, 100)
    assert Spread.of([7.0]) == Spread(mean=7, p50=7, p95=7, max=7)
    ran = JobOutcome(queue="q", gpus=1, submitted=0.0, runs=(Run(start=0.0, end=30.0),), estimate=30.0)
    assert RunTimes.of([ran, replace(ran, estimate=10.0)]).factor_p50 == 1


def test_gzip_is_read_as_it_lies(write: Write, tmp_path: Path) -> None:
    """For any name of the file."""
    plain = write("a,0,100,,1,6,", "", "b,5,1,a/b,2,8,")
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_jobs(packed, gpus_per_node=8) == read_jobs(plain, gpus_per_node=8)
    assert [(j.row, j.queue) for j in read_jobs(plain, gpus_per_node=8)] == [(2, "other"), (4, "a/b")]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("x,-5,1,q,1,1,", "jobs.csv row 3 submit_s: -5 is less than 0"),
        ("x,soon,1,q,1,1,", "jobs.csv row 3 submit_s: a number of seconds is needed, got 'soon'"),
        ("x,,1,q,1,1,", "jobs.csv row 3 submit_s: a number of seconds is needed, the field is empty"),
        ("x,nan,1,q,1,1,", "jobs.csv row 3 submit_s: a number of seconds is needed, got 'nan'"),
        ("x,1,-1,q,1,1,", "jobs.csv row 3 duration_s: -1 is less than 0"),
        ("x,1,1,q,0,1,", "jobs.csv row 3 pods: 0 is less than 1"),
        ("x,1,1,q,1.5,1,", "jobs.csv row 3 pods: a whole number is needed, got '1.5'"),
        ("x,1,1,q,1,0,", "jobs.csv row 3 gpus_per_pod: 0 is less than 1"),
        ("x,1,1,q,1,0.46,", "jobs.csv row 3 gpus_per_pod: a whole number is needed, got '0.46'"),
        ("x,1,1,q", "jobs.csv row 3 gpus_per_pod: a whole number is needed, the field is empty"),
        ("x,1,1,q,1,1,-2", "jobs.csv row 3 walltime_s: -2 is less than 0"),
        (",1,1,q,1,1,", "jobs.csv row 3 job_id: is empty"),
        ("ok,1,1,q,1,1,", "jobs.csv row 3 job_id: 'ok' was named in row 2 already"),
        ("x,1,1,q!,1,1,", "jobs.csv row 3 queue: 'root.q!' is not a queue path"),
        ("x,1e30,1,q,1,1,", "jobs.csv row 3 submit_s: 1e30 is more than 100000000000"),
        ("x,1,1_0,q,1,1,", "jobs.csv row 3 duration_s: a number of seconds is needed, got '1_0'"),
        (
            "x,1,1,q,,99999999999999999999,",
            "jobs.csv row 3 gpus_per_pod: 99999999999999999999 is more than 1000000",
        ),
        ("x,1,1,q,1,1,,surplus", "jobs.csv row 3: has more fields than the header"),
        ('x,1,1,"q,1,1,', "jobs.csv after row 2: is no CSV: unexpected end of data"),
        ("x,1,1,q,1,16,", "jobs.csv row 3 gpus_per_pod: a pod of 16 GPUs fits no node of 8"),
        ("x,1,1,q,3,8,", "jobs.csv row 3 pods: a gang of 3 x 8 GPUs does not fit the 2 x 8 of the cluster"),
        ("x,1,1,q,3,5,", "jobs.csv row 3 pods: a gang of 3 x 5 GPUs does not fit the 2 x 8 of the cluster"),
    ],
)
def test_wrong_rows(write: Write, row: str, said: str) -> None:
    """File, row and column are named, and nothing is run."""
    jobs = write("ok,0,1,q,1,1,", row)
    with pytest.raises(InvalidInput) as error:
        run(prepare(jobs, nodes=2, gpus_per_node=8, policy=ReplayPolicy.FIFO))
    assert said in str(error.value)


def test_wrong_files(write: Write, tmp_path: Path) -> None:
    """A missing column, no file, and no text."""
    cases = [
        (
            write("a,0", header="job_id,submit_s", name="cut.csv"),
            "cut.csv row 1 duration_s: the column is missing",
        ),
        (tmp_path / "none.csv", "No such file"),
        (write(header="", name="empty.csv"), "empty.csv row 1 job_id: the column is missing"),
        (
            write(header=f"{HEADER},queue", name="twice.csv"),
            "twice.csv row 1 queue: the column is there twice",
        ),
    ]
    noise = tmp_path / "noise.csv"
    noise.write_bytes(b"\x1f\x8b\x08 not gzip")
    for path, said in [*cases, (noise, "cannot be read")]:
        with pytest.raises(InvalidInput) as error:
            read_jobs(path, gpus_per_node=8)
        assert said in str(error.value)


@pytest.mark.parametrize(
    "option",
    [
        ["--gpus-per-node", "99999999999"],
        ["--nodes", "99999999999"],
        ["--from", "nan"],
        ["--to", "inf"],
        ["--estimates", "nan"],
        ["--seed", "99999999999999999999"],
    ],
)
def test_wrong_options(write: Write, option: list[str]) -> None:
    """Each is named, with the exit code of wrong usage."""
    jobs = ["--jobs", str(write("a,0,1,q,1,1,")), "--nodes", "1", "--gpus-per-node", "1"]
    result = CliRunner().invoke(app, ["replay", *jobs, *option])
    assert result.exit_code == 2
    assert option[0] in result.output


def test_a_trace_that_unfolds_without_end(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuer.sim.files.read_text.__kwdefaults__", {"most": 1000, "hint": ""})
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress(b"\n" * 1001))
    with pytest.raises(InvalidInput, match="has more than 1000 bytes"):
        read_jobs(path, gpus_per_node=8)


def test_wrong_queues(write: Write) -> None:
    """Queues that are not there, that have no nodes, that are inner, and nodes that do not add up."""
    jobs = write("a,0,1,red,1,8,", "b,0,1,blue,1,8,", "c,0,1,,1,8,")
    header = "queue,nodes,gpus_per_node"

    def told(*rows: str, only: tuple[str, ...] = (), borrowing: bool = True) -> str:
        queues = write(*rows, header=header, name="queues.csv") if rows else None
        with pytest.raises(InvalidInput) as error:
            run(
                prepare(
                    jobs, queues_file=queues, only=only, nodes=2, gpus_per_node=8, policy=ReplayPolicy.FIFO,
                    borrowing=borrowing,
                )
            )  # fmt: skip
        return str(error.value)

    assert "--queue: 'rad' is no queue of jobs.csv (did you mean red?)" in told(only=("rad",))
    assert "jobs.csv row 3 queue: 'blue' is no queue of queues.csv" in told("red,1,8")
    assert "queues.csv row 3 nodes: 5 are guaranteed, but there are 2 (give --nodes 5 or more)" in told(
        "red,1,8", "blue,5,8"
    )
    assert "queues.csv row 2 nodes: a whole number is needed, got 'x'" in told("red,x,8")
    assert "queues.csv row 2 gpus_per_node: 4, but the nodes have 8" in told("red,1,4", "blue,1,8")
    assert "queues.csv row 3 queue: 'red' was named in row 2 already" in told("red,1,8", "red,1,8")
    assert "jobs.csv row 2 queue: 'red' has queues below it" in told("red,1,8", "blue,1,8", "red/dark,1,8")
    apart = told("red,1,8", "blue,2,8", borrowing=False)
    assert "--nodes: 2, but without borrowing the queues' own nodes are 3 (red 1 + blue 2)" in apart
    homeless = told("red,1,8", "blue,1,8", borrowing=False)
    assert "jobs.csv row 4 pods: a gang of 1 x 8 GPUs does not fit the 0 x 8 of queue other" in homeless
    assert "--no-borrowing: several queues" in told(borrowing=False)


def test_many_problems_are_counted(write: Write) -> None:
    """A file of the wrong kind, or a cluster of the wrong size, does not fill the screen."""
    unreadable = write(*(f"j{n},x,1,q,1,1," for n in range(100)))
    with pytest.raises(InvalidInput) as error:
        read_jobs(unreadable, gpus_per_node=8)
    assert [str(p) for p in error.value.problems[SHOWN:]] == [f"and more: {100 - SHOWN} further problems"]
    huge = write(*(f"j{n},0,1,q,9,8," for n in range(100)))
    with pytest.raises(InvalidInput) as error:
        run(prepare(huge, nodes=8, gpus_per_node=8, policy=ReplayPolicy.FIFO))
    assert [str(p) for p in error.value.problems[SHOWN:]] == [f"and more: {100 - SHOWN} further problems"]


def test_nothing_left(write: Write) -> None:
    """An empty window is an error, not a division by zero."""
    with pytest.raises(InvalidInput, match="no job is left"):
        read_jobs(write("a,0,1,q,1,1,"), gpus_per_node=8, start=5.0)

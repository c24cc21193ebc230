"""Benches and test commands refuse options that make no sense by name, and take those that do."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import (
    agreement,
    api,
    backlog,
    cli,
    decide,
    flood,
    history,
    infeasible,
    manifests,
    openb,
    preempt,
    quality,
    rolling,
    runtimes,
    starts,
    startup,
    stream,
    ui,
    uneven,
)
from tests.e2e import landing
from tests.soak import __main__ as soak
from tests.solver import many_cycles, many_worlds

NOT_POSITIVE = ("0", "-1", "1.5", "nan", "x", "", "9" * 30, "9" * 5_000)
NOT_COUNT, NOT_SEED = NOT_POSITIVE[1:], NOT_POSITIVE[1:]
NOT_AMOUNT = ("-1", "nan", "inf", "x", "", "1e30")
NOT_ABOVE_ZERO = ("0", *NOT_AMOUNT)
NOT_PART = ("2", "-0.1", "nan", "inf", "x")
NOT_SEEDS = ("5-1", "x", "1", "-", "1-", "-1-5", "1-2-3", "1.5-2", "1-" + "9" * 30)
NOT_SIZE = ("0/0", "64/0", "0/1", "-1/-1", "64", "64/x", "1/9", "64/1/1", "nan/1")
SIZES = {
    "--nodes": NOT_POSITIVE,
    "--pending": NOT_COUNT,
    "--queues": NOT_POSITIVE,
    "--fill": NOT_PART,
    "--mix": ("x",),
}
ARRIVALS = {
    "--nodes": NOT_POSITIVE,
    "--load": NOT_ABOVE_ZERO,
    "--jobs": NOT_POSITIVE,
    "--seeds": NOT_POSITIVE,
}
FIRST = {"--first": NOT_SEED}
BUDGET = {"--budget": NOT_AMOUNT}
STREAM: dict[str, tuple[str, ...]] = {
    "--scale": NOT_ABOVE_ZERO,
    "--runtime-factor": NOT_ABOVE_ZERO,
    "--landing": NOT_AMOUNT,
    "--jitter": NOT_AMOUNT,
    "--budget": NOT_AMOUNT,
}
REFUSED: dict[Callable[[], ArgumentParser], dict[str, tuple[str, ...]]] = {
    agreement.parser: FIRST | {"--cases": NOT_POSITIVE},
    api.parser: FIRST
    | {"--seconds": NOT_ABOVE_ZERO}
    | dict.fromkeys(("--nodes", "--queues", "--jobs", "--clients"), NOT_POSITIVE),
    cli.parser: {"--runs": NOT_POSITIVE},
    ui.parser: FIRST
    | {"--seconds": NOT_ABOVE_ZERO}
    | dict.fromkeys(("--nodes", "--queues", "--jobs"), NOT_POSITIVE),
    decide.parser: SIZES | BUDGET | {"--seeds": NOT_POSITIVE, "--after": NOT_COUNT},
    infeasible.parser: {},
    manifests.parser: {},
    openb.parser: {"--orders": NOT_POSITIVE, "--list": ("x",)},
    preempt.parser: FIRST | BUDGET | {"--seeds": NOT_POSITIVE, "--sizes": NOT_SIZE},
    quality.parser: BUDGET
    | {"--seeds": NOT_SEEDS, "--nodes": ("0", "-1", "65", "x"), "--rows": ("no/such/rows", "/", "x" * 300)},
    rolling.parser: ARRIVALS | FIRST | BUDGET,
    runtimes.parser: {
        "--gpus-per-node": NOT_POSITIVE,
        "--runs": NOT_POSITIVE,
        "--quantile": ("1", *NOT_PART),
    },
    starts.parser: ARRIVALS | {"--every": NOT_ABOVE_ZERO},
    startup.parser: {"--part": ("x",)},
    history.parser: {"--millions": (*NOT_POSITIVE, "51")},
    stream.parser: STREAM,
    flood.parser: {"--jobs": NOT_POSITIVE, "--rate": ("19", *NOT_POSITIVE)},
    backlog.parser: {"--jobs": NOT_POSITIVE, "--runs": NOT_POSITIVE},
    uneven.parser: FIRST | BUDGET | {"--seeds": NOT_POSITIVE},
    many_cycles.parser: FIRST | {"--cycles": NOT_POSITIVE},
    many_worlds.parser: FIRST | {"--worlds": NOT_POSITIVE},
    landing.parser: FIRST | {"--cases": NOT_POSITIVE},
    soak.parser: {"--history": NOT_COUNT, "--seed": NOT_SEED}
    | dict.fromkeys(("--jobs", "--every", "--minutes"), NOT_POSITIVE),
}
NEEDED = {runtimes.parser: ("--jobs=x",)}


def test_every_command_is_here() -> None:
    written = {
        path.stem for path in Path(decide.__file__).parent.glob("*.py") if "__main__" in path.read_text()
    }
    assert written == {
        made.__module__.removeprefix("bench.") for made in REFUSED if made.__module__.startswith("bench")
    }


@pytest.mark.parametrize("made", REFUSED, ids=lambda made: made.__module__)
def test_every_option_with_a_value_is_refused_by_name(
    made: Callable[[], ArgumentParser], capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = {"--estimates", "--order", "--mix"}  # checked by `choices`
    free = chosen | {"--jobs", "--pictures", "--index", "--files", "--schedulers", "--classes"}  # any text
    valued = {a.option_strings[-1] for a in made()._actions if a.nargs != 0}
    assert valued - free <= REFUSED[made].keys()
    for option, values in REFUSED[made].items():
        for value in values:
            with pytest.raises(SystemExit) as ended:
                made().parse_args([*NEEDED.get(made, ()), f"{option}={value}"])
            assert ended.value.code == 2
            assert f"argument {option}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("made", "given"),
    [
        (decide.parser, "--pending=0 --after=0 --budget=0 --fill=0 --nodes=1 --queues=1 --seeds=1"),
        (preempt.parser, "--first=0 --sizes 4/1 64/2"),
        (quality.parser, "--seeds=0-0 --rows={folder}/rows.jsonl"),
        (runtimes.parser, "--jobs=x --quantile=0"),
    ],
)
def test_what_makes_sense_is_taken(made: Callable[[], ArgumentParser], given: str, tmp_path: Path) -> None:
    made().parse_args(given.format(folder=tmp_path).split())


def test_a_command_line_that_is_read_leaves_files_as_they_were(tmp_path: Path) -> None:
    """Guards the rows of earlier runs, and the folders of whoever mistypes an option."""
    rows, none, link = tmp_path / "rows", tmp_path / "none", tmp_path / "link"
    rows.write_text('{"seed": 1}\n')
    link.symlink_to(tmp_path / "place")
    for path in (rows, none, link):
        assert quality.parser().parse_args([f"--rows={path}"]).rows == path
        with pytest.raises(SystemExit):
            quality.parser().parse_args([f"--rows={path}", "--seeds=5-1"])
    assert (rows.read_text(), sorted(tmp_path.iterdir())) == ('{"seed": 1}\n', [link, rows])


@pytest.mark.parametrize(
    ("main", "given", "named"),
    [
        (quality.main, "--seeds 1-1 --nodes 640", "--nodes"),
        (quality.main, "--seeds 1-1 --rows {file}", "--rows"),
        (runtimes.main, "--jobs {file}", "--jobs"),
        (rolling.main, "--jobs 1 --seeds 1", "--jobs, --nodes"),
    ],
)
def test_what_is_known_only_later_is_told_in_the_same_way(
    main: Callable[[], None],
    given: str,
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "file"
    file.write_text('{"x": 1}\n')
    monkeypatch.setattr("sys.argv", ["bench", *given.format(file=file).split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"{named}: " in capsys.readouterr().err

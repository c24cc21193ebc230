"""`queuer topo`, `sim` and `top` over the API: what is free, whether one more job would start, a frame."""

from __future__ import annotations

import json
import time
from pathlib import Path

import yaml

from queuer.store.heartbeat import LastCycle
from tests.api.cli import run
from tests.api.identity import Api
from tests.api.rows import Author
from tests.api.test_simulations import JOB, keep


async def test_topo_shows_levels_and_slots(api: Api, author: Author) -> None:
    await keep(author)
    found = await run(api, "topo", "--slots", "2xgpu:8", "--level", "host")
    assert found.code == 0, found.err
    rows = [line.lstrip("├─└│ ").split() for line in found.out.splitlines()]
    assert rows[0] == [
        "DOMAIN",
        "LEVEL",
        "USED",
        "OUTSIDE",
        "RESERVED",
        "FREE",
        "OF",
        "NODES",
        "WHOLE",
        "OUT",
    ]
    assert ["r0", "rack", "0", "-", "0", "16", "16", "2", "2", "-"] in rows
    assert ["n3", "host", "0", "-", "0", "8", "8", "1", "1", "-"] in rows
    assert ["rack", "2", "2", "2", "r0", "2"] in rows
    assert "as of cycle 1" in found.err
    answers = json.loads((await run(api, "topo", "-o", "json")).out)
    assert ([each["level"] for each in answers["levels"]], answers["slots"]) == (["rack"], None)
    wrong = await run(api, "topo", "--level", "zone")
    assert "there is no level zone" in wrong.err


async def test_a_shape_would_start_or_not_and_says_how_far_this_holds(api: Api, author: Author) -> None:
    """The queue and the namespace are found where there is one choice."""
    await keep(author)
    starts = await run(api, "sim", "shape", "2xgpu:8", "--level", "rack")
    assert starts.code == 0, starts.err
    assert starts.out.startswith("2xgpu:8 in root  starts\n  main         2 pods on default: ")
    assert "feasible at cycle 1, not a reservation" in starts.err
    never = await run(api, "sim", "shape", "3xgpu:8", "--level", "rack", "-q", "root", "-n", "team-a")
    assert "unstartable\n  CHANGE       TopologyPlacementFailed: " in never.out
    assert "would admit  pods anywhere" in never.out


async def test_a_job_is_asked_about_as_its_file_has_it(api: Api, author: Author, tmp_path: Path) -> None:
    await keep(author)
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(JOB))
    found = await run(api, "sim", "job", "-f", str(file), "-o", "json")
    assert json.loads(found.out)["answer"] == "starts"
    assumed = json.loads(json.dumps(JOB))
    assumed["spec"]["template"]["spec"]["runtimeClassName"] = "gvisor"
    file.write_text(yaml.safe_dump(assumed))
    found = await run(api, "sim", "job", "-f", str(file))
    assert found.err.startswith("warning: RuntimeClass gvisor is taken to have no overhead")
    elsewhere = {**JOB, "metadata": {**JOB["metadata"], "namespace": "team-z"}}
    file.write_text(yaml.safe_dump(elsewhere))
    found = await run(api, "sim", "job", "-f", str(file))
    assert "namespace team-z may not use queue root" in found.out
    unsaid = {key: value for key, value in JOB["metadata"].items() if key != "namespace"}
    file.write_text(yaml.safe_dump({**JOB, "metadata": unsaid}))
    found = await run(api, "sim", "job", "-f", str(file))
    assert found.out.startswith("train  starts"), "its namespace is the only one that there is"
    file.write_text("---\na: 1\n---\nb: 2\n")
    found = await run(api, "sim", "job", "-f", str(file))
    assert "holds 2 objects, one job is needed" in found.err


async def test_top_prints_one_frame_of_what_the_api_answers(api: Api, author: Author) -> None:
    await author.tree()
    await author.cycle()
    await author.beat(cycle=LastCycle(id=1, at=time.time(), took=0.1, waiting=0, status="GREEDY"))
    found = await run(api, "top")
    assert found.code == 0, found.err
    assert "cycle 1, " in found.out.splitlines()[0]
    assert "Jobs    none" in found.out
    assert [line.split()[0:3] for line in found.out.splitlines() if "team-b" in line] == [
        ["└─", "team-b", "0/32"]
    ]

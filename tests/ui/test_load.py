"""A larger cluster stays light in the browser, and what no screen shows at once is found and announced."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from bench.instances import Form
from bench.load import Size, manifest_of
from bench.ui import SCREENS, TRANSFER
from queuer.domain.document import TreeDocument
from queuer.domain.queue import Policy
from queuer.kube.objects import NODES
from tests.e2e.support import wait_until
from tests.ui.browser import opened
from tests.ui.conftest import PICTURES
from tests.ui.looks import faults, settled
from tests.ui.site import Site, site
from tests.ui.test_screens import MOST_NODES

LOAD = Size(nodes=216, queues=100, jobs=500)
GPU = "nvidia.com/gpu"
MOST_DATA, MOST_SCRIPT = 300_000, 250_000


@pytest.fixture(scope="module")
def load() -> Iterator[Site]:
    """A tenth of the cluster that `make bench-ui` measures."""
    with site(LOAD, seed=7) as made:
        yield made


@pytest.fixture
def large(chromium: Browser, load: Site) -> Iterator[Page]:
    """A page of it."""
    with opened(chromium, load.url) as made:
        yield made


def test_the_first_visit_is_small(large: Page) -> None:
    settled(large, "/")
    sums = large.evaluate(TRANSFER)
    assert 0 < sums["data"] < MOST_DATA
    assert 0 < sums["script"] < MOST_SCRIPT


def test_no_screen_has_many_elements(large: Page) -> None:
    for path in SCREENS:
        settled(large, path)
        assert large.evaluate("document.querySelectorAll('*').length") < MOST_NODES, path


def test_the_last_of_many_queues_is_reached_by_one_key(large: Page) -> None:
    settled(large, "/queues")
    tree = large.get_by_role("treegrid")
    rows = int(tree.get_attribute("aria-rowcount") or 0) - 1
    assert rows > LOAD.queues
    assert tree.locator("[data-index]").count() < rows
    tree.locator("[data-index='0']").press("End")
    expect(tree.locator(f"[data-index='{rows - 1}']")).to_be_focused()


def test_a_host_is_found_by_its_name_and_told_to_who_walks_there(large: Page) -> None:
    settled(large, "/topology")
    large.get_by_label("find a host or domain").fill("n00077")
    told = large.locator(".map-told")
    expect(told).to_have_text(f"1 of {LOAD.nodes} hosts match n00077.")
    large.get_by_role("img", name="Map of").focus()
    expect(told).to_contain_text("n00077 in z00/b001/r0009: ")
    large.keyboard.press("ArrowLeft")
    expect(told).to_contain_text("n00076 in z00/b001/r0009: ")
    PICTURES.mkdir(parents=True, exist_ok=True)
    large.screenshot(path=PICTURES / "load-topology-light.png", full_page=True)
    assert faults(large) == []


def test_reserved_hosts_are_told_apart_from_used_ones_with_their_owner(large: Page) -> None:
    """On the map, in its words and in the table; both sums stand above."""
    start = "2099-01-02T03:04:05Z"
    kept = {
        "uid": "j1",
        "kind": "Job",
        "namespace": "team-b",
        "name": "train-01",
        "queue": "root.b",
        "start": start,
    }

    def reserve(route: Route) -> None:
        answer = route.fetch().json()
        for domain in answer["domains"]:
            domain |= {"used": {GPU: "1"}, "reserved": {GPU: "4"}, "free": {GPU: "3"}}
            domain["heldFor"] = [{**kept, "amounts": {GPU: "4"}}]
        route.fulfill(json={**answer, "used": "216", "reserved": "864", "free": "648"})

    large.route("**/api/v1/topology?*", reserve)
    settled(large, "/topology")
    panel = large.get_by_role("region", name="Domains")
    expect(panel.get_by_text("216 gpu used, 864 reserved, 648 free")).to_be_visible()
    large.get_by_role("img", name="Map of").focus()
    told = large.locator(".map-told")
    expect(told).to_contain_text("3 of 8 gpu free, 4 reserved; kept for team-b/train-01 from ")
    PICTURES.mkdir(parents=True, exist_ok=True)
    large.screenshot(path=PICTURES / "load-topology-reserved.png", full_page=True)
    large.get_by_role("button", name="table", exact=True).click()
    row = panel.get_by_role("grid").locator("[data-index='0']")
    expect(row).to_contain_text("team-b/train-01 from")


def test_of_more_domains_than_eyes_search_those_that_are_looked_for_are_drawn(large: Page) -> None:
    settled(large, "/topology?level=host")
    panel = large.get_by_role("region", name="Domains")
    expect(panel.get_by_role("status")).to_contain_text(f"{LOAD.nodes} domains of level host are too many")
    expect(panel.get_by_role("grid")).to_have_attribute("aria-rowcount", str(LOAD.nodes + 1))
    assert faults(large) == []
    large.get_by_label("find a host or domain").fill("n0007")
    expect(panel.get_by_role("status")).to_contain_text(f"10 of {LOAD.nodes} domains")
    expect(panel.get_by_role("img", name="Map of 10 hosts")).to_be_visible()
    large.get_by_role("button", name="Draw all").click()
    expect(panel.get_by_role("img", name=f"Map of {LOAD.nodes} hosts")).to_be_visible()
    assert "as=map" in large.url


def test_a_host_that_was_deleted_leaves_the_map(large: Page, load: Site) -> None:
    server = load.cluster.scene.server
    node = server.one(NODES, "n00215")

    async def deleted() -> None:
        server.remove(NODES, node)

    async def back() -> None:
        server.put(NODES, node)

    settled(large, "/topology")
    expect(large.get_by_role("status").first).to_contain_text("live")
    load.run(deleted())
    try:
        expect(large.get_by_role("img", name=f"Map of {LOAD.nodes - 1} hosts")).to_be_visible()
    finally:
        load.run(back())
    expect(large.get_by_role("img", name=f"Map of {LOAD.nodes} hosts")).to_be_visible()


def leaves(load: Site) -> dict[str, dict[str, Any]]:
    """What the API says of GPUs of all flavors together, by leaf."""
    with urllib.request.urlopen(f"{load.url}/api/v1/queues") as answer:
        found = [each for each in json.load(answer)["items"] if each["leaf"]]
    return {
        queue["path"]: next(of for of in queue["accounts"] if (of["resource"], of["flavor"]) == (GPU, None))
        for queue in found
    }


def starve(load: Site) -> str:
    """The leaf with the largest unused guarantee takes nothing back, and a job of it fits that guarantee."""
    unused = {path: int(of["guaranteed"]) - int(of["used"]) for path, of in leaves(load).items()}
    path = max(unused, key=lambda each: unused[each])
    patient = replace(load.cluster.tree[path], policy=Policy(reclaim=False))
    job = manifest_of(Form(pods=1, gpus=min(8, unused[path])), queue=path, priority=0)

    async def work() -> None:
        await load.cluster.scene.configure(TreeDocument(queues=(patient,)))
        load.cluster.submit(job)

    load.run(work())
    wait_until(
        lambda: leaves(load)[path]["starved"], timeout=60, describe=lambda: f"starved: {leaves(load)[path]}"
    )
    return path


def test_a_starved_queue_is_marked_and_a_full_one_is_not(large: Page, load: Site) -> None:
    hungry = starve(load)
    full = next(path for path, of in leaves(load).items() if int(of["borrowed"]))
    settled(large, "/queues")
    tree = large.get_by_role("treegrid")
    for path, wanted in ((hungry, True), (full, False)):
        large.get_by_label("Find a queue").fill(path)
        row = tree.locator("[data-index]").last
        expect(row).to_contain_text(path.rpartition(".")[2])
        expect(row.locator(".chip-starved")).to_have_count(int(wanted))
        expect(row.locator(".chip-warning, .chip-critical")).to_have_count(0)


def test_a_list_that_was_narrowed_is_named_and_found_again(large: Page) -> None:
    settled(large, "/jobs?state=Running")
    large.get_by_text("views", exact=True).click()
    views = large.get_by_role("group", name="Views")
    views.get_by_label("Name of this view").fill("what runs")
    views.get_by_role("button", name="Save").click()
    assert faults(large) == []
    settled(large, "/jobs")
    large.get_by_text("views", exact=True).click()
    views.get_by_role("button", name="what runs", exact=True).click()
    expect(large.get_by_role("button", name="Running")).to_have_attribute("aria-pressed", "true")
    assert "state=Running" in large.url
    views.get_by_role("button", name="Forget the view what runs").click()
    expect(views.get_by_role("button", name="what runs", exact=True)).to_have_count(0)


def test_where_a_shape_fits_is_one_click_away_and_in_the_table_too(large: Page) -> None:
    settled(large, "/topology?shape=1xcpu:1")
    row = large.get_by_role("row").filter(has=large.get_by_role("rowheader", name="rack", exact=True))
    fitting = row.get_by_role("cell").nth(1).inner_text()
    large.get_by_role("button", name="Show where it fits in one rack").click()
    panel = large.get_by_role("region", name="Domains")
    expect(panel).to_contain_text(f"1xcpu:1 fits in {fitting} of level rack")
    large.get_by_role("button", name="table").click()
    expect(panel.get_by_role("grid")).to_contain_text("✓ fits")
    assert {"as=table", "fit=rack", "level=rack"} <= set(large.url.split("?")[1].split("&"))


def test_the_hosts_of_a_job_are_outlined(large: Page, load: Site) -> None:
    uid = load.cluster.kubelet.running[0]
    large.goto(f"/jobs/{uid}")
    large.get_by_role("link", name="on the map").click()
    expect(large.get_by_role("region", name="Domains")).to_contain_text("outlined")
    assert f"job={uid}" in large.url


def test_domains_that_are_left_out_are_announced(large: Page) -> None:
    def fewer(route: Route) -> None:
        route.continue_(url=route.request.url.replace("limit=5000", "limit=100"))

    large.route("**/api/v1/topology?*", fewer)
    settled(large, "/topology")
    expect(large.get_by_role("region", name="Domains")).to_contain_text(
        f"{LOAD.nodes - 100} further domains are not shown"
    )


def test_the_tree_goes_back_in_time_and_returns(large: Page, load: Site) -> None:
    load.run(load.seen("SELECT count(*) FROM usage_rollup"))
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    large.goto(f"/queues?at={at}")
    expect(large.get_by_role("status").filter(has_text="not live")).to_contain_text("who was starved")
    expect(large.get_by_role("treegrid").locator("[data-index='0']")).to_contain_text("root")
    assert faults(large) == []
    expect(large.get_by_text("as of", exact=True)).to_be_visible()
    slider = large.get_by_label("as of", exact=True)
    slider.press("Home")
    nothing = large.get_by_text("Nothing is kept of this time")
    expect(nothing).to_be_visible()
    assert at not in large.url
    large.get_by_role("button", name="now", exact=True).click()
    expect(nothing).to_have_count(0)
    expect(slider).to_have_attribute("aria-valuetext", "now")
    assert "at=" not in large.url

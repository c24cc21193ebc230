"""Faults around the dashboard: each trouble has a face of its own, and the shown data stays."""

from __future__ import annotations

import json
import urllib.request
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from playwright.sync_api import Page, Route, expect

from tests.ui.browser import failing, restored
from tests.ui.jobs import Waiting
from tests.ui.looks import faults, settled
from tests.ui.site import Site

OVERVIEW = "**/api/v1/overview"
CONTROLLER = "**/api/v1/controller"
SOON = 30_000
"""Milliseconds until the lamp in the header tells that something is away: less than the 35 s after which a silent
stream alone would tell it.
"""
QUEUES = "**/api/v1/queues"
EVERYTHING = "**/api/v1/**"


def test_a_part_that_fails_breaks_alone_and_is_tried_again(page: Page) -> None:
    failing(page, QUEUES, "internal", "something went wrong here")
    page.goto("/")
    shares = page.get_by_role("region", name="Where gpu goes")
    expect(shares.get_by_role("alert")).to_contain_text("something went wrong here")
    expect(shares).to_contain_text("request r-4711")
    expect(page.get_by_role("region", name="Now")).to_contain_text("gpu used")
    restored(page)
    shares.get_by_role("button", name="Retry").click()
    expect(shares.get_by_role("link", name="root", exact=False).first).to_be_visible()


def test_one_answer_that_fails_is_told_once_and_the_rest_keeps_its_resource(page: Page) -> None:
    failing(page, OVERVIEW, "internal", "something went wrong here")
    page.goto("/")
    expect(page.get_by_role("alert")).to_have_count(1)
    expect(page.get_by_role("heading", name="Where gpu goes")).to_be_visible()
    page.goto("/queues")
    expect(page.get_by_role("columnheader", name="gpu", exact=True)).to_be_visible()


def test_a_cluster_without_a_decision_has_no_map_and_says_so_once(page: Page) -> None:
    failing(page, "**/api/v1/topology**", "not_found", "no cycle is stored yet")
    page.goto("/topology")
    expect(page.get_by_text("There is no map yet")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_an_address_with_a_wrong_moment_or_resource_says_so_and_shows_what_is(page: Page) -> None:
    settled(page, "/queues?at=garbage&resource=nope")
    expect(page.get_by_text("garbage is no moment.")).to_be_visible()
    expect(page.get_by_text("No resource here is called nope.")).to_be_visible()
    expect(page.get_by_role("columnheader", name="gpu", exact=True)).to_be_visible()
    expect(page.get_by_text("Invalid")).to_have_count(0)
    page.get_by_role("button", name="Forget it").click()
    assert "at=" not in page.url


def test_nothing_is_called_none_while_it_loads(page: Page) -> None:
    held: list[Route] = []
    page.route(OVERVIEW, lambda route: held.append(route))
    page.goto("/")
    page.wait_for_selector(".skeleton i")
    text = page.locator("main").inner_text()
    assert "Nothing needs you" not in text
    assert "No job waits" not in text
    assert not any(line.strip() == "0" for line in text.splitlines())
    for route in held:
        route.continue_()
    page.unroute(OVERVIEW)
    expect(page.get_by_role("region", name="Now")).to_contain_text("gpu used")


def test_a_server_that_is_away_leaves_what_was_shown_and_comes_back_by_itself(page: Page, demo: Site) -> None:
    page.goto("/queues?find=g00")
    rows = page.get_by_role("treegrid").get_by_role("row")
    expect(rows.filter(has_text="g00")).to_have_count(1)
    shown = rows.count()
    expect(page.get_by_role("status")).to_contain_text("live")
    demo.run(demo.pause())
    try:
        expect(page.get_by_role("status")).to_contain_text("no server", timeout=SOON)
        expect(page.get_by_text("The server cannot be reached.")).to_contain_text("Showing data from")
        expect(page.locator("main")).to_have_class("aged")
        assert rows.count() == shown
    finally:
        demo.run(demo.resume())
    expect(page.get_by_role("status")).to_contain_text("live")
    expect(page.locator("main")).not_to_have_class("aged")
    assert "find=g00" in page.url
    assert rows.count() == shown


def test_a_server_that_hangs_is_not_called_live(page: Page) -> None:
    """It takes the connection, and says nothing."""
    page.clock.install()
    page.route("**/api/v1/stream*", lambda _: None)
    page.goto("/queues")
    expect(page.get_by_role("status")).to_contain_text("connecting")
    page.clock.fast_forward(40_000)
    expect(page.get_by_role("status")).to_contain_text("reconnecting")


def test_an_address_that_is_no_screen_says_where_to_go(page: Page) -> None:
    answer = page.goto("/quues")
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page")
    expect(page.locator("main").get_by_role("link", name="queues")).to_be_visible()


def controller_is(page: Page, state: str, text: str) -> None:
    """Have the server say so of the controller from now on."""

    def say(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "state": state, "text": text})

    page.route(CONTROLLER, say)


def test_kubernetes_that_is_away_is_said_above_all_screens(page: Page) -> None:
    text = "Kubernetes has not answered the controller since noon"
    controller_is(page, "away", text)
    page.goto("/jobs")
    expect(page.locator(".banner", has_text=text)).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("no Kubernetes")


def test_no_lamp_is_green_while_nobody_decides_and_it_says_since_when_and_what_to_do(page: Page) -> None:
    """On every screen, in the reader's own time, and for as long as it is so."""
    settled(page, "/jobs")
    lamp = page.get_by_role("status").get_by_role("button")
    expect(lamp).to_have_text("live")
    expect(lamp.locator(".dot-good")).to_be_visible()
    at = datetime(2020, 3, 4, 14, 7, 31, tzinfo=UTC)
    controller_is(page, "stale", f"the controller has not been heard of since {at:%Y-%m-%d %H:%M:%S} UTC")
    expect(lamp).to_have_text("nobody decides", timeout=SOON)
    expect(lamp.locator(".dot-bad")).to_be_visible()
    own = page.evaluate("at => new Date(at).toLocaleTimeString([], {hour12: false})", at.isoformat())
    expect(page.locator(".banner", has_text="has not been heard of")).to_contain_text(own)
    page.get_by_role("link", name="Topology").click()
    expect(lamp).to_have_text("nobody decides")
    lamp.click()
    sheet = page.get_by_role("dialog", name="Health").get_by_role("listitem")
    expect(sheet).to_have_count(4)
    expect(sheet.first).to_contain_text("controller")
    expect(sheet.first).to_contain_text("since")
    expect(sheet.first.locator("code")).to_have_text("queuer doctor")
    assert faults(page) == []
    restored(page)
    expect(page.get_by_role("status")).to_contain_text("live", timeout=SOON)


def test_a_database_that_is_away_is_told_from_a_server_that_is(page: Page) -> None:
    settled(page, "/queues")
    failing(page, CONTROLLER, "database_unavailable", "the database does not answer")
    expect(page.get_by_role("status")).to_contain_text("no database", timeout=SOON)
    expect(page.locator(".banner", has_text="the database does not answer")).to_be_visible()
    restored(page)
    page.route(CONTROLLER, lambda _: None)
    expect(page.get_by_role("status")).to_contain_text("no server", timeout=SOON)


def test_a_login_that_has_ended_is_said_once_and_nothing_is_lost(page: Page, demo: Site) -> None:
    page.goto("/jobs")
    grid = page.get_by_role("grid", name="Jobs")
    expect(grid.get_by_role("row").nth(1)).to_be_visible()
    expect(page.get_by_role("status").first).to_contain_text("live")
    failing(page, EVERYTHING, "unauthenticated", "the token has expired")
    expect(page.get_by_role("status").first).to_contain_text("not logged in", timeout=SOON)
    demo.run(demo.submit())
    expect(page.get_by_text("Your login has ended.")).to_contain_text("was read before")
    expect(page.locator(".aged").get_by_role("grid", name="Jobs")).to_be_visible()
    page.get_by_role("button", name="Running").click()
    link = page.get_by_role("link", name="Log in again")
    expect(link).to_have_attribute("href", "/login?next=%2Fjobs%3Fstate%3DRunning")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_role("region", name="Jobs")).to_contain_text("This was not read")
    restored(page)
    expect(link).to_have_count(0)


def test_a_queue_that_does_not_exist_is_told_with_the_nearest(page: Page) -> None:
    page.goto("/queues/root.g00.q000")
    expect(page.get_by_role("alert")).to_contain_text("did you mean root.g00.q000")


def test_no_job_and_no_queue_shows_what_to_do_first(page: Page) -> None:
    def empty(route: Route) -> None:
        answer = route.fetch().json()
        changed = {
            "counts": {},
            "queues": 1,
            "attention": [],
            "reasons": [],
            "capacity": [],
            "series": [],
            "at": [],
        }
        route.fulfill(json={**answer, **changed})

    page.route(OVERVIEW, empty)
    page.goto("/")
    attention = page.get_by_role("region", name="Attention")
    expect(attention.get_by_text("kubectl label namespace default")).to_be_visible()
    expect(attention.get_by_role("button", name="copy command").first).to_be_visible()


def test_a_stream_that_is_refused_says_to_log_in_again_and_keeps_what_was_shown(
    page: Page, demo: Site
) -> None:
    settled(page, "/jobs")
    expect(page.get_by_role("status").first).to_contain_text("live")
    first = page.get_by_role("grid", name="Jobs").locator("[data-index='0']").get_by_role("link").first
    shown = first.inner_text()
    failing(page, EVERYTHING, "unauthenticated", "the session has ended")
    demo.run(demo.pause())
    demo.run(demo.resume())
    banner = page.get_by_text("Your login has ended.")
    expect(banner).to_be_visible()
    # It stays said: the page asks again by itself, and is refused again.
    with page.expect_response("**/api/v1/me"):
        pass
    expect(banner).to_be_visible()
    expect(first).to_have_text(shown)
    restored(page)
    expect(banner).to_be_hidden()
    expect(page.get_by_role("status").first).to_contain_text("live")


def post(demo: Site, path: str, body: object | None) -> Any:
    """The API's answer; a body is posted."""
    asked = urllib.request.Request(f"{demo.url}/api/v1/{path}")
    if body is not None:
        asked.data = json.dumps(body).encode()
        asked.add_header("Content-Type", "application/json")
        asked.add_header("Idempotency-Key", uuid4().hex)
    with urllib.request.urlopen(asked) as answer:
        return json.load(answer)


def applied(demo: Site, wish: dict[str, Any], *, reason: str) -> Any:
    """A changeset, planned and applied."""
    planned = post(demo, "changesets", wish)
    return post(demo, f"changesets/{planned['id']}:apply", {"reason": reason})


def test_a_queue_that_was_deleted_shows_what_was_changed(page: Page, demo: Site) -> None:
    path = "root.g00.passing"
    tree = post(demo, "queue-tree", None)
    made = applied(demo, {**tree, "queues": {path: {}}}, reason="for an experiment")
    applied(demo, {"revert": made["revision"]}, reason="the experiment is over")
    page.goto(f"/queues/{path}")
    expect(page.get_by_role("heading", level=1)).to_have_text(path)
    changes = page.get_by_role("region", name="What was changed")
    expect(changes).to_contain_text("for an experiment")
    expect(changes).to_contain_text("the experiment is over")


def test_what_one_may_not_do_names_the_right_that_is_missing(page: Page, waiting: Waiting) -> None:
    detail = (
        "eve lacks the right to update queuer.dev/workloads in namespace q0000; an admin of it can grant it"
    )
    items = [{"uid": waiting.lost, "command": None, "refused": {"code": "forbidden", "detail": detail}}]
    page.route("**/api/v1/workloads:hold?**", lambda route: route.fulfill(json={"items": items}))
    page.goto(f"/jobs/{waiting.lost}")
    page.get_by_role("button", name="Hold").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Hold").click()
    expect(dialog.get_by_role("status")).to_have_text(f"refused: {detail}")


def test_no_menu_leads_to_a_closed_door(page: Page) -> None:
    """A tenant sees neither decisions nor audit nor the editor, by mouse, by keys or as a tab of a queue."""

    def tenant(route: Route) -> None:
        none = {"administers": [], "mayChange": False, "readsCycles": False, "readsAudit": False}
        route.fulfill(json={**route.fetch().json(), **none})

    page.route("**/api/v1/me", tenant)
    settled(page, "/queues/root")
    menu = page.get_by_role("navigation", name="Screens").get_by_role("link")
    expect(menu).to_have_text(["Overview", "Queues", "Jobs", "Topology", "Fair share", "Events"])
    expect(page.get_by_role("tab", name="Changes")).to_have_count(0)
    for key in ("g", "a"):
        page.keyboard.press(key)
    assert page.url.endswith("/queues/root")
    settled(page, "/events")
    expect(page.locator("main").get_by_role("link", name="Audit")).to_have_count(0)
    settled(page, "/edit")
    expect(page.get_by_text("You may change no queue")).to_be_visible()
    expect(page.get_by_role("button", name="Preview")).to_have_count(0)


def test_who_administers_a_part_of_the_tree_edits_that_part(page: Page) -> None:
    def lead(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "administers": ["root.g00"]})

    page.route("**/api/v1/me", lead)
    page.goto("/edit")
    expect(page.get_by_text("Quota of root.g00 and below")).to_be_visible()
    expect(page.get_by_role("textbox").first).to_be_visible()
    settled(page, "/edit?root=root")
    fixed = page.get_by_role("row").filter(has_text="root.g01.q0001")
    expect(fixed).to_be_visible()
    expect(fixed.get_by_role("textbox")).to_have_count(0)
    expect(
        page.get_by_role("row").filter(has_text="root.g00.q0000").get_by_role("textbox")
    ).not_to_have_count(0)

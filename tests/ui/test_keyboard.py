"""Every task without a mouse: each is done by keys alone, and the focus is always seen and never lost."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.ui.jobs import Waiting
from tests.ui.looks import settled

GPU = "nvidia.com/gpu"
_FOCUS = """() => {
  const at = document.activeElement;
  if (!at || at === document.body) return null;
  const box = at.getBoundingClientRect();
  const middle = document.elementFromPoint(box.left + Math.min(box.width, 40) / 2, box.top + box.height / 2);
  const label = at.closest('label');
  const style = getComputedStyle(at);
  return {
    words: (at.getAttribute('aria-label') || at.innerText || at.tagName).slice(0, 60),
    outlined: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1,
    uncovered: !!middle && (at.contains(middle) || middle.contains(at) || !!label?.contains(middle)),
  };
}"""


def reach(page: Page, target: Locator, *, most: int = 80) -> None:
    """Tab until the target has the focus; each stop on the way is seen and uncovered."""
    for _ in range(most):
        page.keyboard.press("Tab")
        at = page.evaluate(_FOCUS)
        if at is not None:
            assert at["outlined"], f"no outline on {at['words']}"
            assert at["uncovered"], f"{at['words']} has the focus below something else"
        if target.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"not reached by {most} tabs: {target}")


def go(page: Page, key: str, heading: str) -> None:
    """Go to a screen by `g` and its letter: its heading has the focus then."""
    page.keyboard.press("g")
    page.keyboard.press(key)
    expect(page.get_by_role("heading", level=1, name=heading)).to_be_focused()


def test_a_job_is_found_read_held_and_asked_about(page: Page, waiting: Waiting) -> None:
    settled(page, "/")
    go(page, "j", "Jobs")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="name", exact=True)).to_be_focused()
    page.keyboard.type("arg")
    page.wait_for_url("**name=arg")
    rows = page.get_by_role("grid", name="Jobs").locator("[data-index]")
    large = rows.filter(has_text="large")
    expect(rows).to_have_count(1)
    page.keyboard.press("Enter")
    expect(large).to_be_focused()
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_contain_text("large")
    expect(heading).to_be_focused()
    expect(page.get_by_test_id("reason")).to_contain_text("ExceedsMaxQuota")

    hold = page.get_by_role("button", name="Hold", exact=True)
    reach(page, hold)
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Reason, for the audit")).to_be_focused()
    page.keyboard.type("too large")
    page.keyboard.press("Enter")
    expect(dialog.get_by_text("done: held")).to_be_visible()
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    release = page.get_by_role("button", name="Release", exact=True)
    expect(release).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(dialog.get_by_text("done: released")).to_be_visible()
    page.keyboard.press("Escape")

    reach(page, page.get_by_label("pods", exact=True))
    page.keyboard.press("Control+A")
    page.keyboard.type("401")
    page.keyboard.press("Enter")
    expect(page.get_by_text("It could never start.")).to_be_visible()


def test_rows_are_reached_at_once_and_found_again_on_the_way_back(page: Page) -> None:
    settled(page, "/jobs")
    grid = page.get_by_role("grid", name="Jobs")
    expect(grid.locator("[data-index]").first).to_be_visible()
    for _ in range(6):
        page.keyboard.press("j")
    row = grid.locator("[data-index='5']")
    expect(row).to_be_focused()
    name = row.get_by_role("link").first.inner_text()
    page.keyboard.press("Space")
    expect(row).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(row).to_have_attribute("aria-selected", "false")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    page.go_back()
    expect(grid.locator("[data-index]").filter(has_text=name).first).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("x")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(grid.locator("[data-index]:focus")).to_have_count(1)
    assert page.url.endswith("/jobs")


def test_a_queue_is_opened_and_its_parts_walked(page: Page, waiting: Waiting) -> None:
    settled(page, "/")
    go(page, "q", "Queues")
    tree = page.get_by_role("treegrid")
    row = tree.locator("[data-index]").filter(has_text=waiting.queue.rpartition(".")[2])
    reach(page, tree.locator("[data-index='0']"))
    for _ in range(int(row.get_attribute("data-index") or 0)):
        page.keyboard.press("ArrowDown")
    expect(row).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    reach(page, page.get_by_role("tab", name="Pending"))
    for name in ("Running", "History", "Policy", "Changes"):
        page.keyboard.press("ArrowRight")
        tab = page.get_by_role("tab", name=name)
        expect(tab).to_be_focused()
        expect(tab).to_have_attribute("aria-selected", "true")
    reach(page, page.get_by_role("link", name="Edit quota", exact=True), most=120)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Edit quotas")).to_be_focused()


def test_quota_is_changed_and_the_change_taken_back(page: Page, waiting: Waiting) -> None:
    settled(page, f"/edit?root={waiting.queue}")
    field = page.get_by_label(f"guaranteed {GPU} of {waiting.queue}")
    before = int(field.input_value())
    for amount in (before - 1, before):
        reach(page, field)
        page.keyboard.press("Control+A")
        page.keyboard.type(str(amount))
        reach(page, page.get_by_role("button", name="Preview"))
        page.keyboard.press("Enter")
        title = page.get_by_role("heading", level=1, name="This is planned")
        expect(title).to_be_focused()
        reach(page, page.get_by_label("Reason"))
        page.keyboard.type("by keys alone")
        name = page.get_by_label("Type the name")
        if name.count():  # it is asked for where the cut hits work that runs just now
            reach(page, name)
            page.keyboard.type(waiting.queue)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1, name="This was applied")).to_be_focused()
        page.goto(f"/edit?root={waiting.queue}")
        expect(field).to_have_value(str(amount))


def test_updates_are_paused_and_keys_are_switched_off(page: Page) -> None:
    settled(page, "/")
    reach(page, page.get_by_role("button", name="Pause"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Resume")).to_be_focused()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    switch = dialog.get_by_label("single-key shortcuts")
    expect(switch).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(dialog).to_be_visible()
    page.keyboard.press("Space")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Resume")).to_be_focused()
    page.keyboard.press("?")
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_attached()
    expect(dialog).to_have_count(0)


def test_a_dialog_keeps_the_focus(page: Page, waiting: Waiting) -> None:
    settled(page, f"/jobs/{waiting.lost}")
    hold = page.get_by_role("button", name="Hold", exact=True)
    hold.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    inside = "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate(inside)
    page.get_by_role("button", name="Cancel").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(hold).to_be_focused()


def test_rows_are_walked_without_being_covered(page: Page) -> None:
    settled(page, "/jobs")
    page.get_by_role("grid", name="Jobs").locator("[data-index='0']").focus()
    for key in ["j"] * 40 + ["k"] * 40:
        page.keyboard.press(key)
        page.wait_for_function("document.activeElement?.dataset.index !== undefined")
        at = page.evaluate(_FOCUS)
        assert at["uncovered"], f"after {key}: {at['words']} is covered"


def test_every_screen_is_tabbed_through_and_the_focus_seen(page: Page) -> None:
    for path in ("/", "/topology", "/cycles", "/fair-share", "/events", "/audit", "/me"):
        settled(page, path)
        for _ in range(60):
            page.keyboard.press("Tab")
            at = page.evaluate(_FOCUS)
            if at is None:
                break
            assert at["outlined"], f"{path}: no outline on {at['words']}"
            assert at["uncovered"], f"{path}: {at['words']} has the focus below something else"

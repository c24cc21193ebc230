"""The story on three people's screens: admin, alice of team-a, bob of team-b.

It is played on a cluster with all its parts. `follow` looks after each beat; the text of a screen must say what the
API, or the command line, says of the same.
The admin's part of the story, to shorten team-b's protection, is done here by the form for quotas.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from queuer.local import stack
from queuer.local.cluster import Cluster
from queuer.local.demo import ALICE, BOB, Beat
from queuer.local.fleet import Fleet
from queuer.local.identities import ADMIN
from queuer.local.manifests import GANG, GPU, PROTECTED, RESEARCH, TEAM_A, TEAM_B, UNPROTECTED
from queuer.local.progress import Reporter
from queuer.local.stage import Stage
from tests.e2e.support import wait_until
from tests.ui.browser import opened

REASON = "team-a is owed its guarantee"


@contextmanager
def whole(fleet: Fleet) -> Iterator[Cluster]:
    """A local cluster with all its parts, that is gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="queuer-story-"))
    directory.chmod(0o755)  # the account of PostgreSQL must enter it
    try:
        yield stack.up(stack.Options(dir=directory / "local", fleet=fleet), reporter=Reporter())
    finally:
        if (directory / "local" / "state.json").exists():
            stack.reset(Cluster.load(directory / "local"))
        shutil.rmtree(directory)


@dataclass(slots=True, kw_only=True)
class Screens:
    """Three browsers that are logged in by the tokens of these three, each with a page of its own."""

    stage: Stage
    admin: Page
    alice: Page
    bob: Page
    victims: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    @contextmanager
    def opened(cls, stage: Stage, browser: Browser, **options: Any) -> Iterator[Screens]:
        """Log in by pasting each one's token. `options`: of each browser's context."""
        with ExitStack() as exits:
            url = stage.cluster.queuer_url
            pages = [exits.enter_context(opened(browser, url, **options)) for _ in range(3)]
            for page, name in zip(pages, (ADMIN, ALICE, BOB), strict=True):
                page.goto("/jobs")
                page.get_by_label("A token of the cluster").fill(stage.cluster.token(name))
                page.get_by_role("button", name="Log in").click()
                expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
            admin, alice, bob = pages
            yield cls(stage=stage, admin=admin, alice=alice, bob=bob)

    def follow(self, beat: Beat) -> None:
        """Look at what this beat has made true."""
        looks: dict[Beat, Callable[[], None]] = {
            Beat.BORROWED: self.borrowed,
            Beat.WAITS: self.waits,
            Beat.RECLAIMED: self.reclaimed,
            Beat.LANDED: self.landed,
            Beat.BACK: self.back,
        }
        if beat in looks:
            looks[beat]()

    def borrowed(self) -> None:
        """The bar of team-b is hatched beyond its guarantee; each tenant sees its own jobs, the admin all."""
        self.admin.goto(f"/queues?resource={GPU}")
        row = self.admin.get_by_role("treegrid").get_by_role("row").filter(has_text="team-b")
        amount = next(a["borrowed"] for a in self._queue(TEAM_B)["accounts"] if a["resource"] == GPU)
        expect(row).to_contain_text(f"+{amount}")
        bar = row.get_by_role("img")
        expect(bar).to_have_accessible_name(re.compile(f"{amount} borrowed, 0 lent"))
        expect(bar.locator("rect[fill^='url(']")).to_have_count(1)
        for page, seen in ((self.admin, True), (self.bob, True), (self.alice, False)):
            page.goto("/jobs?state=Running")
            if seen:
                expect(page.get_by_role("link", name="train-01").first).to_be_visible()
            else:
                expect(page.get_by_text("No job matches state=Running.")).to_be_visible()
        self.alice.goto("/me")
        expect(self.alice.get_by_role("main")).to_contain_text("no queue; ask who administers one")

    def waits(self) -> None:
        """The banner says what `queuer why` says; less would start; the admin lifts the protection."""
        uid = self._gang()["uid"]
        self.alice.goto(f"/jobs/{uid}")
        banner = self.alice.get_by_label("Why", exact=True)
        expect(banner.get_by_test_id("reason")).to_be_visible()
        shown = banner.get_by_test_id("reason").inner_text()
        assert f"WAIT  {shown}" in self.stage.queuer("why", f"job/{GANG}", "-n", "team-a").splitlines()
        self.bob.goto(f"/jobs/{uid}")
        expect(self.bob.get_by_text("Jobs of namespaces that you may not read")).to_be_visible()
        expect(self.bob.get_by_role("main")).not_to_contain_text(GANG)
        expect(self.what_if(pods=8, level="rack")).to_contain_text("It would wait.")
        expect(self.what_if(pods=3, level="rack")).to_contain_text("It would start now.")
        expect(self.what_if(pods=8, level="")).to_contain_text("It would start now.")
        self.admin.goto("/")
        expect(self.admin.get_by_role("region", name="Attention")).to_contain_text(f"{TEAM_A} is starved of")
        self.unprotect()

    def what_if(self, *, pods: int, level: str) -> Locator:
        """Ask on the gang's screen whether it would start so."""
        form = self.alice.get_by_role("region", name="What if")
        form.get_by_label("pods", exact=True).fill(str(pods))
        form.get_by_label("in one").fill(level)
        with self.alice.expect_response("**/api/v1/simulations"):
            form.get_by_role("button", name="Would it start?").click()
        return form

    def unprotect(self) -> None:
        """As the admin: shorten `minRuntime`, see for whom that counts, give a reason, apply."""
        page = self.admin
        page.goto(f"/edit?root={RESEARCH}&as=text")
        document = page.get_by_label("QueueTree document")
        written = document.input_value()
        assert f"minRuntime: {PROTECTED}" in written
        document.fill(written.replace(PROTECTED, UNPROTECTED))
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("heading", name="This is planned")).to_be_visible()
        expect(page.get_by_role("region", name="What changes")).to_contain_text(
            f"{PROTECTED} -> {UNPROTECTED}"
        )
        means = page.get_by_role("region", name="What it means")
        expect(means).to_contain_text("1 job would start, some after evictions")
        expect(means.get_by_role("link", name=GANG)).to_be_visible()
        expect(means).to_contain_text("1 job would be evicted for them")
        page.get_by_label("Reason").fill(REASON)
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_role("heading", name="This was applied")).to_be_visible()

    def reclaimed(self) -> None:
        """Each evicted job says for whom it left; the gang's page, open since it waited, has followed."""
        expect(self.alice.get_by_label("Why", exact=True)).to_contain_text(re.compile("Running|Succeeded"))
        self.victims = [
            dict(w) for w in self.stage.live(BOB).values() if w["attempt"] > 1 or w["state"] == "Evicting"
        ]
        assert self.victims
        for victim in self.victims:
            self.bob.goto(f"/jobs/{victim['uid']}")
            banner = self.bob.get_by_label("Why", exact=True)
            expect(banner).to_contain_text(f"evicted for a job of {TEAM_A}")
            expect(banner).to_contain_text(f"reclaim at {RESEARCH}")
        self.admin.goto("/audit")
        expect(self.admin.get_by_role("main")).to_contain_text(REASON)

    def landed(self) -> None:
        """Its life goes through Placing to Running, and its hosts are one rack's."""
        placed = self.alice.get_by_role("region", name="Placement").get_by_role("listitem")
        expect(placed).to_have_count(8)
        rack_of = self.stage.rack_of_node()
        assert len({rack_of[host] for host in placed.all_inner_texts()}) == 1
        timeline = self.alice.get_by_role("region", name="Timeline")
        timeline.get_by_text("as a table").click()

        def lived() -> list[str]:
            return [cell for cell in timeline.get_by_role("cell").all_inner_texts() if cell in _STATES]

        wait_until(
            lambda: lived()[:4] == ["Queued", "Admitted", "Placing", "Running"], timeout=20,
            describe=lambda: f"the timeline has its states: {lived()}",
        )  # fmt: skip

    def back(self) -> None:
        """The evicted job runs anew, and its page says so without a reload."""
        expect(self.bob.get_by_label("Why", exact=True)).to_contain_text("All its pods run")
        expect(self.bob.get_by_role("main")).to_contain_text("attempt 2")

    def _gang(self) -> dict[str, Any]:
        return dict(self.stage.workload(ALICE, GANG) or {})

    def _queue(self, path: str) -> dict[str, Any]:
        return dict(self.stage.get(f"/queues/{path}"))


_STATES = ("Queued", "Admitted", "Placing", "Running", "Succeeded")

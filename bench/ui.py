"""What the dashboard costs a browser on a large cluster, and how smooth it is: `python -m bench.ui --help`.

A real Chromium looks at the cluster of `bench.load` while jobs end and come each second. One JSON object; a picture of
each screen, light and dark.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from playwright.async_api import Browser, Page, async_playwright, expect

from bench import load
from bench.api import churning
from bench.instances import node_at
from bench.load import Cluster, Size, filled
from bench.scene import scene
from queuer.kube.objects import NODES

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
SCREENS = (
    "/", "/queues", "/jobs", "/topology", "/topology?as=table&level=host", "/cycles", "/fair-share", "/edit",
    "/events", "/audit", "/me",
)  # fmt: skip
SCROLLED = {
    "jobs": ("/jobs", ".table-frame"),
    "topology": ("/topology?as=map", ".map"),
    "tree": ("/queues", ".tree"),
}
"""What is scrolled for the frames a second, and the element that moves."""
# Scrolls down and up again, a step a frame; answers frames a second.
_SCROLL = """([selector, seconds]) => new Promise((done) => {
    const frame = document.querySelector(selector);
    const begin = performance.now();
    let frames = 0, step = 60;
    const next = (now) => {
        if (now - begin >= seconds * 1000) return done(frames / ((now - begin) / 1000));
        frames += 1;
        const before = frame.scrollTop;
        frame.scrollTop += step;
        if (frame.scrollTop === before) step = -step;
        requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
})"""
_WATCH = """window.longest = 0; new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
}).observe({type: "longtask"})"""
# Of the answers so far: bytes on the wire, of scripts and of everything else that is no style.
TRANSFER = """() => performance.getEntriesByType("resource").reduce((sums, entry) => {
    const kind = entry.name.endsWith(".js") ? "script" : entry.name.includes("/api/") ? "data" : "other";
    return {...sums, [kind]: (sums[kind] ?? 0) + entry.transferSize};
}, {})"""


async def measured(size: Size, *, seed: int, seconds: float, pictures: Path) -> dict[str, Any]:
    """All figures. `seconds`: how long the page is watched for long tasks. `pictures`: the directory for them."""
    async with scene() as at:
        at.environment["QUEUER_AUTH"] = "none"
        cluster = await filled(at, size, seed=seed)
        api = await at.start("api")
        await at.phase(api, "ok")
        async with churning(cluster), async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=chromium(), args=FLAGS)
            url = f"http://127.0.0.1:{at.ports[api.pid]}"
            found = await looked_at(browser, url, seconds=seconds)
            found |= await found_and_gone(browser, url, cluster)
            await pictured(browser, url, cluster, pictures)
            return found


def chromium() -> str:
    """The browser of this machine. Raises SystemExit where there is none."""
    program = os.environ.get("QUEUER_CHROMIUM") or shutil.which("chromium")
    if program is None:
        raise SystemExit("no Chromium is installed: make browser")
    return program


async def looked_at(browser: Browser, url: str, *, seconds: float) -> dict[str, Any]:
    """The figures of a site: the first visit with a cold cache, each screen, scrolling, and a while of looking on."""
    page = await browser.new_page(base_url=url, viewport={"width": 1440, "height": 900})
    found = await first_visit(page)
    print(found, file=sys.stderr)
    sizes = {path: await nodes(page, path) for path in SCREENS}
    print(sizes, file=sys.stderr)
    fps = {name: await scrolled(page, path, element) for name, (path, element) in SCROLLED.items()}
    tasks = {path: await longest_task(page, path, seconds=seconds / 2) for path in ("/", "/queues")}
    return {
        **found,
        "fps": min(fps.values()), "dom_nodes": max(sizes.values()), "long_task_ms": max(tasks.values()),
        "fps_of": fps, "long_task_of": tasks,
    }  # fmt: skip


async def found_and_gone(browser: Browser, url: str, cluster: Cluster) -> dict[str, float]:
    """Seconds until the name of a host is told, a job's hosts are outlined, and a node that was deleted has gone."""
    page = await browser.new_page(base_url=url, viewport={"width": 1440, "height": 900})
    name, domains = node_at(0, used=0).node.name, page.get_by_role("region", name="Domains")
    told = {}
    await page.goto("/topology")
    await settled(page)
    began = perf_counter()
    await page.get_by_label("find a host or domain").fill(name)
    await expect(domains).to_contain_text(f"hosts match {name}", timeout=60_000)
    told["search_s"] = perf_counter() - began
    began = perf_counter()
    await page.goto(f"/topology?job={cluster.kubelet.running[-1]}")
    await expect(domains).to_contain_text("outlined", timeout=60_000)
    told["outline_s"] = perf_counter() - began
    await page.goto("/topology?as=map")
    drawn = page.get_by_role("img", name="Map of")
    await settled(page)
    count = int(str(await drawn.get_attribute("aria-label")).split()[2])
    began = perf_counter()
    cluster.scene.server.remove(NODES, cluster.scene.server.one(NODES, name))
    await expect(page.get_by_role("img", name=f"Map of {count - 1} hosts")).to_be_visible(timeout=60_000)
    told["node_gone_s"] = perf_counter() - began
    await page.close()
    return {key: round(value, 1) for key, value in told.items()}


async def pictured(browser: Browser, url: str, cluster: Cluster, directory: Path) -> None:
    """Keep what one sees of each screen, to be looked at, in a directory that there is."""
    leaf = next(queue.path for queue in cluster.tree if cluster.tree.is_leaf(queue.path))
    places = {path.strip("/") or "overview": path for path in SCREENS if "?" not in path}
    places |= {
        "topology-map": "/topology?as=map",
        "queue": f"/queues/{leaf}",
        "job": f"/jobs/{cluster.kubelet.running[-1]}",
    }
    for colours in ("light", "dark"):
        context = await browser.new_context(
            base_url=url, viewport={"width": 1440, "height": 900}, color_scheme=colours
        )
        page = await context.new_page()
        for name, path in places.items():
            await page.goto(path)
            await settled(page)
            await page.screenshot(path=directory / f"load-{name}-{colours}.png")
        await context.close()


async def first_visit(page: Page) -> dict[str, float]:
    """Seconds until the first panel shows figures, and compressed kilobytes of data and scripts until all has come."""
    await page.goto("/", wait_until="commit")
    await page.wait_for_selector(".strip b")
    paint = await page.evaluate("performance.now()")
    await settled(page)
    sums = await page.evaluate(TRANSFER)
    return {
        "paint_s": round(paint / 1000, 2),
        "initial_kb": round(sums["data"] / 1000, 1),
        "script_kb": round(sums["script"] / 1000, 1),
    }


async def settled(page: Page) -> None:
    """Wait until no part of the screen waits for its answer."""
    await page.wait_for_selector("main h1, main h2", state="attached")
    await expect(page.locator("[aria-busy=true], .skeleton")).to_have_count(0, timeout=60_000)


async def nodes(page: Page, path: str) -> int:
    """Elements of a screen."""
    await page.goto(path)
    await settled(page)
    return int(await page.evaluate("document.querySelectorAll('*').length"))


async def scrolled(page: Page, path: str, element: str, *, seconds: float = 5.0) -> float:
    """Frames a second while an element is scrolled."""
    await page.goto(path)
    await settled(page)
    await page.wait_for_selector(element)
    return round(float(await page.evaluate(_SCROLL, [element, seconds])), 1)


async def longest_task(page: Page, path: str, *, seconds: float) -> float:
    """Milliseconds of the longest task while somebody only looks on."""
    await page.goto(path)
    await settled(page)
    await page.wait_for_timeout(2000)
    await page.evaluate(_WATCH)
    await page.wait_for_timeout(1000 * seconds)
    return float(round(await page.evaluate("window.longest")))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = load.parser("bench.ui", __doc__, seconds=30.0, of="of looking on")
    made.add_argument(
        "--pictures", type=Path, default=Path(".cache/ui"), help="directory for the screenshots"
    )
    return made


def main() -> None:
    """Print the figures."""
    given = parser().parse_args()
    given.pictures.mkdir(parents=True, exist_ok=True)
    found = asyncio.run(
        measured(load.size_of(given), seed=given.first, seconds=given.seconds, pictures=given.pictures)
    )
    print(json.dumps(found, indent=None if given.json else 1))


if __name__ == "__main__":
    main()

"""Commands on the pages do what the pages say, on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.conftest import ROOT, Place
from tests.docs.shell import Shell, type_page
from tests.docs.snippets import Command, File, needs, same, steps
from tests.e2e.conftest import optional

PORT = "http://127.0.0.1:8787"
ELSEWHERE = {ROOT / "docs" / "first-steps.md"}
"""Typed by tests/e2e/test_first_steps.py, on a cluster without Queuer."""
PAGES = [
    page
    for page in sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - ELSEWHERE)
    if any(isinstance(step, Command) for step in steps(page.read_text()))
]
LONGEST = 60
"""Lines of a how-to page, manifests included."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test a page: of optional parts where these run, which `make conformance` sees to."""
    if "page" in metafunc.fixturenames:
        there = optional(metafunc.config.getoption("--kinds"))
        pages = [page for page in PAGES if needs(page.read_text()) <= there]
        metafunc.parametrize("page", pages, ids=[str(page.relative_to(ROOT)) for page in pages])


def test_a_page_does_what_it_says(page: Path, place: Place, tmp_path: Path) -> None:
    place.clean()
    work = tmp_path / "work"
    work.mkdir()
    for shared in ("tests", "bench"):  # examples of the simulator are those of this checkout
        (work / shared).symlink_to(ROOT / shared)
    token = place.cluster.token("admin")
    (tmp_path / ".curlrc").write_text(f'header = "Authorization: Bearer {token}"\n')
    shell = Shell(work, place.environment(tmp_path))
    try:
        text = page.read_text().replace(PORT, place.cluster.queuer_url)
        type_page(text, shell, work, become=place.become)
    finally:
        shell.close()


@pytest.mark.parametrize(
    ("shown", "real", "equal"),
    [
        ("a  b", "a b\n", True),
        ("job  9s  cycle 4, 2s ago", "job 12m cycle 17, 1s ago", True),
        ("cycle 4, 2s ago", "cycle 17, 1s ago (on record: 16)", True),
        ("WAIT … gpu", "WAIT x\ny gpu", True),
        ("WAIT … gpu", "CHANGE gpu", False),
        ("8 pods", "9 pods", False),
        ("18:43:07  seen", "09:01:59  seen", True),
    ],
)
def test_output_is_compared_by_the_rules(shown: str, real: str, equal: bool) -> None:
    assert same(shown, real) is equal


def test_steps_are_read_from_a_page() -> None:
    page = "```yaml\n# a.yaml\nx: 1\n```\n<!-- as alice -->\n```console\n$ cat \\\n    a.yaml\nx: 1\n$ false\n```\n"
    hidden = "<!-- not run: for reading -->\n```console\n$ rm -r /\n```\n"
    file, cat, false = steps(page + hidden)
    assert isinstance(file, File)
    assert isinstance(cat, Command)
    assert isinstance(false, Command)
    assert (file.name, cat.text, cat.output, cat.user) == ("a.yaml", "cat \\\n    a.yaml", "x: 1", "alice")
    assert (false.text, false.output) == ("false", "")


def test_how_to_pages_are_short_and_typed() -> None:
    pages = sorted((ROOT / "docs" / "howto").iterdir())
    assert set(pages) <= set(PAGES)
    long = {page.name: n for page in pages if (n := len(page.read_text().splitlines())) > LONGEST}
    assert not long

"""Links of README and docs lead to files and headings that exist."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.reference.markdown import anchor

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def _prose(path: Path) -> str:
    return FENCE.sub("", path.read_text())


def _anchors(path: Path) -> Iterator[str]:
    """A heading that comes again has a number after it."""
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^#+ +(.+)$", _prose(path), re.MULTILINE):
        name = anchor(heading.strip())
        yield f"{name}-{seen[name]}" if seen[name] else name
        seen[name] += 1


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for target in LINK.findall(_prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, part = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (part and part not in set(_anchors(file))):
            lost.append(target)
    assert not lost

"""Expressions that several admission policies repeat, since CEL cannot share them, are the same in all."""

from __future__ import annotations

import re

from queuer.kube import resources
from queuer.kube.versions import Form


def copies(pattern: str) -> list[str]:
    """All passages that match, white space aside."""
    folders = {folder for form in Form for folder in resources.POLICIES[form]}
    texts = [path.read_text() for folder in sorted(folders) for path in resources.manifests(folder)]
    return [" ".join(found.split()) for text in texts for found in re.findall(pattern, text, re.DOTALL)]


def test_break_glass_is_one_right_everywhere() -> None:
    """A copy that differs is a way around the guard, or no way out of it. On deletion the object is the old one."""
    found = copies(r"- name: no-break-glass\n(.*?allowed\(\)\)+)")
    assert len(found) >= 5
    assert len({text.replace("oldObject", "object") for text in found}) == 1
    assert len(found) == len(copies("check\\('break-glass'\\)")), "no right is asked for in other words"


def test_controllers_that_make_pods_are_the_same_everywhere() -> None:
    found = copies(r"username in \[([^]]*job-controller[^]]*)\]")
    assert len(found) >= 2
    assert len(set(found)) == 1

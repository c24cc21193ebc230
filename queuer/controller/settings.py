"""What an operator may set, read once from the environment.

Every variable has a default but the database's.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from queuer.controller.failpoints import Failpoints
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.kube.workloads import DEFAULT_SCHEDULERS

PREFIX = "QUEUER_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one controller process. Due in seconds.

    `port` 0 = any free one, printed in the log. `landing_deadline`: how long a gang may miss pods without one coming.
    `avoid`, `avoid_limit`: how long a gang that failed to land avoids those nodes, and rests if it must; doubled at
    each further failure.
    `window`: how long changes are gathered before a cycle. `solver_time` is CP-SAT's deterministic time,
    `solver_deadline` the wall clock after which the solver process is killed and the decision made without CP-SAT.
    `stalled`: without a finished cycle or an idle check for so long, the process says that it is not alive, and another
    may take its place.
    `relist`: how often everything watched is listed too, in case an event was lost; see `kube.reflector.Timing`.
    `audit`: how often the ledger is compared with the cluster.
    `forecast`: least time between two forecasts of starts, 0 = none. `retell`: least time after which a reason of
    which only figures moved is written again.
    `schedulers`: names of those that place pods; jobs that name another one are refused.
    `cycles_dir`: where decisions are kept for `queuer sim cycle`, `cycles_kept` of each kind; None = nowhere.
    """

    database_url: str
    kubeconfig: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    identity: str = ""
    landing_deadline: float = 60.0
    bond: float = 300.0
    avoid: float = 60.0
    avoid_limit: float = 3600.0
    window: float = 0.02
    patches: int = 32
    solver_time: float = 1.0
    solver_deadline: float = 5.0
    stalled: float = 30.0
    lost_node: float = 300.0
    relist: float = 60.0
    audit: float = 60.0
    config_crs: bool = True
    seed: int = 1
    cycles_dir: Path | None = None
    cycles_kept: int = 20
    forecast: float = 60.0
    retell: float = 30.0
    schedulers: frozenset[str] = DEFAULT_SCHEDULERS
    failpoints: Failpoints = field(default_factory=Failpoints)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Settings from `QUEUER_*` and `KUBECONFIG`.

        Raises InvalidInput naming every variable that is wrong.
        """
        given: dict[str, object] = {"identity": f"{socket.gethostname()}-{os.getpid()}"}
        problems: list[FieldProblem] = []
        for name, (variable, parse) in _VARIABLES.items():
            text = environ.get(variable, "")
            if not text:
                continue
            try:
                given[name] = parse(text)
            except ValueError as error:
                problems.append(FieldProblem(field=variable, message=str(error)))
        if "database_url" not in given:
            problems.append(
                FieldProblem(
                    field=f"{PREFIX}DATABASE_URL",
                    message="is not set",
                    hint="postgresql://user@host/database",
                )
            )
        if problems:
            raise InvalidInput(*problems)
        return cls(**given)  # type: ignore[arg-type]


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} is not a number of seconds")
    return value


def _some_seconds(text: str) -> float:
    value = _seconds(text)
    if not value:
        raise ValueError(f"{text!r} seconds are none: nothing could happen in that time; give more than 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(f"{text!r} is not a number above 0")
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value < 65536:
        raise ValueError(f"{text!r} is not a port")
    return value


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _variables() -> dict[str, tuple[str, Callable[[str], object]]]:
    """Environment variable and parser by field name."""
    parsers: dict[str, Callable[[str], object]] = {
        "database_url": str, "kubeconfig": Path, "host": str, "port": _port, "identity": str,
        "cycles_dir": Path, "cycles_kept": _count,
        "landing_deadline": _some_seconds, "bond": _some_seconds, "stalled": _some_seconds,
        "relist": _some_seconds, "audit": _some_seconds,
        "patches": _count, "seed": int, "config_crs": _switch, "failpoints": Failpoints.parse,
        "schedulers": _names,
    }  # fmt: skip
    names = {
        "kubeconfig": "KUBECONFIG",
        "host": f"{PREFIX}CONTROLLER_HOST",
        "port": f"{PREFIX}CONTROLLER_PORT",
    }
    return {
        f.name: (names.get(f.name, PREFIX + f.name.upper()), parsers.get(f.name, _seconds))
        for f in fields(Settings)
    }


_VARIABLES = _variables()

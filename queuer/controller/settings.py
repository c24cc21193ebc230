"""An operator's settings, read once from the environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queuer.controller.failpoints import Failpoints
from queuer.domain.backoff import BackOff
from queuer.domain.variables import (
    DATABASE_URL,
    KUBECONFIG,
    NAMES,
    PORT,
    SECONDS,
    SOME_SECONDS,
    Variable,
    count,
    names,
    path,
    port,
    read,
    seconds,
    setting,
    some_seconds,
    switch,
    variables_of,
)
from queuer.kube.operators import OPERATORS, USUAL, Operators
from queuer.kube.resources import INSTALLED_IN
from queuer.kube.workloads import DEFAULT_SCHEDULERS


def _seconds(name: str, default: str, meaning: str, *, least: bool = False) -> Any:
    form, parse = (SOME_SECONDS, some_seconds) if least else (SECONDS, seconds)
    return setting(Variable(name=name, default=default, meaning=meaning, form=form, parse=parse))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one controller process. Due in seconds."""

    # fmt: off
    database_url: str = setting(DATABASE_URL)
    kubeconfig: Path | None = setting(KUBECONFIG, default=None)
    namespace: str = setting(INSTALLED_IN)
    operators: Operators = setting(OPERATORS, default_factory=lambda: USUAL)
    host: str = setting(Variable(
        name="QUEUER_CONTROLLER_HOST", default="127.0.0.1", form="address",
        meaning="Where metrics and probes are served.",
    ))
    port: int = setting(Variable(
        name="QUEUER_CONTROLLER_PORT", default="0", form=PORT, parse=port,
        meaning="Their port; the log names the one that was taken.",
    ))
    identity: str = setting(Variable(
        name="QUEUER_IDENTITY", form="text",
        meaning="What the database and the log call this process. Not set: host name and process id.",
    ), default="")
    landing_deadline: float = _seconds(
        "QUEUER_LANDING_DEADLINE", "60", "How long a gang may miss pods without one coming onto a node.",
        least=True,
    )
    start_deadline: float = _seconds(
        "QUEUER_START_DEADLINE", "0",
        "How long pods of a gang may be on nodes and not all run; then it is evicted, and rests. 0 = without end.",
    )
    bond: float = _seconds(
        "QUEUER_BOND", "300", "How long a gang that evicts holds its place while its victims leave.",
        least=True,
    )
    avoid: float = _seconds(
        "QUEUER_AVOID", "60",
        "How long a gang that failed to land avoids those nodes; doubled at each further failure.",
    )
    avoid_limit: float = _seconds("QUEUER_AVOID_LIMIT", "3600", "The longest that it avoids them, or rests.")
    window: float = _seconds("QUEUER_WINDOW", "0.02", "How long changes are gathered before a cycle.")
    patches: int = setting(Variable(
        name="QUEUER_PATCHES", default="32", form="number above 0", parse=count,
        meaning="Writes to jobs that are under way at once.",
    ))
    solver_time: float = _seconds(
        "QUEUER_SOLVER_TIME", "1", "Deterministic time of CP-SAT in a cycle; 0 = decide without it."
    )
    solver_deadline: float = _seconds(
        "QUEUER_SOLVER_DEADLINE", "5",
        "Wall clock after which the solver process is killed and the decision made without CP-SAT.",
    )
    stalled: float = _seconds(
        "QUEUER_STALLED", "30",
        "Without a finished cycle or idle check for so long, the process gives leadership up and `/livez` fails.",
        least=True,
    )
    lost_node: float = _seconds(
        "QUEUER_LOST_NODE", "300", "After so long the pods of a node that is gone are taken as gone."
    )
    lost_pods: float = _seconds(
        "QUEUER_LOST_PODS", "900",
        "How long a gang that runs may miss a pod that nobody has made again; the Job controller backs off 6 minutes.",
    )
    left_pods: float = _seconds(
        "QUEUER_LEFT_PODS", "60",
        "How long the controller of an evicted job may leave its pods alone. Then Queuer deletes them.",
        least=True,
    )
    relist: float = _seconds(
        "QUEUER_RELIST", "60", "How often all that is watched is listed too, in case an event was lost.",
        least=True,
    )
    audit: float = _seconds(
        "QUEUER_AUDIT", "60", "How often the ledger is compared with the cluster.", least=True
    )
    config_crs: bool = setting(Variable(
        name="QUEUER_CONFIG_CRS", default="true", form="true or false", parse=switch,
        meaning="Whether Queue, Flavor and Topology objects of the cluster are read.",
    ))
    seed: int = setting(Variable(
        name="QUEUER_SEED", default="1", form="whole number", parse=int, meaning="Seed of decisions."
    ))
    cycles_dir: Path | None = setting(Variable(
        name="QUEUER_CYCLES_DIR", form="folder", parse=path,
        meaning="Where decisions that deserve a second look are kept for `queuer cycles replay`. Not set: nowhere.",
    ), default=None)
    cycles_kept: int = setting(Variable(
        name="QUEUER_CYCLES_KEPT", default="20", form="number above 0", parse=count,
        meaning="How many of each kind are kept there.",
    ))
    forecast: float = _seconds(
        "QUEUER_FORECAST", "60", "Least time between two forecasts of starts; 0 = none are made."
    )
    retell: float = _seconds(
        "QUEUER_RETELL", "30", "Least time after which a reason of which only figures moved is written again."
    )
    schedulers: frozenset[str] = setting(Variable(
        name="QUEUER_SCHEDULERS", default=",".join(sorted(DEFAULT_SCHEDULERS)), form=NAMES,
        parse=lambda text: frozenset(names(text)),
        meaning="Schedulers that place pods. Jobs that name another one are refused.",
    ))
    failpoints: Failpoints = setting(Variable(
        name="QUEUER_FAILPOINTS", form="point=kill or point=stop, by comma", parse=Failpoints.parse,
        meaning="For tests: where the process kills or stops itself.",
    ), default_factory=Failpoints)
    # fmt: on

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Settings from `QUEUER_*` and `KUBECONFIG`. Raises InvalidInput naming every variable that is wrong."""
        given = {"identity": f"{socket.gethostname()}-{os.getpid()}", **read(environ, VARIABLES)}
        return cls(**given)

    @property
    def pauses(self) -> BackOff:
        """For how long a gang avoids nodes, or rests, after so many failures to land."""
        return BackOff(first=self.avoid, longest=self.avoid_limit)


VARIABLES = variables_of(Settings)
"""The variable of each field."""

"""The versions of Kubernetes that Queuer runs on, and the form that it takes on each.

The chart makes the same choice by `.Capabilities.KubeVersion` (templates/cluster.yaml); a test compares the two.
"""

from __future__ import annotations

import re
from enum import StrEnum

from queuer.domain.errors import Unavailable

Version = tuple[int, int, int]
OLDEST: Version = (1, 34, 2)
"""Before it a job that was suspended and started again within a second could no longer write its status (#134521)."""
FULL: Version = (1, 36, 2)
"""Mutating admission policies are v1 since 1.36; since 1.36.2 one PATCH starts a suspended job elsewhere."""
_DEFECTIVE: tuple[Version, Version] = ((1, 36, 0), FULL)
"""From, until: a new job can start nowhere until its controller has confirmed that it is suspended (#139281)."""


class Form(StrEnum):
    """The range of what Queuer may rely on; also the name of the folder with the policies that only this form has.

    `reduced`: manifests say themselves what mutating policies would write, and a job is started a second time by two
    writes.
    """

    FULL = "full"
    REDUCED = "reduced"


class KubernetesTooOld(Unavailable):
    """The cluster lacks what Queuer is built on."""

    code = "kubernetes_too_old"


def form_of(said: str) -> Form:
    """The form on a server that calls itself this, e.g. `v1.37.0-rc.1+k3s1`. Raises KubernetesTooOld, Unavailable."""
    found = re.findall(r"\d+", said)[:3]
    if len(found) < 3:
        raise Unavailable(f"the API server calls its version {said!r}, which is not a version")
    major, minor, patch = map(int, found)
    version = (major, minor, patch)
    first, fixed = _DEFECTIVE
    if version < OLDEST or first <= version < fixed:
        raise KubernetesTooOld(
            f"this cluster runs Kubernetes {said}; Queuer needs {_text(OLDEST)} or newer, and not 1.36.0 or 1.36.1",
            hint=f"upgrade the cluster, best to {_text(FULL)} or newer",
        )
    return Form.FULL if version >= FULL else Form.REDUCED


def _text(version: Version) -> str:
    return ".".join(map(str, version))

"""Commands that grant a user a right in Kubernetes. An admin pastes them: names are quoted for a shell, and each
command works when other users were granted the same before.
"""

from __future__ import annotations

import re
import shlex
from hashlib import sha256


def binding(role: str, user: str, *, namespace: str = "") -> str:
    """The command that binds a cluster role to a user, in a namespace or in the whole cluster."""
    name = re.sub(r"[^\w.@:-]", "-", f"{role}-{user}")
    if not name.endswith(user):  # `a/b` and `a-b` are two users
        name = f"{name}-{sha256(user.encode()).hexdigest()[:8]}"
    kind = ["rolebinding", name, "-n", namespace] if namespace else ["clusterrolebinding", name]
    return shlex.join(["kubectl", "create", *kind, f"--clusterrole={role}", f"--user={user}"])


def queue_admin(queue: str, user: str) -> str:
    """The commands that let a user change a queue and all below it. The role may be there from another user."""
    role = f"queuer-{queue}"
    rule = ["--verb=get,update", "--resource=queues.queuer.dev", f"--resource-name={queue}"]
    make = shlex.join(["kubectl", "create", "clusterrole", role, *rule, "--dry-run=client", "-o", "yaml"])
    return f"{make} | kubectl apply -f - && {binding(role, user)}"

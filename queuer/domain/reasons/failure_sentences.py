"""Why pods of a job failed or are gone, and so why the job has failed: what its owner is told."""

from __future__ import annotations

from queuer.domain.workload import Workload

MESSAGE = 300
"""Characters of a container's last words, or of a condition, that are told: the end says what was wrong."""


def pod_failed(name: str, node: str | None, *, exit_code: int | None, reason: str, message: str) -> str:
    """`pod train-0 on n1 ended with exit code 137, OOMKilled: last words`."""
    text = f"pod {name}{f' on {node}' if node else ''} "
    text += "failed" if exit_code is None else f"ended with exit code {exit_code}"
    if reason and reason != "Error":
        text += f", {reason}"
    said = " ".join(message.split())[-MESSAGE:]
    return f"{text}: {said}" if said else text


def node_gone(name: str, node: str) -> str:
    """The pod went with its node."""
    return f"node {node} is gone, and pod {name} with it"


def job_failed(pod: str, condition: str) -> str:
    """`pod`: about the first pod that failed; `condition`: of the job object. Either may be empty."""
    said = "; ".join(filter(None, (pod, condition)))
    return f"failed: {said}" if said else ""


def pods_lost(short: int, of: int, why: str) -> str:
    """A running gang misses pods."""
    text = f"{short} of {of} pods {'is' if short == 1 else 'are'} gone"
    return f"{text}: {why}" if why else text


def pods_refused(short: int, of: int, said: str) -> str:
    """The API server makes no pod of a gang that lands, in its words."""
    return f"{_of_all(short, of)} refused: {said}"


def given_up(
    job: Workload, short: int, of: int, *, landed: bool, unbound: int, made: int, seconds: float, why: str
) -> str:
    """A gang misses pods for too long. `made`: pods that are there; `unbound`: those of them on no node."""
    within = f"within {seconds:.0f} s"
    if landed:
        pods, their = ("1 pod was", "its") if short == 1 else (f"{short} pods were", "their")
        said = f"{pods} lost and none took {their} place {within}"
    elif unbound:
        said = f"{_of_all(short, of)} not bound {within}"
    else:
        which = f"{_of_all(short, of)} not" if made else "no pod was"
        describe = f"kubectl describe {job.kind.lower()} {job.name} -n {job.namespace}"
        said = f"{which} created {within}; `{describe}` says why"
    return f"{said}: {why}" if why else said


def _of_all(count: int, of: int) -> str:
    return f"{count} of {of} pods {'was' if count == 1 else 'were'}"

"""`queuer sim shape` and `queuer sim job`: would it start now? Asked of the API, on what the newest cycle left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from queuer.cli.arguments import ExitStatus
from queuer.cli.client import Client
from queuer.cli.completion import queue_paths
from queuer.cli.failures import EXIT_BY_VERDICT, Misused
from queuer.cli.output import Printer, printed, say, styled
from queuer.domain.quantity import amounts_text
from queuer.domain.reasons import plural, with_evictions

Queue = Annotated[
    str | None,
    typer.Option(
        "-q",
        "--queue",
        help="Ask for this queue. Default: the one that you may use.",
        autocompletion=queue_paths,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "-n", "--namespace", help="Of the job. Default: the manifest's, else the one that you may read."
    ),
]
Level = Annotated[
    str | None, typer.Option("--level", metavar="LEVEL", help="All pods in one domain of it, e.g. rack.")
]
Priority = Annotated[int | None, typer.Option(help="Its priority. Default: that of its PriorityClass.")]
_STYLES = {"starts": "green", "evicts": "yellow", "waits": "yellow", "unstartable": "bold red"}


@printed
def shape(
    what: Annotated[str, typer.Argument(metavar="SHAPE", help="COUNTxRESOURCE:AMOUNT,…, e.g. 8xgpu:8.")],
    *,
    level: Level = None,
    queue: Queue = None,
    namespace: Namespace = None,
    priority: Priority = None,
    exit_status: ExitStatus = False,
    out: Printer,
) -> None:
    """Would a gang of this shape start now? Nothing is reserved. Exit 0 whatever the answer; see --exit-status."""
    with Client.from_env() as client:
        namespace = namespace or _own_namespace(client, queue)
        queue = queue or _own_queue(client, namespace)
        asked = {"queue": queue, "namespace": namespace, "required": level, "priority": priority}
        answer = _simulate(client, {"shape": what, **asked})
    print_simulation(answer, f"{what} in {queue}", out)
    _exit(answer, exit_status)


@printed
def job(
    file: Annotated[str, typer.Option("-f", "--filename", help="The manifest of a job; - is stdin.")],
    *,
    level: Level = None,
    queue: Queue = None,
    namespace: Namespace = None,
    priority: Priority = None,
    exit_status: ExitStatus = False,
    out: Printer,
) -> None:
    """Would this job start now? Nothing is reserved or created. Exit 0 whatever the answer; see --exit-status."""
    manifest = _manifest(file)
    found = manifest.get("metadata")
    meta = found if isinstance(found, Mapping) else {}
    asked = {"queue": queue, "required": level, "priority": priority}
    with Client.from_env() as client:
        namespace = namespace or meta.get("namespace") or _own_namespace(client, queue)
        answer = _simulate(client, {"job": manifest, "namespace": namespace, **asked})
    print_simulation(answer, str(meta.get("name") or file), out)
    _exit(answer, exit_status)


def _simulate(client: Client, body: Mapping[str, Any]) -> Any:
    return client.post("/simulations", {key: value for key, value in body.items() if value is not None})


def _manifest(file: str) -> Mapping[str, Any]:
    from queuer.cli.imports import manifests_of

    found = manifests_of([Path(file)])
    if len(found) != 1:
        raise Misused(f"{file} holds {len(found)} objects, one job is needed", hint="split the file")
    return found[0].body


def _own_namespace(client: Client, queue: str | None) -> str:
    """The only namespace that the reader may read, of those that the queue serves where one is named."""
    readable, what = client.get("/me")["namespaces"], "namespaces that you may read"
    for found in client.get("/queues")["items"] if queue else ():
        if found["path"] == queue:
            readable = [name for name in found["namespaces"] if name in readable]
            what += f" and {queue} serves"
    return _one(readable, option="-n NAMESPACE", what=what)


def _own_queue(client: Client, namespace: str) -> str:
    leaves = [q["path"] for q in client.get("/queues")["items"] if q["leaf"] and namespace in q["namespaces"]]
    return _one(leaves, option="-q QUEUE", what=f"queues for namespace {namespace}")


def _one(found: Sequence[str], *, option: str, what: str) -> str:
    """The only one. Raises Misused that says which there are."""
    if len(found) == 1:
        return found[0]
    names = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
    text = f"there are {len(found)} {what}: {names}" if found else f"there are no {what}"
    raise Misused(text, hint=f"add {option}")


def print_simulation(answer: Mapping[str, Any], name: str, out: Printer) -> None:
    """Print the answer to a simulation. `name`: the gang that it is about."""
    if out.answered(answer, names=[answer["answer"]]):
        return
    head = styled(f"{name}  {answer['answer']}")
    head.stylize(_STYLES.get(answer["answer"], ""), len(name) + 2)
    out.line(head)
    for line in _lines(answer):
        out.line(f"  {line}", indent=15)
    for text in answer["warnings"]:
        say(f"warning: {text}")
    say(f"{answer['label']}, cycle of {answer['asOf'][:19]}Z")


def _exit(answer: Mapping[str, Any], exit_status: bool) -> None:
    if exit_status and answer["primary"]:
        raise typer.Exit(EXIT_BY_VERDICT[answer["primary"]["verdict"]])


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """The parts of an answer in words."""
    for place in answer["places"]:
        nodes = ", ".join(f"{node} ({count})" for node, count in place["nodes"].items())
        yield f"{place['podSet']:<12} {plural(place['count'], 'pod')} on {place['flavor']}: {nodes}"
    for row in answer["evictions"]:
        yield f"{'evicts':<12} {plural(row['gangs'], 'gang')} of {row['queue']}: {amounts_text(row['amounts'])}"
    reasons = [answer["primary"]] if answer["primary"] else []
    for reason in [*reasons, *answer["others"]]:
        yield f"{reason['verdict']:<12} {reason['token']}: {reason['text']}"
    if answer["wouldAdmit"]:
        yield f"{'would admit':<12} {'  |  '.join(map(_change, answer['wouldAdmit']))}"


def _change(row: Mapping[str, Any]) -> str:
    return with_evictions(row["change"], row["evictions"])

"""`queuer import`: the tree of another queueing system, or of the nodes, as a QueueTree document. It changes nothing.

The document goes to stdout or to a file, for `queuer plan` and `queuer apply`; the fate of every object goes to stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from queuer.cli.failures import Misused
from queuer.cli.output import clean, say
from queuer.domain.document import export
from queuer.domain.errors import InvalidInput
from queuer.imports import kueue, nodes, resourcequota, volcano, yunikorn
from queuer.imports.records import Fate, Finding, Imported, Manifest
from queuer.sim.files import MOST_YAML, StrictLoader, read_bytes

MOST_BYTES = 16 * 2**20
"""Of a file; JSON alone may be longer than `MOST_YAML`."""
MOST_OBJECTS = 20_000
"""Of all files together."""
READERS: dict[str, Callable[[Iterable[Manifest]], Imported]] = {
    "kueue": kueue.read,
    "volcano": volcano.read,
    "yunikorn": lambda manifests: yunikorn.read(unpacked(manifests)),
    "resourcequota": resourcequota.read,
    "nodes": nodes.read,
}
app = typer.Typer(
    help="Turn the tree of another queueing system, or the nodes, into a QueueTree document; nothing is changed.",
    no_args_is_help=True,
)
Files = Annotated[list[Path], typer.Argument(help="Manifests, YAML or JSON; - reads stdin.")]
Namespaces = Annotated[
    list[str] | None,
    typer.Option("--namespace", help="A namespace that may use the tree; may be given several times."),
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write the document here instead of to stdout.")
]


@app.command("kueue")
def kueue_verb(files: Files, output: Output = None) -> None:
    """ClusterQueues, Cohorts, LocalQueues, ResourceFlavors, Topologies and WorkloadPriorityClasses of Kueue.

    Examples:

      kubectl get clusterqueues,cohorts,resourceflavors,topologies.kueue.x-k8s.io -o json > kueue.json

      kubectl get localqueues,workloadpriorityclasses,namespaces -A -o json > names.json

      queuer import kueue kueue.json names.json -o tree.yaml
    """
    _print(kueue.read(manifests_of(files)), output)


@app.command("volcano")
def volcano_verb(files: Files, namespace: Namespaces = None, output: Output = None) -> None:
    """Queues and HyperNodes of Volcano.

    Examples:

      kubectl get queues.scheduling.volcano.sh,hypernodes -o json | queuer import volcano - --namespace team-a
    """
    _print(volcano.read(manifests_of(files), namespaces=namespace or ()), output)


@app.command("yunikorn")
def yunikorn_verb(files: Files, namespace: Namespaces = None, output: Output = None) -> None:
    """The queues.yaml of YuniKorn: as a file, or in its ConfigMap.

    Examples:

      kubectl get configmap -n yunikorn -o yaml | queuer import yunikorn - --namespace team-a
    """
    _print(yunikorn.read(unpacked(manifests_of(files)), namespaces=namespace or ()), output)


@app.command("resourcequota")
def resourcequota_verb(files: Files, output: Output = None) -> None:
    """ResourceQuotas: a first tree with a queue for each namespace.

    Examples:

      kubectl get resourcequota -A -o json | queuer import resourcequota - -o tree.yaml
    """
    _print(resourcequota.read(manifests_of(files)), output)


@app.command("nodes")
def nodes_verb(
    files: Files,
    namespace: Namespaces = None,
    label: Annotated[str, typer.Option("--label", help="A node label that names a device product.")] = "",
    output: Output = None,
) -> None:
    """Nodes: a first tree to edit, with flavors and levels by their labels and a queue for each namespace.

    Examples:

      kubectl get nodes,namespaces -o json | queuer import nodes - -o tree.yaml
    """
    _print(nodes.read(manifests_of(files), namespaces=namespace or (), label=label), output)


def _print(imported: Imported, output: Path | None) -> None:
    for line in lines_of(imported):
        say(clean(line))
    if not (imported.document.queues or imported.document.flavors or imported.document.topology):
        hint = "add the objects that the list above misses"
        raise Misused("nothing of the input can be a tree", hint=hint)
    text = yaml.safe_dump(export(imported.document), sort_keys=False, allow_unicode=True)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text)
    except OSError as error:
        raise Misused(
            f"cannot write {output}: {error.strerror}", hint="name a file that can be written, -o tree.yaml"
        ) from error
    say(f"next: queuer plan -f {output}")


def lines_of(imported: Imported) -> Iterator[str]:
    """The list of an import: first what needs a look."""
    order = (Fate.REFUSED, Fate.NO_EQUAL, Fate.APPROXIMATED, Fate.MAPPED)
    found = sorted(imported.findings, key=lambda finding: order.index(finding.fate))
    yield from map(_line, found)
    counts = ", ".join(f"{sum(f.fate is fate for f in found)} {fate}" for fate in reversed(order))
    yield f"{len(imported.document.queues)} queues; {counts}"
    if imported.commands:
        yield "beside the tree:"
        yield from (f"  {command}" for command in imported.commands)


def _line(finding: Finding) -> str:
    return f"{finding.fate:<13}{finding.about}: {finding.text}" + (
        f" ({finding.hint})" if finding.hint else ""
    )


# Manifests


def manifests_of(files: Iterable[Path]) -> list[Manifest]:
    """All objects of the files. Raises InvalidInput naming file, document and fault."""
    found: list[Manifest] = []
    for path in files:
        stdin = str(path) == "-"
        name = "stdin" if stdin else str(path)
        data = sys.stdin.buffer.read(MOST_BYTES + 1) if stdin else read_bytes(path, most=MOST_BYTES)
        for body in _objects(load(data, name), name):
            found.append(Manifest(file=name, document=len(found) + 1, body=body))
            if len(found) > MOST_OBJECTS:
                raise InvalidInput.at(
                    name, f"more than {MOST_OBJECTS} objects", "import a part of them at a time"
                )
    return found


def unpacked(manifests: Iterable[Manifest]) -> Iterator[Manifest]:
    """The manifests, with the content of each queues.yaml in place of the ConfigMap, or values, that hold it."""
    for manifest in manifests:
        data = manifest.body.get("data") if manifest.kind == "ConfigMap" else manifest.body
        text = data.get("queues.yaml") if isinstance(data, dict) else None
        if not isinstance(text, str):
            yield manifest
            continue
        name = f"{manifest.place} queues.yaml"
        for body in _objects(load(text.encode(), name), name):
            yield Manifest(file=name, document=1, body=body)


def load(data: bytes, name: str) -> list[Any]:
    """The documents of a text, JSON or YAML. Raises InvalidInput naming it."""
    if len(data) > MOST_BYTES:
        raise InvalidInput.at(name, f"has more than {MOST_BYTES} bytes", "split it")
    try:
        text = data.decode("utf-8-sig")
        if text.lstrip().startswith(("{", "[")):
            try:
                return [json.loads(text)]
            except ValueError:
                pass  # flow style of YAML, or several documents
        if len(data) > MOST_YAML:
            raise InvalidInput.at(
                name, f"YAML of more than {MOST_YAML} bytes takes too long", "give it as -o json"
            )
        return list(yaml.load_all(text, Loader=StrictLoader))
    except (yaml.YAMLError, ValueError) as error:
        hint = "render templates first, e.g. helm template"
        raise InvalidInput.at(name, f"is no YAML or JSON: {' '.join(str(error).split())}", hint) from error
    except RecursionError as error:
        raise InvalidInput.at(
            name, "is nested too deeply", "give objects as kubectl get prints them"
        ) from error


def _objects(documents: Iterable[Any], name: str) -> Iterator[Any]:
    """The objects, those of lists one by one."""
    for number, document in enumerate(documents, 1):
        if document is None:
            continue
        listed = isinstance(document, dict) and str(document.get("kind", "")).endswith("List")
        items = document.get("items") if listed else document if isinstance(document, list) else [document]
        for item in items if isinstance(items, list) else [items]:
            if not isinstance(item, dict):
                raise InvalidInput.at(
                    f"{name}, document {number}", "is no object", "give objects as kubectl get prints them"
                )
            yield item

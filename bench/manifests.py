"""Public manifests read as jobs, against a count made by hand: `python -m bench.manifests --index FILE --files FOLDER`.

The index (CSV, gzip or plain) has a row for each document: `repo path doc kind api pods gpus`. The folder has the files
under `repo/path`. Documents of the kinds that Queuer manages are read unchanged but for queue, namespace and uid.
One JSON object: `right refused wrong unread missing` count documents; `reasons` counts refusals by message; `faults`
lists the documents that are wrong, unread or missing. The exit code is 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import yaml

from queuer.domain.keys import QUEUE
from queuer.domain.workload import demand_of
from queuer.kube.kinds import KINDS, JobKind, decoded_job
from queuer.kube.workloads import DEFAULT_SCHEDULERS, NamespaceFacts, read_workload

DEVICES = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu")
"""What the index counts as GPUs."""


class Verdict(StrEnum):
    """How a document was read. `UNREAD`: no YAML, or no object of its kind."""

    RIGHT = "right"
    REFUSED = "refused"
    WRONG = "wrong"
    UNREAD = "unread"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One document. `said`: the reasons of a refusal, or what is at fault."""

    document: str
    verdict: Verdict
    said: tuple[str, ...] = ()


def readings(index: Path, files: Path, *, facts: NamespaceFacts) -> Iterator[Reading]:
    """All documents of kinds that are managed, in the order of the index."""
    kinds = {(kind.name, kind.api_version): kind for kind in KINDS}
    with gzip.open(index, "rt") if index.suffix == ".gz" else index.open() as rows:
        for row in csv.DictReader(rows):
            if (kind := kinds.get((row["kind"], row["api"]))) is not None:
                yield _reading(row, files, kind=kind, facts=facts)


def _reading(row: Mapping[str, str], files: Path, *, kind: JobKind, facts: NamespaceFacts) -> Reading:
    document = f"{row['repo']}/{row['path']}#{row['doc']}"
    try:
        text = (files / row["repo"] / row["path"]).read_text()
    except OSError:
        return Reading(document=document, verdict=Verdict.MISSING)
    try:
        body = msgspec.json.encode(_queued(list(yaml.safe_load_all(text))[int(row["doc"])]))
        job = decoded_job(kind, body)
        workload, problems = read_workload(kind, job, facts=facts)
    except (yaml.YAMLError, IndexError, KeyError, TypeError, msgspec.MsgspecError) as error:
        return Reading(document=document, verdict=Verdict.UNREAD, said=(str(error),))
    if problems:
        said = tuple(f"{problem.field}: {problem.message}" for problem in problems)
        return Reading(document=document, verdict=Verdict.REFUSED, said=said)
    late = {role.name for role in kind.roles(job) if role.late}  # the index leaves pods that submit out
    counts = {each.name: each.count for each in workload.pod_sets if each.name not in late}
    demand = demand_of(tuple(each for each in workload.pod_sets if each.name in counts), counts)
    pods, gpus = sum(counts.values()), sum(demand.get(device, 0) for device in DEVICES)
    if (pods, gpus) == (int(row["pods"]), float(row["gpus"])):
        return Reading(document=document, verdict=Verdict.RIGHT)
    difference = f"{pods} pods and {gpus} GPUs, by the index {row['pods']} and {row['gpus']}"
    return Reading(document=document, verdict=Verdict.WRONG, said=(difference,))


def _queued(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest as its owner would queue it."""
    meta = manifest["metadata"]
    labels = {**(meta.get("labels") or {}), QUEUE: "root.a"}
    return {**manifest, "metadata": {**meta, "labels": labels, "namespace": "a", "uid": "u"}}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.manifests", description=__doc__)
    made.add_argument("--index", type=Path, required=True)
    made.add_argument("--files", type=Path, required=True)
    made.add_argument("--schedulers", nargs="*", default=[], help="that place pods beside kube-scheduler")
    made.add_argument("--classes", nargs="*", default=[], help="PriorityClasses that there are")
    return made


def main() -> None:
    """Print the figures."""
    given = parser().parse_args()
    schedulers = DEFAULT_SCHEDULERS.union(given.schedulers)
    facts = NamespaceFacts(schedulers=schedulers, priorities=dict.fromkeys(given.classes, 0))
    found = list(readings(given.index, given.files, facts=facts))
    counts = Counter(r.verdict for r in found)
    reasons = Counter(said for r in found if r.verdict is Verdict.REFUSED for said in r.said)
    good = (Verdict.RIGHT, Verdict.REFUSED)
    faults = [[r.verdict, r.document, *r.said] for r in found if r.verdict not in good]
    print(json.dumps({v: counts[v] for v in Verdict} | {"reasons": reasons, "faults": faults}))
    sys.exit(1 if counts[Verdict.WRONG] else 0)


if __name__ == "__main__":
    main()

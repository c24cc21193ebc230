"""Runs kubectl under one identity. Server-side apply of whole files is the one thing that it does best."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queuer.domain.errors import QueuerError


class KubectlError(QueuerError):
    """kubectl ended with an error; the message is what it or the API server said."""

    code = "kubectl_failed"


NO_SCHEMAS = "--validate=false"
"""Else kubectl reads all schemas first, and the API server makes them anew after each CRD.

Server-side apply refuses unknown fields without it too.
"""
_ASKED = re.compile(r"merge into it: (\{.*\})")


def asked_of(said: str) -> Any:
    """The lines that a refusal asks to be merged into the manifest (reduced/policies/guard-entry.yaml), decoded.

    None where it asks for none.
    """
    found = _ASKED.search(said)
    return None if found is None else json.loads(found.group(1))


def _crd_of(file: Path) -> str:
    group, _, plural = file.stem.partition("_")
    return f"/{plural}.{group}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """A kubectl program and the kubeconfig that it uses."""

    program: Path
    kubeconfig: Path

    def run(self, *arguments: str, input: str | None = None) -> str:
        """Run it and return its stdout. Raises `KubectlError` with its stderr."""
        command = [str(self.program), f"--kubeconfig={self.kubeconfig}", *arguments]
        result = subprocess.run(command, input=input, capture_output=True, text=True, check=False)
        if result.returncode:
            raise KubectlError(
                f"kubectl {' '.join(arguments[:3])}: {result.stderr.strip() or result.stdout.strip()}"
            )
        return result.stdout

    def create(self, document: Mapping[str, Any], *options: str) -> str:
        """Create an object, with what the cluster asks to be merged into its manifest, if anything.

        The second attempt is what docs/install.md tells users to type. Raises `KubectlError`.
        """
        text = json.dumps(document)
        command = ("create", "--filename=-", *options)
        try:
            return self.run(*command, input=text)
        except KubectlError as refusal:
            if (asked := asked_of(str(refusal))) is None:
                raise
        merge = (
            "patch",
            "--local",
            "--type=merge",
            "--filename=-",
            f"--patch={json.dumps(asked)}",
            "-o=json",
        )
        return self.run(*command, input=self.run(*merge, input=text))

    def apply(self, *, files: list[Path], documents: Sequence[Mapping[str, Any]] = ()) -> None:
        """Server-side apply: large CRDs fit, and applying again changes nothing."""
        arguments = [f"--filename={path}" for path in files]
        text = None
        if documents:
            arguments.append("--filename=-")
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        if arguments:
            self.run(
                "apply",
                "--server-side",
                "--force-conflicts",
                NO_SCHEMAS,
                "--field-manager=queuer",
                *arguments,
                input=text,
            )

    def put_crds(self, files: Sequence[Path], *, known: Sequence[Path]) -> None:
        """Create CRDs; those that are there are replaced unless their file is a `known` one, of the last time.

        The files are named `GROUP_PLURAL.yaml`. One CRD with pod templates takes a second to apply or replace, changed
        or not.
        """
        there = self.run("get", "customresourcedefinitions", "--output=name")
        new = [file for file in files if _crd_of(file) not in there]
        other = [file for file in files if file not in new and file not in known]
        for verb, chosen in (("create", new), ("replace", other)):
            if chosen:
                self.run(verb, NO_SCHEMAS, *(f"--filename={file}" for file in chosen))

    def get(self, path: str) -> Any:
        """GET a raw API path, decoded."""
        return json.loads(self.run("get", "--raw", path))

"""Runs kubectl under one identity. Server-side apply of whole files is the one thing that it does best."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queuer.domain.errors import QueuerError


class KubectlError(QueuerError):
    """kubectl ended with an error; the message is what it or the API server said."""

    code = "kubectl_failed"


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

    def apply(self, *, files: list[Path], documents: list[dict[str, Any]] | None = None) -> None:
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
                "--field-manager=queuer",
                *arguments,
                input=text,
            )

    def get(self, path: str) -> Any:
        """GET a raw API path, decoded."""
        return json.loads(self.run("get", "--raw", path))

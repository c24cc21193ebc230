"""The software bill of materials of a release, as CycloneDX 1.5: the packages of the image and of the dashboard.

Both come from their locks, with hashes. Python's licences come from the metadata of what is installed here. The base
image and the Go programs of a local cluster are no part of it.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement

LOCK = "requirements-server.txt"
_HASH = "--hash=sha256:"

Component = dict[str, Any]


def document(top: Path, version: str) -> dict[str, Any]:
    """The bill of the checkout `top`; the same tree gives the same bill."""
    listed = [
        *_python((top / LOCK).read_text()),
        *_web(json.loads((top / "web" / "package-lock.json").read_text())["packages"]),
    ]
    whole = _component("pypi", "queuer", version) | {"type": "application"}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, json.dumps([whole, listed]))}",
        "version": 1,
        "metadata": {"component": whole},
        "components": listed,
        "dependencies": [{"ref": whole["bom-ref"], "dependsOn": [each["bom-ref"] for each in listed]}],
    }


def _component(kind: str, name: str, version: str, licence: str | None = None) -> Component:
    purl = f"pkg:{kind}/{quote(name, safe='/')}@{version}"
    found: Component = {"bom-ref": purl, "type": "library", "name": name, "version": version, "purl": purl}
    if licence is None:
        return found
    spdx = re.fullmatch(r"[\w.+()-]+( (AND|OR|WITH) [\w.+()-]+)*", licence)
    return found | {"licenses": [{"expression": licence} if spdx else {"license": {"name": licence}}]}


def _python(lock: str) -> Iterator[Component]:
    """A component for each locked version. It has a hash for each platform, so these are properties."""
    for block in lock.replace("\\\n", " ").splitlines():
        line, *hashes = (part.strip() for part in block.split(_HASH))
        wanted = Requirement(line)
        (only,) = wanted.specifier
        notes = [{"name": "queuer:file:sha256", "value": each} for each in hashes]
        if wanted.marker is not None:
            notes.append({"name": "queuer:marker", "value": str(wanted.marker)})
        known = _component("pypi", wanted.name, only.version, _licence(wanted.name, only.version))
        yield known | {"properties": notes}


def _licence(name: str, version: str) -> str | None:
    """Its SPDX expression, or its name alone where the metadata has no more."""
    try:
        found = metadata(name)
    except PackageNotFoundError:  # of another platform
        return None
    said = [found[key] for key in ("License-Expression", "License") if key in found]
    return said[0] if said and found["Version"] == version and "\n" not in said[0] else None


def _web(packages: Mapping[str, Mapping[str, Any]]) -> Iterator[Component]:
    """A component for each package that the built pages may hold: all but those of development."""
    for path, package in packages.items():
        if path and not package.get("dev"):
            name = path.rpartition("node_modules/")[2]
            digest = b64decode(package["integrity"].removeprefix("sha512-")).hex()
            known = _component("npm", name, package["version"], package.get("license"))
            yield known | {"hashes": [{"alg": "SHA-512", "content": digest}]}

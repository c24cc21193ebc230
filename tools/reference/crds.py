"""Fields of the custom resources, from the definitions in the chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from queuer.kube.resources import CRDS, objects
from tools.reference.markdown import code, page, table

Schema = Mapping[str, Any]


def made() -> str:
    """The page."""
    said = (
        "Queues, flavors and the topology may be written as objects of the cluster, for `kubectl` and GitOps. All are "
        "of the group `queuer.dev/v1` and belong to no namespace. Each says in its condition `Accepted` whether it is "
        "in force, and why not: [store.md](../store.md#configuration). The API server drops a field that is not here."
    )
    sections = (_section(found) for _, found in objects(CRDS))
    return page("Custom resources", said, *sections)


def fields(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """Path, schema and whether it is required, of each field; `[]` stands for an entry of a list."""
    required = schema.get("required", ())
    for name, below in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, below, name in required
        yield from fields(below, here)
        if "items" in below:
            yield from fields(below["items"], f"{here}[]")


def schema_of(found: Mapping[str, Any]) -> Schema:
    """The schema of the one version of a definition."""
    (version,) = found["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def _section(found: Mapping[str, Any]) -> str:
    schema, kind = schema_of(found), found["spec"]["names"]["kind"]
    rows = [
        (code(path), _form(below), _needed(below, required), below.get("description", ""))
        for path, below, required in fields(schema)
        if "." in path
    ]
    refusals = "\n".join(f"- {said}" for said in dict.fromkeys(_messages(schema)))
    parts = (
        f"## {kind}",
        f"{schema['description']} Names for kubectl: {code(found['metadata']['name'])}, "
        f"{code(found['spec']['names']['singular'])}.",
        table(("field", "form", "default", "meaning"), rows),
        "What the API server refuses says, beside its form:",
        refusals,
    )
    return "\n\n".join(parts)


def _form(schema: Schema) -> str:
    if "enum" in schema:
        return ", ".join(map(code, schema["enum"]))
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "items" in schema:
        inner = _form(schema["items"])
        return f"list of {inner}s" if inner else "list"
    if isinstance(values := schema.get("additionalProperties"), Mapping):
        return f"map to {_form(values)}"
    form = "time" if schema.get("format") == "date-time" else str(schema.get("type", ""))
    bounds = [f"{sign} {schema[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    return " ".join([form, *bounds])


def _needed(schema: Schema, required: bool) -> str:
    if "default" not in schema:
        return "required" if required else ""
    default = schema["default"]
    return code(str(default).lower() if isinstance(default, bool) else default)


def _messages(schema: Schema) -> Iterator[str]:
    """Messages of the rules of a schema and of all below it."""
    yield from (rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
    for below in (*schema.get("properties", {}).values(), schema.get("items")):
        if below:
            yield from _messages(below)

"""Names go both ways: all that there is stands on its page of docs/reference, and no page has a name of nothing.

The left side of each comparison is taken from the thing itself, not from the module that writes the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer.main
import yaml

from queuer.cli.main import build
from queuer.domain.keys import KEYS
from queuer.domain.reasons import Token
from queuer.kube.kinds import KINDS
from tools.reference.metrics import api, controller
from tools.reference.rest import METHODS, document
from tools.reference.settings import PARTS
from tools.reference.values import HABITS

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "queuer"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
Names = set[str]


def _reference(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text()


def _first_cells(text: str) -> Names:
    return set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))


def _headings(text: str, depth: int) -> Names:
    return set(re.findall(rf"^{'#' * depth} (.+)$", text, re.MULTILINE))


def _lost(pattern: str, known: Names) -> dict[str, Names]:
    """Names of that pattern on each page that are none; a group of it is the name."""
    found = {
        str(page.relative_to(ROOT)): set(re.findall(pattern, page.read_text())) - known for page in PAGES
    }
    return {page: names for page, names in found.items() if names}


def test_settings() -> None:
    known = {variable.name for rows in PARTS.values() for variable in rows}
    assert _first_cells(_reference("settings.md")) == known
    assert _lost(r"\bQUEUER_[A-Z_]+[A-Z]\b", {*known, "QUEUER_OIDC"}) == {}


def test_metrics() -> None:
    known = {family.name for family in (*controller(), *api())}
    assert _first_cells(_reference("metrics.md")) == known
    parts = {f"{name}_{part}" for name in known for part in ("bucket", "count", "sum")}
    assert _lost(r"(?<![\w/])queuer_[a-z_]+[a-z]\b(?![\w/]*\.)", known | parts) == {}


def test_reasons() -> None:
    page = _reference("reasons.md")
    assert _headings(page, 2) == {str(token) for token in Token}
    assert _lost(r"(?m)^(?:WAIT|CHANGE|HELD|ESCALATE)  (\w+):", {str(token) for token in Token}) == {}


def test_labels() -> None:
    known = {key.name.removeprefix("queuer.dev/") for key in KEYS}
    assert {name.replace("<podset>", "") for name in _first_cells(_reference("labels.md"))} == known
    written = {name.rstrip(".") for name in known} | {"v1", "v1beta1"}
    assert _lost(r"(?<!\.)\bqueuer\.dev/([a-z][a-z0-9-]*)", written) == {}


def test_routes() -> None:
    known = {f"{m.upper()} {p}" for p, row in document()["paths"].items() for m in METHODS if m in row}
    assert {name for name in _headings(_reference("rest.md"), 3) if " " in name} == known
    short = {name.replace("/api/v1", "") for name in known}
    written = r"`((?:GET|PUT|POST|PATCH|DELETE) /[^`?\s]*)"
    place = re.compile(r"\{\w+\}|\$\w+")
    places = {place.sub("{}", name) for name in known | short}
    found = {name for names in _lost(written, set()).values() for name in names}
    assert {name for name in found if place.sub("{}", name) not in places} == set()


@cache
def _verbs() -> dict[str, Any]:
    def below(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        yield name, command
        for word, verb in getattr(command, "commands", {}).items():
            yield from below(verb, f"{name} {word}")

    return dict(below(typer.main.get_command(build([])), "queuer"))


def test_verbs() -> None:
    leaves = {
        name
        for name, verb in _verbs().items()
        if name != "queuer" and (not getattr(verb, "commands", {}) or verb.invoke_without_command)
    }
    assert {name for name in _headings(_reference("cli.md"), 3) if name.startswith("queuer")} == leaves
    wrong = []
    for page in PAGES:
        text = page.read_text()
        typed = re.findall(r"^\$ (?:\w+=\S+ )*(queuer .+)$", text, re.MULTILINE)
        for line in [*typed, *re.findall(r"`(queuer [^`]+)`", text)]:
            wrong += [f"{page.name}: {line}"] if _unknown(re.split(r" \| |[#;]", line)[0]) else []
    assert wrong == []


def _unknown(line: str) -> bool:
    """Whether a verb or an option of a command line is none."""
    name, words = "queuer", line.split()[1:]
    while words and f"{name} {words[0]}" in _verbs():
        name = f"{name} {words.pop(0)}"
    verb = _verbs()[name]
    if name == "queuer" and words and not words[0].startswith("-"):
        return True
    options = {option for p in verb.params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
    asked = {word.split("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z-]+(=.*)?", word)}
    return not asked <= options


def _leaves(found: Any, path: str = "") -> Iterator[str]:
    """Dotted paths of all that is no further map."""
    if isinstance(found, dict) and found:
        for name, below in found.items():
            yield from _leaves(below, f"{path}.{name}" if path else str(name))
    else:
        yield path


def test_values_of_the_chart() -> None:
    leaves = set(_leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    inner = {leaf.rsplit(".", n)[0] for leaf in leaves for n in range(1, leaf.count(".") + 1)}
    page = _first_cells(_reference("values.md").split("\n## ")[0])
    assert page <= leaves | inner
    assert {
        leaf for leaf in leaves if not any(leaf == row or leaf.startswith(f"{row}.") for row in page)
    } == set()
    heads = "|".join(sorted({leaf.split(".")[0] for leaf in leaves}))
    lost = _lost(rf"`((?:{heads})(?:\.[a-zA-Z]+)+)[`:=]", leaves | inner)
    assert {
        page: names for page, names in lost.items() if page.startswith(("docs/install", "docs/operations"))
    } == {}


def test_values_of_other_charts_are_refused_and_lead_to_values_of_this_one() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def known(path: str) -> bool:
        at: Any = schema
        for name in path.split("."):
            at = at.get("properties", {}).get(name)
            if at is None:
                return False
        return True

    for names, here in HABITS:
        assert [name for name in names.split(", ") if known(name)] == []
        named = [name for name in re.findall(r"`([a-zA-Z.]+)`", here) if name != "labels"]
        assert [name for name in named if not known(name)] == []


def test_fields_of_custom_resources() -> None:
    for file in sorted((CHART / "files" / "crds").iterdir()):
        found = yaml.safe_load(file.read_text())
        section = _reference("crds.md").split(f"\n## {found['spec']['names']['kind']}\n")[1].split("\n## ")[0]
        schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        fields = dict(_properties(schema))
        assert _first_cells(section) == set(fields) - {"spec", "status"}
        assert [
            path for path in fields if path.startswith("spec.") and "description" not in fields[path]
        ] == []


def _properties(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, below in schema.get("properties", {}).items():
        yield f"{path}{name}", below
        yield from _properties(below, f"{path}{name}.")
        yield from _properties(below.get("items", {}), f"{path}{name}[].")


def test_kinds_of_job() -> None:
    assert _headings(_reference("kinds.md"), 2) == {kind.name for kind in KINDS}

"""Templates of the pages: whatever a job or user is called is text in them, never markup."""

from __future__ import annotations

from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined

BUILT = resources.files("queuer.api.pages").joinpath("web")
"""Where `make web` puts the dashboard. Its `index.html` is missing where it was not built."""


def short(resource: str) -> str:
    """`gpu` of `nvidia.com/gpu`."""
    return resource.rsplit("/", 1)[-1]


def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("queuer.api.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["short"] = short
    return environment


TEMPLATES = _templates()

"""The policies and rights of the chart are those that the rows of job kinds make."""

from __future__ import annotations

import pytest

from tools.policies.render import FOLDER, made


@pytest.mark.parametrize("name", made())
def test_the_chart_has_what_the_rows_make(name: str) -> None:
    assert (FOLDER / name).read_text() == made()[name], "run `python -m tools.policies`"

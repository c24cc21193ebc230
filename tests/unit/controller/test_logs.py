"""Log lines are JSON, and tell no secrets."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from queuer.controller.logs import configure, logger

def connect(password):
    raise OSError("no answer")

configure()
try:
    connect("s3cret")
except OSError:
    logger("main").exception("failed", workload="u")
"""


def test_a_fault_is_logged_without_the_values_of_variables() -> None:
    """One of them is the password of the database."""
    program = PROGRAM.replace('"s3cret"', '"s3" + "cret"')
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr
    assert '"workload": "u"' in said
    assert "no answer" in said
    assert "s3cret" not in said

"""The verifier: judges a plan in plain Python, without a line of the code that made it (DESIGN 4)."""

from queuer.core.verify.case import Rule, Violation
from queuer.core.verify.plan import verify

__all__ = ["Rule", "Violation", "verify"]

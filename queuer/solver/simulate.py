"""Names under which the API still asks; they are at home in `whatif`."""

from queuer.solver.whatif import UID, Question, Simulated, Simulations

__all__ = ["UID", "Question", "Simulated", "Simulations"]

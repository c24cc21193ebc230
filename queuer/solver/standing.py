"""The name under which the API still asks; it is at home in `after_cycle`."""

from queuer.solver.after_cycle import AfterCycle as Standing

__all__ = ["Standing"]

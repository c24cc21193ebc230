"""The exact solver behind `decide()`: data → variables → constraints → objective → result.

`data` states the question in arrays, `model` writes it as rows of integers, `proto` speaks to CP-SAT (the only
module that imports ortools), `checks` and `needed` hold what is not linear, and `solver` runs the passes.
"""

from queuer.solver.cpsat.solver import CpSat

__all__ = ["CpSat"]

"""What would become of a job that is only asked about: what intake says to it, its user's limits, then the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.fields import nearest
from queuer.domain.intake import check, over_max_pending
from queuer.domain.keys import PRIORITY_CLASS
from queuer.domain.per_user import too_large
from queuer.domain.reasons import Explanation
from queuer.domain.rules import Rules
from queuer.domain.workload import Workload
from queuer.solver.outlook import Outlook
from queuer.solver.simulate import Question, Simulated, Simulations
from queuer.solver.stored import StoredCycle


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job that is asked about. `question`: its workload and the rules; `groups`: of its user; `priority_class`: by
    which its priority is found, "" = that of jobs that name none, None = its priority is said; `ahead`: how many of its
    namespace wait in its queue.
    """

    question: Question
    groups: tuple[str, ...] = ()
    priority_class: str | None = None
    ahead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What was found. `unseen`: kinds of objects in its namespace that nobody looked at, and that may stand against
    it.
    """

    said: Simulated
    unseen: tuple[str, ...] = ()


def judge(cycle: StoredCycle, simulations: Simulations, case: Case) -> Judged:
    """What `cycle` makes of the job; `simulations`: of that cycle. Raises InvalidInput, UnsoundPlan."""
    workload, values = case.question.workload, cycle.priorities
    if case.priority_class is not None:
        workload = replace(workload, priority=_value(case.priority_class, values))
    rules = case.question.rules or cycle.snapshot.rules
    refusal = _refusal(workload, rules, cycle, case)
    said = Simulated(explanation=refusal)
    if refusal is None:
        said = simulations.ask(replace(case.question, workload=workload))
    return Judged(said=said, unseen=cycle.unseen.get(workload.namespace, ()))


def _refusal(workload: Workload, rules: Rules, cycle: StoredCycle, case: Case) -> Explanation | None:
    """Why it would be put before no decision."""
    nodes = [state.node for state in cycle.snapshot.nodes]
    fault = check(
        workload, rules.tree, rules.topology, nodes, priorities=cycle.priorities, groups=case.groups
    )
    if fault is not None:
        return fault.explanation
    most = rules.tree.access(workload.queue).max_pending
    if most is None or case.ahead < most:
        return None
    outlook = Outlook(nodes, tree=rules.tree, topology=rules.topology, flavors=rules.flavors)
    never = outlook.never(workload) or too_large(workload, rules.tree)
    return never or over_max_pending(workload.queue, workload.namespace, most)


def _value(name: str, values: Mapping[str, int]) -> int:
    """The priority that a class gives; "" = that of jobs that name none. Raises InvalidInput."""
    if name and name not in values:
        known = [each for each in values if each]
        message = f"there is no PriorityClass {name[:60]!r}"
        raise InvalidInput(
            FieldProblem(field=f"label {PRIORITY_CLASS}", message=message, hint=nearest(name[:60], known))
        )
    return values.get(name, 0)

"""What an answer says of other jobs: those that its reader may see by name, all others by queue and amount alone.

What is stored names no job of another namespace anyhow; what is worked out on the stored cycle knows all of them.
"""

from __future__ import annotations

from queuer.api.identity.rights import Asker
from queuer.api.workloads import views
from queuer.api.workloads.detail import Detail
from queuer.api.workloads.models import WorkloadDetail
from queuer.domain.reasons import Explanation
from queuer.domain.veil import hidden, named_in, namespaces, veiled


async def answer(found: WorkloadDetail, told: Explanation | None, asker: Asker) -> WorkloadDetail:
    """The workload with what the newest cycle has to say of it (`told`), as this caller may have it."""
    recorded = found.explanation
    own = recorded.detail.model_dump(exclude_unset=True)
    named = {*named_in(own), *(namespaces(told) if told else ())}
    reads = (await asker.readable(named)).__contains__ if named else named.__contains__
    detail = Detail.model_validate(hidden(own, reads))
    explanation = recorded.model_copy(update={"detail": detail})
    known = found.model_copy(update={"explanation": explanation})
    return views.advised(views.explained(known, None if told is None else veiled(told, reads)))

"""Looks at the guard's policies every few seconds, and says what is wrong with them to whoever admits or tells.

The version of the API server says which policies must be there. After an upgrade of the cluster those of the reduced
form go on to guard, until the chart is upgraded too. No policies serve on a version that Queuer refuses.

A look that gets no answer changes nothing: nothing can be admitted without the API server either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from queuer.controller.health.metrics import Metrics
from queuer.controller.health.probes import Health
from queuer.controller.logs import logger
from queuer.domain.errors import QueuerError
from queuer.kube.client import Client
from queuer.kube.guard import faults_of_guard, shipped_guard
from queuer.kube.operators import USUAL, Operators
from queuer.kube.resources import SYSTEM_NAMESPACE
from queuer.kube.versions import Form, KubernetesTooOld

log = logger("guard")
EVERY = 10.0
"""Seconds between two looks: for so long a job may be admitted after a policy was taken away."""
_UNSEEN = "the admission policies queuer-guard were not looked at yet"
_INSTALL = "`queuer doctor` names the command that mends it"


class GuardWatch:
    """Keeps `health.unguarded` and the gauge. `changed` is called where admission ends or may begin.

    `namespace`: where Queuer is installed, whose controller the policies trust, beside the `operators`.
    """

    def __init__(
        self,
        client: Client,
        health: Health,
        metrics: Metrics,
        *,
        changed: Callable[[], None],
        namespace: str = SYSTEM_NAMESPACE,
        operators: Operators = USUAL,
    ) -> None:
        self._client, self._health, self._metrics, self._changed = client, health, metrics, changed
        self._wanted = {form: shipped_guard(namespace, form=form, operators=operators) for form in Form}
        self._older = False
        health.unguarded = _UNSEEN

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """Compare what is installed with what is shipped."""
        try:
            found = await self._faults()
            said = _summary_of(found)
        except KubernetesTooOld as error:
            found, said = (error.message,), str(error)
        except QueuerError as error:
            log.warning("the guard was not seen", said=str(error))
            return
        self._metrics.guard_faults.set(len(found))
        if said != self._health.unguarded:
            log.log(30 if found else 20, "the guard changed", faults=list(found))
            self._health.unguarded = said
            self._changed()

    async def _faults(self) -> tuple[str, ...]:
        """The faults of the guard; the policies of the reduced form serve in place of the full one's."""
        form = await self._client.form()
        found = await faults_of_guard(self._client, self._wanted[form])
        before, self._older = self._older, False
        if (
            form is Form.REDUCED
            or not found
            or await faults_of_guard(self._client, self._wanted[Form.REDUCED])
        ):
            return found
        self._older = True
        if not before:
            log.warning("the policies are those for Kubernetes below 1.36: run `helm upgrade`")
        return ()


def _summary_of(faults: tuple[str, ...]) -> str | None:
    """The first fault, the number of the others and the fix; None without a fault."""
    if not faults:
        return None
    more = f", and {len(faults) - 1} more are" if len(faults) > 1 else ""
    return f"{faults[0]}{more}: {_INSTALL}"

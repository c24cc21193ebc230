"""Reasons: why a workload waits, from the decision to the page. Every layer imports them from here.

`table` has a row for each token, with its verdict, meaning, sentence and next step.
"""

from queuer.domain.reasons.amounts import be, moment, plural
from queuer.domain.reasons.changes import ChangeKind, JobChange, Limit, with_evictions
from queuer.domain.reasons.hide import hide, namespaces_in
from queuer.domain.reasons.next_steps import AdvisedJob, NextStep, Reader, look_at, save_work
from queuer.domain.reasons.reason import (
    LONGEST,
    NO_PARAMS,
    Exclusion,
    Explanation,
    Reason,
    malformed,
    simple,
)
from queuer.domain.reasons.state_sentences import closed_queue, halting, jobs_with, over_limit_of, said_by
from queuer.domain.reasons.table import ROWS, Row, Token, Verdict

__all__ = [
    "LONGEST",
    "NO_PARAMS",
    "ROWS",
    "AdvisedJob",
    "ChangeKind",
    "Exclusion",
    "Explanation",
    "JobChange",
    "Limit",
    "NextStep",
    "Reader",
    "Reason",
    "Row",
    "Token",
    "Verdict",
    "be",
    "closed_queue",
    "halting",
    "hide",
    "jobs_with",
    "look_at",
    "malformed",
    "moment",
    "namespaces_in",
    "over_limit_of",
    "plural",
    "said_by",
    "save_work",
    "simple",
    "with_evictions",
]

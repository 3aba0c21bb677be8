"""From what the user chose to the policies of the queries, which learn from what they are asked and from nothing else.

The policies that plan need scipy, which takes long to import: it is imported once one of them is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from policies.advice import Advice, PolicyAnswer, Question, Reactive, Site, VmPolicy

if TYPE_CHECKING:
    from policies.planning.plain import CpuOptions, StaticOptions
    from policies.planning.planner import PlannerOptions
    from policies.planning.queueing import QueueingOptions
    from policies.signals import Ask
    from policies.switching.query import QuerySettings

    PolicyOptions = PlannerOptions | QueueingOptions | CpuOptions | StaticOptions
    """What the user says of a policy; None stands for the reactive one, which has nothing to say."""


def make_policy(options: PolicyOptions | None, site: Site, latency_s: float) -> VmPolicy:
    """Return a query's policy.

    Args:
        options: what the user chose.
        site: what is the same for all queries.
        latency_s: what is promised to the query.
    """
    if options is None:
        return Reactive()
    from policies.planning.plain import CpuOptions, CpuPolicy, StaticOptions, StaticPolicy
    from policies.planning.planner import Planner, PlannerOptions
    from policies.planning.queueing import QueueingPolicy

    match options:
        case PlannerOptions():
            return Planner(options, site, latency_s)
        case CpuOptions():
            return CpuPolicy(options, site, latency_s)
        case StaticOptions():
            return StaticPolicy(options)
        case _:
            return QueueingPolicy(options, site, latency_s)


class Policies:
    """The policies of a gateway's queries. They answer ``Ask``; nobody else holds or changes them.

    A policy may take long to answer, so it may be asked on another thread, by one at a time.

    Args:
        queries: all queries of the gateway; those without a policy are not asked.
        site: what is the same for all of them.
    """

    def __init__(self, queries: Iterable[QuerySettings], site: Site) -> None:
        self._policies = {
            query.name: make_policy(query.policy, site, query.latency_qos_s)
            for query in queries
            if query.policy is not None
        }
        self._last: dict[str, Advice] = {}
        self._turn = 0

    def answer(self, ask: Ask) -> tuple[PolicyAnswer, ...]:
        """Return what the policies say; takes as long as planning does.

        Raises:
            ValueError: a question was left out, so the policies do not know what they should.
        """
        if ask.turn != self._turn + 1:
            raise ValueError(f"the policies were asked {self._turn} times, and question {ask.turn} came next")
        self._turn = ask.turn
        return tuple(self._answer(question) for question in ask.questions)

    def _answer(self, question: Question) -> PolicyAnswer:
        name, policy = question.query, self._policies[question.query]
        if question.training is not None:
            policy.fitted(question.training.models, question.training.trouble)
        advice = policy.advise(question.seen)
        news = None if advice is self._last.get(name) else advice
        self._last[name] = advice
        return PolicyAnswer(query=name, advice=news, order=policy.fit_order() if question.learns else None)

"""Creates the policies that the user chose. A policy learns only from the questions it gets.

The planning policies need scipy, which takes long to import, so it is imported once one of them is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from policies.advice import Advice, PolicyAnswer, Question, Reactive, Site, VmPolicy

if TYPE_CHECKING:
    from policies.announcement import Announcement
    from policies.auto.policy import AutoOptions
    from policies.lookahead.policy import LookaheadOptions
    from policies.planning.plain import CpuOptions, StaticOptions
    from policies.planning.planner import PlannerOptions
    from policies.planning.queueing import QueueingOptions
    from policies.signals import Ask
    from policies.switching.query import QuerySettings

    PolicyOptions = PlannerOptions | QueueingOptions | CpuOptions | StaticOptions | LookaheadOptions | AutoOptions
    """The user's settings of a policy; None means the reactive one, which has no settings."""


class Choice(NamedTuple):
    """What determines a query's policy beside ``Site``.

    Attributes:
        options: the user's settings of the policy.
        latency_s: the latency that the query promises.
        is_announced: whether load is announced. When it comes may change, and the policy goes on.
    """

    options: PolicyOptions | None
    latency_s: float
    is_announced: bool = False

    @property
    def is_asked(self) -> bool:
        """Return whether the policy gets questions: plain equation 1 gets none."""
        return self.options is not None or self.is_announced


def choice(settings: QuerySettings) -> Choice:
    """Return what determines a query's policy."""
    return Choice(settings.policy, settings.latency_qos_s, bool(settings.announced))


def make_policy(chosen: Choice, site: Site, announced: tuple[Announcement, ...] = ()) -> VmPolicy:
    """Return a query's policy.

    Args:
        chosen: what determines it.
        site: the settings that all queries share.
        announced: its load that is known in advance.
    """
    policy = _policy(chosen, site)
    if not chosen.is_announced:
        return policy
    from policies.announced.policy import AnnouncedPolicy

    return AnnouncedPolicy(policy, announced, site, chosen.latency_s)


def _policy(chosen: Choice, site: Site) -> VmPolicy:
    if chosen.options is None:
        return Reactive()
    from policies.lookahead.early import EarlySending
    from policies.lookahead.policy import LookaheadOptions, LookaheadPolicy

    if isinstance(chosen.options, LookaheadOptions):
        return LookaheadPolicy(site, chosen.latency_s)
    return EarlySending(_sent_early(chosen, site), site, chosen.latency_s)


def _sent_early(chosen: Choice, site: Site) -> VmPolicy:
    from policies.auto.policy import AutoOptions, AutoPolicy
    from policies.planning.plain import CpuOptions, CpuPolicy, StaticOptions, StaticPolicy
    from policies.planning.planner import Planner, PlannerOptions
    from policies.planning.queueing import QueueingOptions, QueueingPolicy

    match chosen.options:
        case PlannerOptions():
            return Planner(chosen.options, site, chosen.latency_s)
        case CpuOptions():
            return CpuPolicy(chosen.options, site, chosen.latency_s)
        case StaticOptions():
            return StaticPolicy(chosen.options)
        case AutoOptions():
            return AutoPolicy(chosen.options, site, chosen.latency_s)
        case QueueingOptions():
            return QueueingPolicy(chosen.options, site, chosen.latency_s)
        case _:
            raise ValueError(f"there is no policy for {chosen.options!r}")


class Policies:
    """The policies of a gateway's queries. They answer ``Ask``; nothing else holds or changes them.

    A policy may take long to answer, so it may run on another thread, one call at a time.

    Args:
        queries: all queries of the gateway; those with equation 1 alone get no questions.
        site: the settings that all queries share.
    """

    def __init__(self, queries: Sequence[QuerySettings], site: Site) -> None:
        self._site = site
        self._chosen: dict[str, Choice] = {}
        self._policies: dict[str, VmPolicy] = {}
        self._last: dict[str, Advice] = {}
        self._turn = 0
        self.change(queries, site)

    def change(self, queries: Sequence[QuerySettings], site: Site) -> None:
        """Take other settings: a changed policy begins anew, the others go on with what they have learned."""
        announced = {query.name: query.announced for query in queries}
        chosen = {query.name: choice(query) for query in queries if choice(query).is_asked}
        kept = {name for name, each in chosen.items() if site == self._site and self._chosen.get(name) == each}
        self._policies = {
            name: self._policies[name] if name in kept else make_policy(each, site, announced[name])
            for name, each in chosen.items()
        }
        for name in kept:
            self._policies[name].announce(announced[name])
        self._last = {name: advice for name, advice in self._last.items() if name in kept}
        self._site, self._chosen = site, chosen

    def answer(self, ask: Ask) -> tuple[PolicyAnswer, ...]:
        """Return the policies' answers; takes as long as planning does.

        Raises:
            ValueError: a question was left out, so the policies lack data.
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

"""How many VMs the queries want: by equation 1, or ahead of time by the policy of a query.

VMs serve all queries. The largest number that any query wants counts, or the number that all need together, if that is
larger (``policies.together``). After a change, a VM that is wanted ahead of time waits
(``policies.planning.cooldown``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from policies.advice import Advice, FitOrder, PolicyAnswer, Question, Seen, Site, StandingVm, Training
from policies.choose import choice, make_policy
from policies.planning.cooldown import CoolDown
from policies.signals import HOME, Ask, Cause, Command, Fit, Fitted, SlotEnded
from policies.switching.query import SwitchedQuery
from policies.together import Overlap, together
from policies.vms.fleet import Fleet
from policies.vms.machine import VmAccount
from policies.vms.vm import VmState

_JITTER = 0.1


class Demand:
    """The questions to the queries' policies, and their latest answers.

    The policies themselves are elsewhere: this class knows only their kind and their answers.

    Args:
        queries: all queries by name.
        site: the settings that all queries share.

    Attributes:
        unanswered: whether the policies were asked and have not answered yet.
    """

    def __init__(self, queries: Mapping[str, SwitchedQuery], site: Site) -> None:
        self._queries = queries
        self._site = site
        self._choose()
        self._fitting: set[str] = set()
        self._void: set[str] = set()
        self._cool_down = CoolDown(site.terms.period_s, _JITTER * site.slot_s)
        self._trained: dict[str, Training] = {}
        self._asked = 0
        self.unanswered = False
        self._overlap = Overlap(site.slot_s)
        self._said: Mapping[str, Advice] = dict.fromkeys(queries, Advice())
        self.advice: Mapping[str, Advice] = self._said

    def _choose(self) -> None:
        """Note the policy of each query. They are asked elsewhere; these instances only tell their kind."""
        self._chosen = {name: choice(query.settings) for name, query in self._queries.items()}
        self._kinds = {name: make_policy(chosen, self._site) for name, chosen in self._chosen.items()}
        self._planning = [name for name, chosen in self._chosen.items() if chosen.is_asked]

    def change(self, site: Site) -> None:
        """Take other settings: queries that are new, changed or gone, and ``site``.

        A changed policy begins anew: its advice, and a training that is under way, count no more.

        Raises:
            ValueError: the policies were asked and have not answered yet.
        """
        if self.unanswered:
            raise ValueError("settings cannot change between a question to the policies and their answers")
        before, same_site = self._chosen, site == self._site
        self._site = site
        self._choose()
        kept = {name for name, chosen in self._chosen.items() if before.get(name) == chosen}
        kept = {name for name in kept if same_site or name not in self._planning}
        self._void |= self._fitting - kept
        self._fitting &= kept
        self._trained = {name: trained for name, trained in self._trained.items() if name in kept}
        self._said = {name: self._said[name] if name in kept else Advice() for name in self._queries}
        self.advice = {name: self.advice[name] if name in kept else Advice() for name in self._queries}
        for name in self._queries.keys() - kept:
            self._queries[name].home_alone_s = 0.0

    # --------------------------------------------------------------------------------------------------------- asking

    @property
    def plans(self) -> bool:
        """Return whether any policy is asked at the end of a slot."""
        return bool(self._planning)

    def ask(self, event: SlotEnded, fleet: Fleet, *, learn: bool) -> Ask:
        """Return the question to every policy, except plain equation 1, at the end of a slot.

        Args:
            event: the slot.
            fleet: the VMs, already updated with the slot.
            learn: whether models may be trained.
        """
        self._overlap.observe(event.queries)
        uses = [event.cpu[lane] for lane in (HOME, *fleet.ready) if lane in event.cpu]
        cpu = sum(uses) / len(uses) if uses else None
        boot_s = fleet.boot(event.at_s).expected_s
        vms = tuple(self._standing(fleet.live[name], event.at_s, boot_s) for name in fleet.wanted)
        questions = tuple(
            Question(
                query=name,
                seen=Seen(
                    at_s=event.at_s,
                    wall_s=fleet.wall_s(event.at_s),
                    slot=self._queries[name].shown,
                    boot_s=boot_s,
                    vms=vms,
                    cpu=cpu,
                    sent_part=self._queries[name].sent_part,
                ),
                training=self._trained.pop(name, None),
                learns=learn,
            )
            for name in self._planning
        )
        self._asked, self.unanswered = self._asked + 1, True
        return Ask(turn=self._asked, questions=questions, cause=Cause(event.event_id, "a slot is over"))

    def answered(self, turn: int, answers: Iterable[PolicyAnswer]) -> None:
        """Take the policies' answers.

        Raises:
            ValueError: they answer another question, or have answered this one before.
        """
        if not self.unanswered or turn != self._asked:
            state = "open" if self.unanswered else "answered"
            raise ValueError(f"question {turn} is answered, but question {self._asked} was the last and is {state}")
        self.unanswered = False
        news = {answer.query: answer.advice for answer in answers if answer.advice is not None}
        if not news:
            return
        self._said = {**self._said, **news}
        self.advice = together(
            self._said,
            {name: self._overlap.own_part(name) for name in self._planning},
            at_home=[name for name, query in self._queries.items() if query.why_home],
            max_vms=self._site.max_vms,
        )
        for name, query in self._queries.items():
            query.home_alone_s = self.advice[name].home_alone_s

    def fits(self, event_id: str, answers: Iterable[PolicyAnswer]) -> list[Command]:
        """Return the trainings that the policies ordered in their answers to the slot of this event."""
        return [self._fit(event_id, answer.query, answer.order) for answer in answers if answer.order is not None]

    def _fit(self, event_id: str, query: str, order: FitOrder) -> Fit:
        self._fitting.add(query)
        cause = Cause(event_id, f"{query}: its models learn what was seen since the last time")
        return Fit(query=query, training=order.training, cause=cause)

    def fitted(self, event: Fitted) -> None:
        """Keep the result of a training for a policy's next question.

        Raises:
            ValueError: the query's policy never orders a training.
        """
        if event.query in self._void:
            self._void.discard(event.query)
            return
        if event.query not in self._planning:
            raise ValueError(f"{self._kinds[event.query].name} never asked for {len(event.models)} models")
        self._fitting.discard(event.query)
        self._trained[event.query] = Training(event.models, event.trouble)

    def _standing(self, machine: VmAccount, at_s: float, boot_s: float) -> StandingVm:
        ready_in_s = 0.0
        if machine.state is VmState.STARTING:
            ready_in_s = max(self._site.slot_s, machine.since_s + boot_s - at_s)
        return StandingVm(ready_in_s, max(0.0, machine.block_end_s - at_s))

    def insists(self, name: str) -> bool:
        """Return whether a query wants its VMs even if they are of no use: its policy or an operator says so."""
        return self._kinds[name].insists or bool(self._queries[name].pinned_share)

    def foresees(self, name: str) -> bool:
        """Return whether a policy plans for a query, so that a VM may be idle now and needed later."""
        return self.advice[name].wanted is not None

    def policy(self, query: str) -> str:
        """Return the name of a query's policy."""
        return self._kinds[query].name

    # ------------------------------------------------------------------------------------------------------- starting

    def asks(self, name: str) -> bool:
        """Return whether a query asks for a VM by the first condition of equation 1."""
        advice = self.advice[name]
        acts = advice.wanted is None or (self._kinds[name].phi_starts and advice.phi_starts)
        return acts and self._queries[name].asks_for_vm()

    def patience_s(self, name: str, ready: int, boot_s: float) -> float:
        """Return how much longer than tau equation 1 waits.

        Where a policy has planned VMs that serve already, they get as much time as another VM would take to boot.

        Args:
            name: the query.
            ready: how many VMs serve.
            boot_s: how long another VM would take.
        """
        advice = self.advice[name]
        return boot_s if advice.wanted is not None and 0 < advice.wanted <= ready else 0.0

    def ahead(self, there: int) -> list[SwitchedQuery]:
        """Return the queries whose policies want more VMs than there are, the one that wants most first."""
        wanting = [
            (advice.wanted, name)
            for name, advice in self.advice.items()
            if advice.wanted is not None and advice.wanted > there and not self._queries[name].why_home
        ]
        return [self._queries[name] for _, name in sorted(wanting, key=lambda pair: -pair[0])]

    def at_once(self, ahead: Iterable[SwitchedQuery]) -> list[SwitchedQuery]:
        """Return those whose VMs do not wait until the last change was a billing period ago."""
        return [query for query in ahead if self.advice[query.settings.name].at_once]

    def pinned(self, there: int) -> list[SwitchedQuery]:
        """Return the queries that are pinned to the cloud and for which no VM exists."""
        return [] if there else [query for query in self._queries.values() if query.pinned_share]

    def cool_down_left_s(self, there: int, at_s: float) -> float:
        """Return how long no VM is started ahead of time, beyond those that exist."""
        return self._cool_down.left_s(there, at_s)

    def started(self, there: int, at_s: float) -> None:
        """Note that a VM was started; ``there`` includes it."""
        self._cool_down.started(there, at_s, self._foreseen)

    def ended(self, there: int, at_s: float) -> None:
        """Note that a VM is terminated because no query wanted it; ``there`` does not include it."""
        self._cool_down.ended(there, at_s, self._foreseen)

    @property
    def _foreseen(self) -> int:
        """Return how many VMs a query wants, or will want within a billing period."""
        asking = (advice for name, advice in self.advice.items() if not self._queries[name].why_home)
        return max((max(advice.wanted or 0, advice.rising_to) for advice in asking), default=0)

    # -------------------------------------------------------------------------------------------------------- keeping

    def keeps(self, name: str, others: int, period_bytes: int, at_s: float) -> bool:
        """Return whether a query wants a VM for another billing period.

        Args:
            name: the query.
            others: how many other VMs are wanted.
            period_bytes: D, raw bytes of the query that were sent to it in the period that ends.
            at_s: now.
        """
        query, advice = self._queries[name], self.advice[name]
        if query.pinned_share and not others:
            return True
        if advice.wanted is None:
            return query.keeps_vm(period_bytes, at_s)
        if query.why_home:
            return False
        return others < advice.kept or self.asks(name)

    def why_not_kept(self) -> str:
        """Return why no query wants a VM for another period."""
        said = [advice.why for advice in self.advice.values() if advice.wanted is not None]
        plain = "L < keep_vm_above and D < keep_vm_bytes"
        if not said:
            return plain
        return "; ".join([plain, *said] if len(said) < len(self.advice) else said)

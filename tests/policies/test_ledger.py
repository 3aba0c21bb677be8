import math
from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from policies.money.ledger import DAY_S, HOUR_S, Budget, Ledger, LedgerEntry, LedgerState, Reservation

NOON_S = 20_000 * DAY_S + 12 * HOUR_S


def reserve(ledger: Ledger, name: str, usd: float, at_s: float = NOON_S, query: str = "q") -> bool:
    return ledger.reserve(name, {query: usd}, at_s, at_s + 60.0)


def test_a_ledger_reserves_settles_and_releases() -> None:
    ledger = Ledger(Budget(1.0))
    assert reserve(ledger, "vm-1", 0.6)
    assert not reserve(ledger, "vm-2", 0.5)
    assert reserve(ledger, "vm-1", 0.9)
    assert not reserve(ledger, "vm-1", 1.1)
    assert ledger.reserved_for("vm-1") == pytest.approx(0.9)
    ledger.settle("vm-1", {"q": 0.25}, NOON_S + 1)
    assert (ledger.spent_usd(NOON_S), ledger.reserved_usd) == (0.25, 0.0)
    assert ledger.left_usd(NOON_S) == 0.75


def test_a_new_day_has_a_new_budget_and_what_was_committed_before_counts_to_the_old() -> None:
    midnight_s = 20_001 * DAY_S
    ledger = Ledger(Budget(1.0))
    assert reserve(ledger, "vm-1", 1.0, midnight_s - 1)
    assert ledger.left_usd(midnight_s - 1) == pytest.approx(0.0)
    assert ledger.left_usd(midnight_s) == pytest.approx(1.0)
    ledger.settle("vm-1", {"q": 0.7}, midnight_s + 10)
    assert ledger.spent_usd(midnight_s) == 0.0
    assert ledger.left_usd(midnight_s - 1) == pytest.approx(0.3)


def test_an_hour_has_a_limit_of_its_own() -> None:
    ledger = Ledger(Budget(usd_per_day=10.0, usd_per_hour=1.0))
    assert reserve(ledger, "vm-1", 1.0)
    assert not reserve(ledger, "vm-2", 0.1, NOON_S + HOUR_S - 1)
    assert reserve(ledger, "vm-2", 0.1, NOON_S + HOUR_S)


def test_what_is_added_slot_by_slot_is_kept_by_the_hour() -> None:
    ledger = Ledger(Budget(10.0))
    for slot in range(2, 7201):
        for query in ("a", "b"):
            assert ledger.reserve("vm-1", {query: slot * 1e-4}, NOON_S + slot, NOON_S + 2 * HOUR_S)
    (held,) = ledger.state.reserved
    assert [(part.hour % 24, part.query) for part in held.parts] == [
        (12, "a"), (12, "b"), (13, "a"), (13, "b"), (14, "a"), (14, "b"),
    ]  # fmt: skip
    assert [part.usd for part in held.parts[:4]] == pytest.approx([0.3599, 0.3599, 0.36, 0.36])
    assert ledger.reserved_for("vm-1", "b") == pytest.approx(0.72)


def test_a_clock_that_was_set_back_leaves_the_order_of_what_was_reserved() -> None:
    ledger = Ledger(Budget(10.0))
    for at, hour in enumerate((0, 1, 0), start=1):
        assert reserve(ledger, "vm-1", float(at), NOON_S + hour * HOUR_S)
    ledger.settle("vm-1", {"q": 1.5}, NOON_S, keep_usd={"q": 1.0})
    assert ledger.spent_usd(NOON_S) == pytest.approx(1.5)
    (held,) = ledger.state.reserved
    assert [(part.hour % 24, part.usd) for part in held.parts] == [(12, 1.0)]


def test_a_query_has_a_limit_of_its_own_that_others_do_not_use_up() -> None:
    ledger = Ledger(Budget(usd_per_query_day=1.0))
    assert reserve(ledger, "vm-1", 0.75, query="a")
    assert ledger.query_left_usd("a", NOON_S) == pytest.approx(0.25)
    assert ledger.query_left_usd("b", NOON_S) == 1.0
    ledger.settle("vm-1", {"a": 0.5}, NOON_S)
    assert ledger.query_left_usd("a", NOON_S) == pytest.approx(0.5)
    assert ledger.query_left_usd("a", NOON_S + DAY_S) == 1.0
    assert ledger.spent_by_query(NOON_S) == {"a": 0.5}


def test_without_a_budget_everything_fits() -> None:
    ledger = Ledger(Budget())
    assert reserve(ledger, "vm-1", 1e9)
    assert (ledger.left_usd(NOON_S), ledger.query_left_usd("q", NOON_S)) == (math.inf, math.inf)
    assert ledger.forecast(NOON_S, 1e6, 0.0) is None


def test_a_frozen_ledger_reserves_nothing_more() -> None:
    ledger = Ledger(Budget())
    assert reserve(ledger, "vm-1", 1.0)
    ledger.frozen = "the disk is full"
    assert reserve(ledger, "vm-1", 1.0)
    assert not reserve(ledger, "vm-1", 1.1)


def test_what_was_not_reserved_is_booked_and_named() -> None:
    ledger = Ledger(Budget(1.0))
    reserve(ledger, "vm-1", 0.6)
    ledger.settle("vm-1", {"q": 1.5}, NOON_S)
    assert [ledger.spent_usd(NOON_S), ledger.overrun_usd] == pytest.approx([1.5, 0.9])
    assert not reserve(ledger, "vm-2", 0.01)


def test_a_renewal_keeps_what_is_set_aside_for_the_next_block() -> None:
    ledger = Ledger(Budget(1.0))
    reserve(ledger, "vm-1", 0.4)
    assert reserve(ledger, "vm-1", 0.8, NOON_S + HOUR_S)
    ledger.settle("vm-1", {"q": 0.3}, NOON_S + HOUR_S, keep_usd={"q": 0.4})
    assert ledger.state == LedgerState(
        spent=(LedgerEntry(hour=480_012, query="q", usd=0.3),),
        reserved=(Reservation("vm-1", NOON_S + HOUR_S + 60, (LedgerEntry(480_013, "q", 0.4),)),),
    )


def test_a_forecast_by_hand() -> None:
    ledger = Ledger(Budget(usd_per_day=5.0, usd_per_hour=1.0))
    assert ledger.forecast(NOON_S, 0.0, 0.0) is None
    slow = ledger.forecast(NOON_S, 1.5 / HOUR_S, 0.0)
    assert slow is not None
    assert slow.limit == "usd_per_hour"
    assert slow.in_s == pytest.approx(2400.0)
    assert ledger.forecast(NOON_S, 0.4 / HOUR_S, 0.0) is None
    ledger = Ledger(Budget(usd_per_day=5.0))
    reserve(ledger, "vm-1", 2.0)
    day = ledger.forecast(NOON_S, 1.0 / HOUR_S, paid_ahead_usd=1.0)
    assert day is not None
    assert day.limit == "usd_per_day"
    assert day.in_s == pytest.approx(4 * HOUR_S)


def test_a_forecast_of_a_limit_that_is_passed_already_is_not_in_the_past() -> None:
    ledger = Ledger(Budget(usd_per_day=1.0))
    ledger.settle("vm-1", {"q": 2.0}, NOON_S)
    forecast = ledger.forecast(NOON_S, 1.0, 0.0)
    assert forecast is not None
    assert forecast.in_s == 0.0


@pytest.mark.parametrize(
    ("back_after_s", "periods"), [(30.0, 0), (60.0, 0), (61.0, 1), (119.0, 1), (121.0, 2), (9e5, 2)]
)
def test_what_a_gateway_that_died_had_reserved_is_spent_and_so_is_what_its_vms_entered(
    back_after_s: float, periods: int
) -> None:
    ledger = Ledger(Budget(1.0))
    reserve(ledger, "vm-1", 0.5)
    again = Ledger(Budget(1.0), ledger.state)
    given_up_usd = again.give_up_reservations(NOON_S + back_after_s, idle_s=90.0, period_s=60.0, usd_per_hour=6.0)
    assert given_up_usd == pytest.approx(0.5 + 0.1 * periods)
    assert again.spent_usd(NOON_S) == pytest.approx(0.5 + 0.1 * periods)
    assert [again.reserved_usd, again.overrun_usd] == pytest.approx([0.0, 0.1 * periods])


def test_only_the_last_days_are_kept() -> None:
    ledger = Ledger(Budget(1.0))
    for day in range(30):
        ledger.settle("vm-1", {"q": 0.5}, NOON_S + day * DAY_S)
    assert len(ledger.state.spent) == 7
    assert ledger.spent_usd(NOON_S + 29 * DAY_S) == 0.5


def test_nonsense_is_refused() -> None:
    for wrong in ((-1.0, None, None), (None, -1.0, None), (None, None, -1.0)):
        with pytest.raises(ValueError, match="negative"):
            Budget(*wrong)
    with pytest.raises(ValueError, match="cannot have cost"):
        Ledger(Budget(1.0)).settle("vm-1", {"q": -0.1}, NOON_S)


VMS = st.sampled_from(["vm-1", "vm-2", "vm-3"])
SPLITS = st.dictionaries(st.sampled_from(["a", "b"]), st.floats(0, 0.7), min_size=1)


class Books(RuleBasedStateMachine):
    """Separate books: every grant stays granted in its hour and day until less was spent."""

    @initialize(per_day=st.floats(0, 4), per_hour=st.none() | st.floats(0, 2), per_query=st.none() | st.floats(0, 2))
    def open(self, per_day: float, per_hour: float | None, per_query: float | None) -> None:
        self.budget = Budget(per_day, per_hour, per_query)
        self.ledger = Ledger(self.budget)
        self.now_s = NOON_S
        self.spent_usd = 0.0
        self.granted: dict[str, dict[str, float]] = {}
        self.by_hour: dict[int, float] = defaultdict(float)

    @rule(name=VMS, needs=SPLITS)
    def reserve(self, name: str, needs: dict[str, float]) -> None:
        held = self.granted.get(name, {})
        for query, usd in needs.items():
            if usd - held.get(query, 0.0) > self.ledger.query_left_usd(query, self.now_s):
                return
        if self.ledger.reserve(name, needs, self.now_s, self.now_s + 60.0):
            self.by_hour[int(self.now_s // HOUR_S)] += sum(max(0.0, usd - held.get(q, 0.0)) for q, usd in needs.items())
            self.granted[name] = {q: max(held.get(q, 0.0), needs.get(q, 0.0)) for q in {*held, *needs}}

    @rule(name=VMS, used=st.floats(0, 1))
    def settle(self, name: str, used: float) -> None:
        usd = {query: granted * used for query, granted in self.granted.pop(name, {}).items()}
        self.ledger.settle(name, usd, self.now_s)
        self.spent_usd += sum(usd.values())

    @rule(jump_s=st.sampled_from([0.5, 60.0, 1800.0, HOUR_S, -HOUR_S, DAY_S, -DAY_S, 2 * DAY_S, -2 * DAY_S]))
    def time_jumps(self, jump_s: float) -> None:
        if abs(self.now_s + jump_s - NOON_S) <= 2.6 * DAY_S:
            self.now_s += jump_s

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        self.ledger = Ledger(self.budget, self.ledger.state)
        if crash:
            lost_usd = self.ledger.give_up_reservations(self.now_s, idle_s=0.0, period_s=60.0, usd_per_hour=1.0)
            assert lost_usd == pytest.approx(sum(sum(granted.values()) for granted in self.granted.values()))
            self.spent_usd += lost_usd
            self.granted.clear()

    @invariant()
    def no_limit_is_passed(self) -> None:
        state = self.ledger.state
        parts = [*state.spent, *(part for held in state.reserved for part in held.parts)]
        by_day: dict[int, float] = defaultdict(float)
        by_query: dict[tuple[int, str], float] = defaultdict(float)
        by_hour: dict[int, float] = defaultdict(float)
        for part in parts:
            by_hour[part.hour] += part.usd
            by_day[part.hour // 24] += part.usd
            by_query[part.hour // 24, part.query] += part.usd
        for most_usd, limit_usd in (
            (max(by_day.values(), default=0.0), self.budget.usd_per_day),
            (max(by_hour.values(), default=0.0), self.budget.usd_per_hour),
            (max(by_query.values(), default=0.0), self.budget.usd_per_query_day),
        ):
            assert limit_usd is None or most_usd <= limit_usd + 1e-6
        assert all(usd <= self.by_hour[hour] + 1e-6 for hour, usd in by_hour.items())
        assert self.ledger.overrun_usd == pytest.approx(0.0, abs=1e-9)

    @invariant()
    def the_books_agree(self) -> None:
        spent_usd = math.fsum(entry.usd for entry in self.ledger.state.spent)
        assert spent_usd == pytest.approx(self.spent_usd, abs=1e-6)
        assert self.ledger.reserved_usd == pytest.approx(
            sum(sum(granted.values()) for granted in self.granted.values()), abs=1e-6
        )


Books.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestBooks = Books.TestCase

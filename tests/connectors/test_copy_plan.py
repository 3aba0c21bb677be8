"""The rules of a journal's copy, against a store that is a dict and a list of what was acknowledged."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.journal.copyplan import CopiedGroup, CopyPlan, KeptKeys, Placed, counted, decoded, encoded
from gateway.journal.files import JournalEntry
from gateway.journal.keys import SeenKey

# Four of them are worth a deletion.
SIZE_BYTES = 4 << 20


class CopiedJournal(RuleBasedStateMachine):
    """Owners one after another: each appends, fails after an upload, tidies up, and may die at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.store: dict[int, bytes] = {}
        self.kept: dict[str, bytes] = {}
        self.records: list[bytes] = []
        self.keys: set[str] = set()
        self.note = b""
        self.released = 0
        self.appends = 0
        self.epoch = 0
        self.fences: list[int] = []
        self.take_over()

    def put(self, first_record: int, entries: list[JournalEntry], notes: dict[str, bytes] | None = None) -> None:
        number = self.plan.next_number
        group = CopiedGroup("here", self.epoch, self.plan.base, self.fences[-1], first_record, entries, notes or {})
        assert number not in self.store
        self.store[number] = encoded(group)
        self.plan.uploaded(Placed(number, group, SIZE_BYTES))

    def entry(self) -> JournalEntry:
        self.appends += 1
        name = f"append {self.appends}"
        return JournalEntry(name.encode(), 1, float(self.appends), SeenKey(name, b"", 1, float(self.appends)))

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        entries = [self.entry() for _ in range(count)]
        self.note = b"%d" % self.appends
        self.put(len(self.records), entries, {"n": self.note})
        self.records += [entry.body for entry in entries]
        self.keys |= {entry.body.decode() for entry in entries}

    @rule(mended=st.booleans())
    def append_that_fails_after_its_upload(self, mended: bool) -> None:
        self.put(len(self.records), [self.entry()], {"n": b"never"})
        if mended:
            self.put(len(self.records), [])
        else:
            self.append(1)

    @rule(share=st.floats(0, 1))
    def release(self, share: float) -> None:
        self.released += int((len(self.records) - self.released) * share)

    @rule(dies=st.sampled_from(["not", "before it is stored", "before anything is deleted", "after one deletion"]))
    def tidy(self, dies: str) -> None:
        retired = self.plan.retired(self.released)
        if retired is not None:
            name = f"{retired.last:012d}-{self.epoch:05d}"
            if retired.kept is not None:
                self.kept[name] = encoded(retired.kept)
            if dies == "before it is stored":
                self.take_over()
                return
            self.plan.stored(retired, name)
        while dies != "before anything is deleted" and (number := self.plan.next_to_delete()) is not None:
            del self.store[number]
            self.plan.deleted()
            if dies == "after one deletion":
                break
        while dies == "not" and (kept := self.plan.next_kept_to_delete(0.0)) is not None:
            del self.kept[kept]
            self.plan.deleted_kept()
        if dies != "not":
            self.take_over()

    @rule()
    def take_over(self) -> None:
        """What the next owner finds must be what was acknowledged."""
        self.epoch += 1
        numbers = sorted(self.store)
        newest = decoded(self.store[numbers[-1]], CopiedGroup, "") if numbers else None
        base = 1 if newest is None else newest.base
        found = [Placed(n, decoded(self.store[n], CopiedGroup, ""), SIZE_BYTES) for n in numbers if n >= base]
        fence = (numbers or [0])[-1] + 1
        self.fences.append(fence)
        self.plan = CopyPlan(base, fence, self.fences)
        keys: set[str] = set()
        for name in sorted(self.kept):
            kept = decoded(self.kept[name], KeptKeys, name)
            self.plan.found_kept(name, kept)
            keys |= {key.key for key in kept.keys}
        records: list[bytes] = []
        for placed, counts in counted(found):
            self.plan.uploaded(placed)
            records += [entry.body for entry in placed.group.entries if counts]
        first = found[0].group.first_record if found else 0
        assert first <= self.released
        assert records == self.records[first:]
        assert keys | {record.decode() for record in records} == self.keys
        self.plan.found_unneeded(n for n in numbers if n < base)
        self.put(len(self.records), [])
        assert self.plan.notes.get("n", b"") == self.note

    @invariant()
    def fences_stay(self) -> None:
        assert set(self.fences) <= set(self.store)

    @invariant()
    def keys_share_objects(self) -> None:
        assert len(self.kept) <= self.epoch + 1


CopiedJournal.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestCopiedJournal = CopiedJournal.TestCase


def test_objects_that_nobody_needs_go() -> None:
    plan = CopyPlan(1, 1, [1])
    stored: set[int] = set()
    for n in range(1000):
        stored.add(plan.next_number)
        plan.uploaded(
            Placed(plan.next_number, CopiedGroup("h", 1, plan.base, 1, n, [JournalEntry(b"", 1, 0.0, None)]), 9)
        )
        if (retired := plan.retired(n)) is not None:
            plan.stored(retired, str(retired.last))
        while (number := plan.next_to_delete()) is not None:
            stored.remove(number)
            plan.deleted()
        assert len(stored) < 140
    assert 1 in stored

"""What crosses the WAN of a query's columns, and in which form; or why its protected fields keep the query at home."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec
import pyarrow as pa

from gateway.config.models import PayloadConfig
from infra.messages import HEARTBEAT, ColumnUse, Predicate, QueryPlan
from infra.payload import CodecPolicy, Encoder
from infra.payload.caching import CachingEncoder
from infra.payload.sealing import (
    Affixes,
    Constant,
    Encryption,
    FieldKeys,
    Seal,
    Tokens,
    UnsealableSeal,
    affixes_for,
    constant_for,
)

Form = Literal["clear", "tokens", "encrypted", "a constant"]


@dataclass(frozen=True)
class Crossing:
    """What is sent of a query's columns if it may be switched.

    Attributes:
        reason: why protected fields keep the query at home; empty if they do not.
        sent: the Arrow schema of the columns that are sent, nested fields pruned.
        forms: the form of each column that is sent.
        constants: what is sent in place of the values of a private field.
        affixes: text around the sealed values of a field.
        copies: the column of which a result column is a sealed copy.
    """

    reason: str
    sent: pa.Schema
    forms: Mapping[str, Form]
    constants: Mapping[str, object] = field(default_factory=dict)
    affixes: Mapping[str, Affixes] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)

    @property
    def sealed(self) -> tuple[str, ...]:
        """The columns that are sent as tokens or encrypted."""
        return tuple(self.affixes)

    def seals(self, keys: FieldKeys | None) -> tuple[dict[str, Seal], dict[str, UnsealableSeal]]:
        """Return the seals by column that is sent, and by result column that comes back sealed.

        Args:
            keys: the query's; may be None if nothing is ``sealed``.
        """
        known: dict[str, UnsealableSeal] = {}
        for name, affixes in self.affixes.items():
            assert keys is not None, "sealing takes keys"
            tokens = self.forms[name] == "tokens"
            known[name] = Tokens(keys, affixes) if tokens else Encryption(keys, name, affixes)
        constants = {name: Constant(value) for name, value in self.constants.items()}
        return {**known, **constants}, {result: known[name] for result, name in self.copies.items()}

    def applied_to(self, plan: QueryPlan) -> QueryPlan:
        """Return the plan, which may not be switched if there is a ``reason``.

        State at home holds clear values: a query with sealed fields cannot continue with it on a VM.
        """
        if plan.stateful and (self.reason or self.affixes or self.constants):
            plan = msgspec.structs.replace(plan, movable=False)
        if not self.reason or not plan.switchable:
            return plan
        return msgspec.structs.replace(plan, switchable=False, reason=self.reason)


def crossing_of(payload: PayloadConfig, plan: QueryPlan, columns: pa.Schema) -> Crossing:
    """Return what crosses the WAN of a query.

    Args:
        payload: its config.
        plan: the properties of its plan.
        columns: the Arrow schema of its events.
    """
    judge = _Judge(payload, plan, columns)
    reasons = [
        reason for option, names in payload.protected.items() for name in names for reason in judge(option, name)
    ]
    dropped = set(payload.private) - judge.constants.keys()
    sent = _needed(payload, plan, columns)
    sent = pa.schema([column for column in sent if column.name not in dropped])
    return Crossing(
        reason="; ".join(reasons),
        sent=sent,
        forms={name: judge.forms.get(name, "clear") for name in sent.names},
        constants=judge.constants,
        affixes={name: affixes for name, affixes in judge.affixes.items() if name in sent.names},
        copies={result: name for name in judge.affixes for result in judge.use(name).copies},
    )


class Encoding(NamedTuple):
    """How the runs of a query are encoded for a VM.

    Attributes:
        encoder: packs runs.
        predicates: the row conditions that it applies.
        codecs: how it packs.
    """

    encoder: Encoder | CachingEncoder
    predicates: tuple[Predicate, ...]
    codecs: CodecPolicy


def encoding_of(
    crossing: Crossing,
    payload: PayloadConfig,
    plan: QueryPlan,
    columns: pa.Schema,
    seals: Mapping[str, Seal],
    *,
    divided: bool = False,
    selects: bool = False,
) -> Encoding:
    """Return how the runs of a query are encoded for a lane to a VM, which needs an encoder of its own.

    Args:
        crossing: what is sent.
        payload: the query's config.
        plan: the properties of its plan.
        columns: the Arrow schema of its events.
        seals: by column that is sent.
        divided: whether it is a part of a query, whose runs have one more column.
        selects: whether its events are put together into selections, which one more column marks.

    Raises:
        ValueError: as ``Encoder`` does.
    """
    codecs = CodecPolicy.parse(payload.compress).without_dictionaries(crossing.sealed)
    # A stateful host counts every seq, and a row that no result needs may still move the watermark.
    predicates = plan.predicates if payload.filter and not plan.stateful else ()
    schema, needed = (of_runs(each, divided=divided) for each in (columns, crossing.sent))
    encoder = Encoder(schema, needed=needed, predicates=predicates, codecs=codecs, seals=seals)
    return Encoding(CachingEncoder(encoder) if selects else encoder, predicates, codecs)


def of_runs(events: pa.Schema, *, divided: bool) -> pa.Schema:
    """Return the schema in which runs are encoded whose events have this one.

    Args:
        events: the schema.
        divided: whether the runs are of a part of a query.
    """
    return events.append(pa.field(HEARTBEAT, pa.bool_())) if divided else events


def _needed(payload: PayloadConfig, plan: QueryPlan, columns: pa.Schema) -> pa.Schema:
    if not payload.trim or not plan.needed_schema:
        return columns
    return pa.ipc.read_schema(pa.py_buffer(plan.needed_schema))


class _Judge:
    """Decides the form of each protected field, and yields the reasons against sending the query's events."""

    def __init__(self, payload: PayloadConfig, plan: QueryPlan, columns: pa.Schema) -> None:
        self._tokenized = payload.tokenize
        self._filters = payload.filter
        self._plan = plan
        self._columns = columns
        self.forms: dict[str, Form] = {}
        self.constants: dict[str, object] = {}
        self.affixes: dict[str, Affixes] = {}

    def __call__(self, option: str, name: str) -> Iterator[str]:
        use = self.use(name)
        predicates = [each for each in self._plan.predicates if name in each.columns]
        if self._plan.uses is None:
            yield f"it is not known how its plan uses {name}, which is {_WORDS[option]}"
        elif use.other:
            yield f"its plan reads {name}, which is {_WORDS[option]}: {use.other}"
        elif predicates and not self._filters:
            yield f"its plan has a condition on {name}, which is {_WORDS[option]}, and filter is off"
        elif option == "private":
            yield from self._private(use, predicates)
        else:
            yield from self._sealed(option, use, predicates)

    def use(self, name: str) -> ColumnUse:
        return next((use for use in self._plan.uses or () if use.column == name), ColumnUse(column=name))

    def _private(self, use: ColumnUse, predicates: Sequence[Predicate]) -> Iterator[str]:
        name = use.column
        if use.copies:
            yield f"its results contain {name}, which is private"
        elif use.compared_with or use.tested_for_null:
            yield f"its plan reads {name}, which is private"
        elif predicates:
            constant = constant_for(name, self._columns.field(name).type, predicates)
            if constant is None:
                yield f"no constant can take the place of {name}, which is private, in its plan's conditions"
            elif constant[0] is not None:
                self.constants[name] = constant[0]
                self.forms[name] = "a constant"

    def _sealed(self, option: str, use: ColumnUse, predicates: Sequence[Predicate]) -> Iterator[str]:
        name, affixes = use.column, affixes_for(predicates)
        others = [other for other in use.compared_with if option == "encrypt" or other not in self._tokenized]
        if others:
            yield f"its plan compares {name}, which is {_WORDS[option]}, with {others[0]}"
        elif affixes is None:
            yield f"its plan has a condition on {name} that no value that is {_WORDS[option]} meets"
        elif use.compared_with and affixes != Affixes():
            yield f"its plan both compares {name}, which is tokenized, and searches its text"
        else:
            self.affixes[name] = affixes
            self.forms[name] = "tokens" if option == "tokenize" else "encrypted"


_WORDS: Mapping[str, str] = {"private": "private", "tokenize": "tokenized", "encrypt": "encrypted"}

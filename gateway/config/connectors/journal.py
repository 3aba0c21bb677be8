"""The config's section about the journal of a source that cannot replay."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gateway.config.words.fields import Section, Size


class JournalConfig(Section):
    """The journal on disk: everything that was received and is not committed yet.

    Attributes:
        limit_bytes: when it holds this much, nothing more is accepted until there is room.
        segment_bytes: size of its files; a file is deleted when everything in it is committed.
        replicate: senders are answered only when the fleet's object store has their events, too: then any gateway of
            the fleet can continue the query. Each answer takes one request to the store longer.
    """

    limit_bytes: Annotated[Size, Field(ge=2**20)] = Field(default=2**30, alias="limit")
    segment_bytes: Annotated[Size, Field(ge=2**16)] = Field(default=2**26, alias="segment")
    replicate: bool = False

"""Messages about copies of a stateful query's checkpoint."""

from __future__ import annotations

from infra.messages.base import Message


class StateMessage(Message, frozen=True, kw_only=True):
    """About a copy of a stateful query's checkpoint on a VM.

    Attributes:
        query: its name.
        copy: names the copy: hexadecimal digits.
    """

    query: str
    copy: str


class OfferState(StateMessage, frozen=True, kw_only=True):
    """Asks which contents of these files (payload: a list of ``StateFile``) the host does not have yet.

    The payload of the answer, `StateReply`, is the list of their fingerprints.
    """


class InstallState(StateMessage, frozen=True, kw_only=True):
    """Asks to make the files of the payload (a list of ``StateFile``), which all arrived, the checkpoint of the query.

    The query may then be opened with the ``checkpoint_dir`` that `state_folder` returns.
    """


class ListState(StateMessage, frozen=True, kw_only=True):
    """Asks for the files of the copy as they are now; the payload of the answer is a list of ``StateFile``."""


class FetchState(StateMessage, frozen=True, kw_only=True):
    """Asks for parts of listed files (payload: a list of ``StateSlice``): each comes as a `StatePart`."""


class StatePart(StateMessage, frozen=True, kw_only=True):
    """A part (the payload) of a file, from ``offset`` on; ``gone`` says that Spark has removed the file since."""

    sha256: str
    offset: int
    gone: bool = False


class StateEnd(StateMessage, frozen=True, kw_only=True):
    """Sent after some parts: the answer says that all of them are on disk."""


class StateReply(StateMessage, frozen=True, kw_only=True):
    """The host's answer to each of these messages but `StatePart`; ``reason`` says why it failed, or is empty."""

    reason: str = ""


def state_folder(query: str, copy: str) -> str:
    """Return the ``checkpoint_dir`` of a copy, relative to the working folder of a host."""
    return f"state/{query}/{copy}/checkpoints"

"""Values that cross the WAN sealed: as tokens, encrypted, or replaced by a constant; and how results are unsealed."""

from __future__ import annotations

from infra.payload.sealing.disguise import Affixes, affixes_for, constant_for
from infra.payload.sealing.keys import SECRET_BYTES, FieldKeys
from infra.payload.sealing.seals import Constant, Encryption, Seal, Tokens, UnsealableSeal, unsealed

__all__ = [
    "SECRET_BYTES",
    "Affixes",
    "Constant",
    "Encryption",
    "FieldKeys",
    "Seal",
    "Tokens",
    "UnsealableSeal",
    "affixes_for",
    "constant_for",
    "unsealed",
]

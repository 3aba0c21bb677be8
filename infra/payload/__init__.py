"""The encoding of a run's rows for the WAN: needed columns and rows only, each field with the codec that suits it."""

from __future__ import annotations

from infra.payload.codecs.choose import CODECS, Codec, Measurement, choose
from infra.payload.codecs.dictionaries import NewDictionary
from infra.payload.codecs.policy import DEFAULT_LINK_RATE, CodecPolicy
from infra.payload.decoder import DEFAULT_MAX_BYTES, Decoder
from infra.payload.encoder import Encoded, Encoder
from infra.payload.errors import PayloadError
from infra.payload.predicates import keep_mask, kept_rows, why_not_early

__all__ = [
    "CODECS",
    "DEFAULT_LINK_RATE",
    "DEFAULT_MAX_BYTES",
    "Codec",
    "CodecPolicy",
    "Decoder",
    "Encoded",
    "Encoder",
    "Measurement",
    "NewDictionary",
    "PayloadError",
    "choose",
    "keep_mask",
    "kept_rows",
    "why_not_early",
]

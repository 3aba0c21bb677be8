"""The config's section about what of an event crosses the WAN."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from gateway.config.words.fields import Finding, Section, refuse

Codec = Literal["none", "gzip", "zstd", "zstd-dict"]


def _word_or_codecs(value: object) -> object:
    """Check both forms here, so that an error names the field and not the branch of a union."""
    if isinstance(value, dict):
        known = get_args(Codec)
        bad = [str(field) for field, codec in value.items() if codec not in known]
        refuse([Finding(key=(field,), what=f"is not a codec; give one of {', '.join(known)}") for field in bad])
    elif value not in ("none", "auto"):
        raise ValueError(f'"{value}" is not valid; write none, auto, or a codec for each field as in {{body: zstd}}')
    return value


class PayloadConfig(Section):
    """How an event is reduced in size before it crosses the WAN, and which fields never cross it in clear.

    Attributes:
        trim: send only the columns that the query reads.
        filter: send only the rows that meet those conditions of the query that the gateway can evaluate.
        compress: ``auto`` picks the cheapest codec for each large field again and again; ``none`` sends them as they
            are; or a codec for each field: ``none``, ``gzip``, ``zstd`` or ``zstd-dict``.
        private: fields that never leave home.
        tokenize: fields of which tokens are sent; equal values have equal tokens.
        encrypt: fields that are sent encrypted.
    """

    trim: bool = True
    filter: bool = True
    compress: Annotated[
        Literal["none", "auto"] | dict[str, Codec], BeforeValidator(_word_or_codecs), Field(examples=[{"body": "zstd"}])
    ] = "auto"
    private: tuple[str, ...] = Field(default=(), examples=[["salary"]])
    tokenize: tuple[str, ...] = Field(default=(), examples=[["customer"]])
    encrypt: tuple[str, ...] = Field(default=(), examples=[["card"]])

    @property
    def protected(self) -> dict[str, tuple[str, ...]]:
        """Return the fields that are never sent in clear, by the option that protects them."""
        return {"private": self.private, "tokenize": self.tokenize, "encrypt": self.encrypt}

"""Seals a column before it is packed, and unseals the copies of it that come back in results.

The clear value of a string is its UTF-8 bytes. A sealed value is of the same type: bytes as they are, or as Base64 in
a string. NULL stays NULL.
"""

from __future__ import annotations

import os
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import pyarrow as pa
from cryptography.exceptions import InvalidTag

from infra.payload.errors import PayloadError
from infra.payload.sealing.disguise import Affixes
from infra.payload.sealing.keys import FieldKeys

_SALT_BYTES = 16
_ROW_BYTES = 4
_NONCE_BYTES = 12
_NO_AFFIXES = Affixes()


class Seal(Protocol):
    """Replaces the values of a column."""

    def seal(self, column: pa.Array) -> pa.Array:
        """Return a column of the same type and length."""
        ...


class UnsealableSeal(Seal, Protocol):
    """A seal that the gateway can undo."""

    def unseal(self, column: pa.Array) -> pa.Array:
        """Return the clear values of any rows of sealed columns.

        Raises:
            PayloadError: a value was not sealed like this.
        """
        ...


class Constant:
    """Replaces every value by the same one, so that nothing of the column is sent."""

    def __init__(self, value: object) -> None:
        self._value = value

    def seal(self, column: pa.Array) -> pa.Array:
        """See ``Seal``."""
        return pa.array([self._value] * len(column), column.type)


class Tokens:
    """AES-SIV (RFC 5297): equal values have equal tokens within a query."""

    def __init__(self, keys: FieldKeys, affixes: Affixes = _NO_AFFIXES) -> None:
        self._keys = keys
        self._affixes = affixes
        self._bound_to = [keys.query]

    def seal(self, column: pa.Array) -> pa.Array:
        """See ``Seal``."""
        distinct = column.dictionary_encode()
        return _written(distinct.dictionary, self._tokens, self._affixes).take(distinct.indices)

    def unseal(self, column: pa.Array) -> pa.Array:
        """See ``UnsealableSeal``."""
        distinct = column.dictionary_encode()
        return _read(distinct.dictionary, self._value, self._affixes).take(distinct.indices)

    def _tokens(self, values: Iterable[bytes]) -> list[bytes]:
        return [self._keys.tokens.encrypt(value, self._bound_to) for value in values]

    def _value(self, token: bytes) -> bytes:
        return self._keys.tokens.decrypt(token, self._bound_to)


class Encryption:
    """AES-256-GCM, each batch with a key of its own, which 16 random bytes and the gateway's secret determine.

    A value is sent as these bytes, its number in the batch, which is the nonce, and the ciphertext with its tag. With
    random nonces under one key, the values of a stream would be too many (NIST SP 800-38D allows 2^32).
    """

    def __init__(self, keys: FieldKeys, column: str, affixes: Affixes = _NO_AFFIXES) -> None:
        self._keys = keys
        self._affixes = affixes
        self._bound_to = keys.query + b"\0" + column.encode()

    def seal(self, column: pa.Array) -> pa.Array:
        """See ``Seal``."""
        return _written(column, self._encrypted, self._affixes)

    def unseal(self, column: pa.Array) -> pa.Array:
        """See ``UnsealableSeal``."""
        return _read(column, self._decrypted, self._affixes)

    def _encrypted(self, values: Iterable[bytes]) -> list[bytes]:
        salt = os.urandom(_SALT_BYTES)
        encrypt = self._keys.encryption(salt).encrypt
        return [
            salt + number[-_ROW_BYTES:] + encrypt(number, value, self._bound_to)
            for number, value in ((row.to_bytes(_NONCE_BYTES, "big"), value) for row, value in enumerate(values))
        ]

    def _decrypted(self, sealed: bytes) -> bytes:
        salt, number, rest = sealed[:_SALT_BYTES], sealed[_SALT_BYTES:][:_ROW_BYTES], sealed[_SALT_BYTES + _ROW_BYTES :]
        return self._keys.encryption(salt).decrypt(number.rjust(_NONCE_BYTES, b"\0"), rest, self._bound_to)


def unsealed(results: pa.RecordBatch, seals: Mapping[str, UnsealableSeal]) -> pa.RecordBatch:
    """Return results with the clear values of the sealed columns.

    Args:
        results: as a host sent them.
        seals: of the columns that are copies of sealed ones.

    Raises:
        PayloadError: a value was not sealed by this gateway for this column.
    """
    for name, seal in seals.items():
        at = results.schema.get_field_index(name)
        try:
            clear = seal.unseal(results.column(at))
        except PayloadError as error:
            raise PayloadError(f"result column {name!r}: {error.reason}") from error
        results = results.set_column(at, results.schema.field(at), clear)
    return results


def _written(column: pa.Array, seal: Callable[[Iterable[bytes]], list[bytes]], affixes: Affixes) -> pa.Array:
    values = column.cast(pa.binary()).to_pylist()
    sealed = iter(seal(value for value in values if value is not None))
    if pa.types.is_binary(column.type):
        return pa.array([None if value is None else next(sealed) for value in values], column.type)
    prefix, suffix = affixes
    texts = [
        None if value is None else f"{prefix}{b2a_base64(next(sealed), newline=False).decode()}{suffix}"
        for value in values
    ]
    return pa.array(texts, column.type)


def _read(column: pa.Array, open_one: Callable[[bytes], bytes], affixes: Affixes) -> pa.Array:
    is_text = pa.types.is_string(column.type)
    try:
        clear = [
            None if value is None else open_one(_taken_out(value, affixes) if is_text else value)
            for value in column.to_pylist()
        ]
    except (InvalidTag, ValueError) as error:
        raise PayloadError(f"a value was not sealed by this gateway for this field ({type(error).__name__})") from error
    return pa.array(clear, pa.binary()).cast(column.type)


def _taken_out(text: str, affixes: Affixes) -> bytes:
    prefix, suffix = affixes
    if not text.startswith(prefix) or not text.endswith(suffix):
        raise ValueError("the text around it is missing")
    return a2b_base64(text[len(prefix) : len(text) - len(suffix)], strict_mode=True)

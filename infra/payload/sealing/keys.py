"""The keys of a query's sealed fields, derived from one secret."""

from __future__ import annotations

from functools import lru_cache

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SECRET_BYTES = 32
_GCM_KEY_BYTES = 32
_SIV_KEY_BYTES = 64
_SALTS_MOST = 1024


class FieldKeys:
    """Derives keys with HKDF (RFC 5869, SHA-256).

    Args:
        secret: ``SECRET_BYTES`` random bytes that only the gateway has.
        query: the query's name; authenticated with each value, so that no other query can open it.

    Raises:
        ValueError: the secret has another length.
    """

    def __init__(self, secret: bytes, query: str) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
        self._secret = secret
        self.query = query.encode()
        self.tokens = AESSIV(self._derived(b"", b"spillway tokens", _SIV_KEY_BYTES))
        # The values of a run share a salt. Answers of several runs come together, so the last keys are remembered.
        self.encryption = lru_cache(_SALTS_MOST)(self._encryption)

    def _encryption(self, salt: bytes) -> AESGCM:
        """Return the cipher of the values that carry ``salt``."""
        return AESGCM(self._derived(salt, b"spillway encrypt", _GCM_KEY_BYTES))

    def _derived(self, salt: bytes, info: bytes, length: int) -> bytes:
        return HKDF(SHA256(), length, salt, info).derive(self._secret)

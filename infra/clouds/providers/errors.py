"""One table that maps libcloud's errors to the gateway's own.

Providers report an error by a word (``InsufficientInstanceCapacity``, ``QUOTA_EXCEEDED``, ``No valid host``) and by an
HTTP status. The word is more precise, so it is looked for first. It may be anywhere in the text: libcloud keeps the
code of some providers, only the message of others, and the raw body when it could not parse it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, Final

from libcloud.common.exceptions import BaseHTTPError
from libcloud.common.google import GoogleAuthError, GoogleBaseError
from libcloud.common.types import InvalidCredsError, LibcloudError, MalformedResponseError, ProviderError

from infra.clouds.base import (
    CapacityError,
    CloudError,
    CredentialsError,
    GoneError,
    OrderError,
    QuotaError,
    ThrottledError,
    UnavailableError,
)

_TEXT_LENGTH_MAX: Final = 300

# What the providers' words mean, and what to do. The first match counts.
WORDS: Final[tuple[tuple[str, type[CloudError], str], ...]] = (
    (
        r"RequestLimitExceeded|Throttl|SlowDown|TooManyRequests|rateLimitExceeded|RATE_LIMIT|overLimit\b.*[Rr]ate",
        ThrottledError,
        "it asks for fewer requests",
    ),
    (
        (
            r"Insufficient\w*Capacity|InsufficientHostCapacity|Unsupported\b.*Availability Zone"
            r"|ZONE_RESOURCE_POOL_EXHAUSTED|resourceNotReady|stockout|No valid host|[Nn]ot enough hosts"
            r"|SpotMaxPriceTooLow|MaxSpotPriceTooLow|(Size|Region) is (not |currently un)available"
        ),
        CapacityError,
        "name more sizes or zones to fall back to",
    ),
    (
        (
            r"\w*(Limit|Count)Exceeded|InsufficientFreeAddresses|QUOTA_EXCEEDED|quotaExceeded|[Qq]uota exceeded"
            r"|overLimit|droplet limit"
        ),
        QuotaError,
        "ask the provider for more, or lower max_vms",
    ),
    (
        (
            r"AuthFailure|InvalidClientTokenId|SignatureDoesNotMatch|UnauthorizedOperation|UnrecognizedClient"
            r"|RequestExpired|ExpiredToken|OptInRequired|AccessDenied|InvalidAccessKey|insufficientPermissions|authError"
            r"|invalid_grant"
        ),
        CredentialsError,
        "check that cloud.credentials are right and may create, list and delete machines, and that the clock is",
    ),
    (r"InvalidInstanceID", GoneError, "it has ended"),
    (
        r"Invalid[A-Z]\w*|MissingParameter|Unsupported\w*|VPC\w+|UnknownParameter|IdempotentParameterMismatch",
        OrderError,
        "correct image, sizes, subnet and the rest of cloud in the config",
    ),
    (r"InternalError|ServiceUnavailable|InternalFailure|Unavailable\b", UnavailableError, "the provider has a fault"),
)

# What an HTTP status means if no word matched.
STATUSES: Final[tuple[tuple[frozenset[int], type[CloudError], str], ...]] = (
    (frozenset({429}), ThrottledError, "it asks for fewer requests"),
    (frozenset({401, 403}), CredentialsError, "check that cloud.credentials are right and may do this"),
    (frozenset({404, 410}), GoneError, "it is not there (any more)"),
    (frozenset({400, 405, 409, 413, 422}), OrderError, "correct cloud in the config"),
    (frozenset({408, *range(500, 600)}), UnavailableError, "the provider has a fault"),
)


def in_words(error: Exception, where: str, *, creating: bool = False) -> CloudError:
    """Return the ``CloudError`` that corresponds to ``error``.

    Args:
        error: raised by libcloud, or by a library that it uses.
        where: provider and place, for people.
        creating: during an order nothing can be gone yet, so "not found" means a wrong name in the config.
    """
    status, text = _status(error), _text(error)
    kind, advice = _kind(error, status, text)
    if creating and kind is GoneError:
        kind, advice = OrderError, "correct image, sizes, network and the rest of cloud in the config"
    said = f"{where} says: {text or status or type(error).__name__}: {advice}"
    if kind is ThrottledError or kind is UnavailableError:
        return kind(said, _after_s(error))
    return kind(said)


def refusal_in(fault: str) -> type[CapacityError] | None:
    """Return the class of refusal if a VM ended because the provider refused it after all; else None.

    OpenStack accepts an order before it has looked for a host, and EC2 sometimes cancels one after it was accepted.
    """
    for pattern, kind, _ in WORDS:
        if re.search(pattern, fault):
            return kind if issubclass(kind, CapacityError) else None
    return None


@contextlib.contextmanager
def our_errors(where: str, *, creating: bool = False) -> Iterator[None]:
    """Raise libcloud's errors inside as ``CloudError``."""
    try:
        yield
    except CloudError:
        raise
    except (OSError, LibcloudError, BaseHTTPError) as error:
        raise in_words(error, where, creating=creating) from error


def _kind(error: Exception, status: int, text: str) -> tuple[type[CloudError], str]:
    for pattern, kind, advice in WORDS:
        if re.search(pattern, text):
            return kind, advice
    if isinstance(error, (InvalidCredsError, GoogleAuthError)):
        return CredentialsError, "check that cloud.credentials are right"
    for codes, kind, advice in STATUSES:
        if status in codes:
            return kind, advice
    if isinstance(error, (OSError, MalformedResponseError)):
        return UnavailableError, "check that it can be reached from here, and that cloud.endpoint is right"
    return OrderError, "correct cloud in the config"


def _status(error: Exception) -> int:
    status: Any = 0
    if isinstance(error, BaseHTTPError):
        status = error.code
    elif isinstance(error, ProviderError):
        status = error.http_code
    return int(status) if str(status).isdecimal() else 0


def _text(error: Exception) -> str:
    parts: list[object]
    if isinstance(error, GoogleBaseError):
        parts = [error.code, error.value]
    elif isinstance(error, MalformedResponseError):
        parts = [error.value, error.body]
    elif isinstance(error, LibcloudError):
        parts = [error.value]
    else:
        parts = [error]
    text = " ".join(" ".join(str(part) for part in parts if part not in (None, "")).split())
    return text if len(text) <= _TEXT_LENGTH_MAX else f"{text[:_TEXT_LENGTH_MAX]}…"


def _after_s(error: Exception) -> float:
    headers = getattr(error, "headers", None) or {}
    try:
        # libcloud has converted a date into seconds already.
        return max(0.0, float(headers.get("retry-after", 0)))
    except ValueError:
        return 0.0

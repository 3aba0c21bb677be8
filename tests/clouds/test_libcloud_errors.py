"""One table translates libcloud's errors into ours."""

from __future__ import annotations

import pytest
import requests
from libcloud.common.exceptions import BaseHTTPError, RateLimitReachedError, exception_from_message
from libcloud.common.google import GoogleAuthError, GoogleBaseError, QuotaExceededError, ResourceNotFoundError
from libcloud.common.types import InvalidCredsError, LibcloudError, MalformedResponseError

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
from infra.clouds.providers.errors import in_words, our_errors, refusal_in

TABLE: list[tuple[Exception, type[CloudError]]] = [
    # EC2
    (BaseHTTPError(503, "RequestLimitExceeded: Request limit exceeded."), ThrottledError),
    (BaseHTTPError(500, "InsufficientInstanceCapacity: We have no m5.large now."), CapacityError),
    (BaseHTTPError(400, "InstanceLimitExceeded: You have 5."), QuotaError),
    (BaseHTTPError(400, "VcpuLimitExceeded: You have requested more vCPU."), QuotaError),
    (BaseHTTPError(400, "MaxSpotInstanceCountExceeded: no more"), QuotaError),
    (BaseHTTPError(400, "Unsupported: not supported in your requested Availability Zone (a)."), CapacityError),
    (BaseHTTPError(400, "InvalidAMIID.NotFound: The image id does not exist"), OrderError),
    (BaseHTTPError(400, "InvalidSubnetID.NotFound: none"), OrderError),
    (BaseHTTPError(400, "InvalidInstanceID.NotFound: The instance ID does not exist"), GoneError),
    (BaseHTTPError(403, "UnauthorizedOperation: You are not authorized."), CredentialsError),
    (BaseHTTPError(400, "RequestExpired: the clock is wrong"), CredentialsError),
    (InvalidCredsError("AuthFailure: no"), CredentialsError),
    (BaseHTTPError(500, "InternalError: An internal error has occurred"), UnavailableError),
    (BaseHTTPError(502, "<html>Bad Gateway</html>"), UnavailableError),
    # OpenStack
    (RateLimitReachedError(), ThrottledError),
    (BaseHTTPError(403, "403 Forbidden Quota exceeded for cores: Requested 8, but already used 16 of 20"), QuotaError),
    (BaseHTTPError(500, "500 Error No valid host was found. There are not enough hosts available."), CapacityError),
    (BaseHTTPError(401, "401 Unauthorized The request you have made requires authentication."), CredentialsError),
    (InvalidCredsError("Invalid Auth"), CredentialsError),
    (BaseHTTPError(404, "404 Not Found Instance could not be found"), GoneError),
    (BaseHTTPError(409, "409 Conflict Multiple possible networks found"), OrderError),
    # GCE
    (QuotaExceededError("Quota 'CPUS' exceeded. Limit: 8.0", 403, "QUOTA_EXCEEDED"), QuotaError),
    (GoogleBaseError("The zone has no resources", 200, "ZONE_RESOURCE_POOL_EXHAUSTED"), CapacityError),
    (GoogleBaseError("Rate Limit Exceeded", 403, "rateLimitExceeded"), ThrottledError),
    (GoogleBaseError("Required permission", 403, "insufficientPermissions"), CredentialsError),
    (ResourceNotFoundError("not found", 404, "notFound"), GoneError),
    (GoogleBaseError("Backend Error", 503, "backendError"), UnavailableError),
    (GoogleAuthError("invalid_grant"), CredentialsError),
    # The way there
    (requests.exceptions.ConnectTimeout("timed out"), UnavailableError),
    (requests.exceptions.SSLError("certificate"), UnavailableError),
    (ConnectionResetError("reset"), UnavailableError),
    (MalformedResponseError("Failed to parse XML", body="<html>"), UnavailableError),
    (LibcloudError("Could not find specified endpoint"), OrderError),
]


@pytest.mark.parametrize(("error", "kind"), TABLE, ids=lambda value: str(value)[:40])
def test_each_error_is_one_of_ours(error: Exception, kind: type[CloudError]) -> None:
    found = in_words(error, "EC2 nowhere")
    assert type(found) is kind
    assert str(found).startswith("EC2 nowhere says: ")


def test_what_is_not_found_while_creating_is_named_wrongly() -> None:
    assert type(in_words(ResourceNotFoundError("image", 404, "notFound"), "GCE", creating=True)) is OrderError
    assert type(in_words(BaseHTTPError(404, "no flavor"), "OpenStack", creating=True)) is OrderError


def test_retry_after_is_kept() -> None:
    told = in_words(exception_from_message(429, "no", {"retry-after": "12"}), "x")
    assert isinstance(told, ThrottledError)
    assert told.after_s == 12
    busy = in_words(exception_from_message(503, "Throttling", {"retry-after": "3"}), "x")
    assert isinstance(busy, ThrottledError)
    assert busy.after_s == 3
    away = in_words(exception_from_message(503, "Service Unavailable", {"retry-after": "40"}), "x")
    assert isinstance(away, UnavailableError)
    assert away.after_s == 40


def test_long_pages_are_cut() -> None:
    assert len(str(in_words(BaseHTTPError(502, "x" * 10_000), "EC2"))) < 500


def test_mistakes_of_ours_stay_what_they_are() -> None:
    with pytest.raises(KeyError), our_errors("EC2"):
        raise KeyError("tags")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("No valid host was found. There are not enough hosts available.", CapacityError),
        ("Server.InsufficientInstanceCapacity: There is no capacity", CapacityError),
        ("Client.VolumeLimitExceeded: Volume limit exceeded", QuotaError),
        ("Server.InternalError: Internal error on launch", None),
        ("Client.InstanceInitiatedShutdown: Instance initiated shutdown", None),
        ("User initiated (2026-03-01 12:00:00 GMT)", None),
        ("Build of instance aborted: Image is unacceptable", None),
        ("", None),
    ],
)
def test_a_machine_that_ended_early_was_refused_or_failed(fault: str, kind: type[CloudError] | None) -> None:
    assert refusal_in(fault) is kind

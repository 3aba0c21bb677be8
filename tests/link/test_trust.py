from __future__ import annotations

import datetime as dt
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from infra.link.keys.certificates import Purpose, issue, new_authority, new_key, request_signature
from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import Authority, TrustError, UserData, enrol_mac, new_token, same_mac

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
HOST = "cloud-1"


def user_data_of(authority: Authority, host: str = HOST) -> UserData:
    return UserData(host=host, ca_pem=authority.ca_pem, token=new_token())


def signed(authority: Authority, directory: Path | None = None) -> HostIdentity:
    identity = HostIdentity.open(user_data_of(authority), directory)
    identity.install(authority.sign(identity.csr(), HOST))
    return identity


def test_an_authority_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    first = Authority.open(tmp_path / "trust")
    files = sorted((tmp_path / "trust").iterdir())
    assert [file.name for file in files] == ["ca.pem", "gateway.pem"]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    contents = [file.read_bytes() for file in files]
    again = Authority.open(tmp_path / "trust")
    assert (again.ca_pem, again.gateway_certificate) == (first.ca_pem, first.gateway_certificate)
    assert [file.read_bytes() for file in files] == contents


def test_an_authority_made_half_way_is_completed(tmp_path: Path) -> None:
    first = Authority.open(tmp_path)
    (tmp_path / "gateway.pem").unlink()
    again = Authority.open(tmp_path)
    assert again.ca_pem == first.ca_pem
    assert again.gateway_certificate != first.gateway_certificate


@pytest.mark.parametrize("name", ["ca.pem", "gateway.pem"])
@pytest.mark.parametrize(
    "content", [b"", b"not PEM", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: bytes) -> None:
    Authority.open(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TrustError, match=name):
        Authority.open(tmp_path)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    Authority.open(tmp_path)
    ca, gateway = (tmp_path / "ca.pem").read_bytes(), (tmp_path / "gateway.pem").read_bytes()
    (tmp_path / "ca.pem").write_bytes(gateway[: gateway.index(b"-----BEGIN CERT")] + ca[ca.index(b"-----BEGIN CERT") :])
    with pytest.raises(TrustError, match="does not belong"):
        Authority.open(tmp_path)


def test_a_gateway_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    Authority.open(tmp_path / "a")
    Authority.open(tmp_path / "b")
    (tmp_path / "a" / "gateway.pem").write_bytes((tmp_path / "b" / "gateway.pem").read_bytes())
    with pytest.raises(TrustError, match="not issued by this gateway's authority"):
        Authority.open(tmp_path / "a")


def test_an_expired_authority_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(new_authority(dt.datetime(2000, 1, 1, tzinfo=dt.UTC)).to_pem())
    with pytest.raises(TrustError, match="expired; remove the folder"):
        Authority.open(tmp_path)


def test_names_come_from_the_gateway_not_from_the_request(authority: Authority) -> None:
    key = new_key()
    lying = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
    )
    lying = lying.add_extension(x509.SubjectAlternativeName([x509.DNSName("other-host")]), critical=False)
    lying = lying.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    csr = lying.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    certificate = x509.load_pem_x509_certificate(authority.sign(csr, HOST))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOST]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [Purpose.HOST.value]


def damaged_request() -> bytes:
    der = bytearray(x509.load_pem_x509_csr(request_signature(new_key(), HOST)).public_bytes(Encoding.DER))
    der[-1] ^= 1
    return x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM)


def request_with(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


@pytest.mark.parametrize(
    ("csr_pem", "reason"),
    [
        (damaged_request(), "not signed by its own key|cannot be read"),
        (b"no request", "cannot be read"),
        (request_with(ec.generate_private_key(ec.SECP384R1())), "no EC P-256 key"),
        (request_with(rsa.generate_private_key(65537, 2048)), "no EC P-256 key"),
    ],
    ids=["damaged", "no request", "other curve", "RSA"],
)
def test_a_bad_request_is_not_signed(authority: Authority, csr_pem: bytes, reason: str) -> None:
    with pytest.raises(TrustError, match=reason):
        authority.sign(csr_pem, HOST)


@pytest.mark.parametrize(
    "name", ["", "Cloud-1", "cloud_1", "-a", "a-", "a..b", "10.0.0.1", "a" * 64, "a\n", "*.b", "ä"]
)
def test_a_name_that_no_certificate_can_carry_is_refused(authority: Authority, name: str) -> None:
    with pytest.raises(TrustError, match="cannot name a host"):
        authority.sign(request_signature(new_key(), HOST), name)


def test_an_identity_is_saved_and_enrols_once(authority: Authority, tmp_path: Path) -> None:
    first = signed(authority, tmp_path / "host")
    assert stat.S_IMODE((tmp_path / "host" / "host.pem").stat().st_mode) == 0o600
    again = HostIdentity.open(user_data_of(authority), tmp_path / "host")
    assert again.enrolled
    assert again.certificate_der == first.certificate_der
    assert authority.has_issued(again.certificate_der, HOST)


def test_a_saved_identity_of_another_name_or_authority_is_not_used(authority: Authority, tmp_path: Path) -> None:
    signed(authority, tmp_path / "host")
    assert not HostIdentity.open(user_data_of(authority, "cloud-2"), tmp_path / "host").enrolled
    other = Authority.open(tmp_path / "other")
    assert not HostIdentity.open(user_data_of(other), tmp_path / "host").enrolled


def test_a_new_identity_is_not_enrolled(authority: Authority) -> None:
    identity = HostIdentity.open(user_data_of(authority))
    assert not identity.enrolled
    assert not authority.has_issued(identity.certificate_der, HOST)
    assert not authority.has_issued(b"no certificate", HOST)


def test_only_a_fitting_certificate_is_installed(authority: Authority, tmp_path: Path) -> None:
    identity = HostIdentity.open(user_data_of(authority), tmp_path / "host")
    other_authority = Authority.open(tmp_path / "other")
    wrong = {
        "cannot be read": b"nothing",
        "not issued by": other_authority.sign(identity.csr(), HOST),
        "not for cloud-1": authority.sign(identity.csr(), "cloud-2"),
        "for another key": authority.sign(request_signature(new_key(), HOST), HOST),
    }
    for reason, certificate_pem in wrong.items():
        with pytest.raises(TrustError, match=reason):
            identity.install(certificate_pem)
    assert not identity.enrolled
    assert not (tmp_path / "host" / "host.pem").exists()


def test_a_gateway_certificate_does_not_make_a_host(authority: Authority) -> None:
    ca = new_authority(NOW)
    identity = HostIdentity.open(UserData(host=HOST, ca_pem=ca.certificate_pem.decode(), token=new_token()))
    key = x509.load_pem_x509_csr(identity.csr()).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    for_gateway = issue(ca, key, HOST, Purpose.GATEWAY, NOW)
    with pytest.raises(TrustError, match="not for a host"):
        identity.install(for_gateway.public_bytes(Encoding.PEM))


def test_the_mac_depends_on_token_certificate_and_nonce() -> None:
    mac = enrol_mac(b"t" * 32, b"certificate", b"n" * 32)
    assert len(mac) == 32
    assert same_mac(mac, enrol_mac(b"t" * 32, b"certificate", b"n" * 32))
    for other in (
        enrol_mac(b"u" * 32, b"certificate", b"n" * 32),
        enrol_mac(b"t" * 32, b"another", b"n" * 32),
        enrol_mac(b"t" * 32, b"certificate", b"m" * 32),
    ):
        assert not same_mac(mac, other)


@given(
    port=st.integers(0, 65535),
    orphan_after_s=st.floats(0, 1e6),
    extra=st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=3),
)
def test_user_data_survives_json(port: int, orphan_after_s: float, extra: dict[str, str]) -> None:
    data = UserData(
        host=HOST, ca_pem="pem", token=os.urandom(32), listen_port=port, orphan_after_s=orphan_after_s, extra=extra
    )
    assert UserData.from_json(data.to_json()) == data


@pytest.mark.parametrize(
    "change",
    [
        ("cloud-1", "Cloud 1"),
        ('"listen_port":0', '"listen_port":70000'),
        ('"token":"', '"token":"AAAA'),
        ("{", ""),
        ('"extra"', '"extras"'),
        ('"ca_pem":"pem",', ""),
    ],
)
def test_user_data_that_cannot_be_right_is_refused(change: tuple[str, str]) -> None:
    text = UserData(host=HOST, ca_pem="pem", token=bytes(32)).to_json()
    assert change[0] in text
    with pytest.raises(TrustError):
        UserData.from_json(text.replace(*change, 1))


def test_user_data_with_a_damaged_authority_is_refused() -> None:
    with pytest.raises(TrustError, match="authority's certificate in the user data"):
        HostIdentity.open(UserData(host=HOST, ca_pem="nonsense", token=new_token()))

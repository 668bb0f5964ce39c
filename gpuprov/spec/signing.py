"""`signing`: the site's key pair for signing kernel modules. The private key is judged here and never kept."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from gpuprov.core import safe_parse
from gpuprov.rules import certificates
from gpuprov.spec.model import Fragment
from gpuprov.spec.problem import Path, Problem, report_under

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

VAULT = b"$ANSIBLE_VAULT;"
LEAST_BITS = 2048
MAKE = 'openssl req -new -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=OUR modules/" -keyout FILE -out FILE'
# The field, the mistake, the fix.
Finding = tuple[str, str, str]


class Signing(Fragment, frozen=True):
    """The key that signs modules, and its certificate, trusted by the hosts' firmware. Empty: DKMS's own key."""

    key_file: Annotated[
        str,
        msgspec.Meta(
            description="the private key (RSA, PEM, without a passphrase), beside the inventory; may be in "
            "Ansible's vault"
        ),
    ] = ""
    certificate_file: Annotated[str, msgspec.Meta(description="its certificate (PEM or DER), beside the inventory")] = (
        ""
    )
    enroll: Annotated[
        Literal["by-hand", "prepared"],
        msgspec.Meta(
            description="prepared: gpuprov enroll may request the certificate's enrolment on hosts with Secure "
            "Boot, which a person confirms at each console; by-hand: it never does"
        ),
    ] = "by-hand"


def find_problems(block: Signing, path: Path) -> Iterable[Problem]:
    """Yield what cannot work, known without any host. Both files must be absolute here (see
    `repository.locate_files`)."""
    for field, message, fix in list_findings(block):
        yield report_under(*path, field)("", message, fix)


def list_findings(block: Signing) -> Iterable[Finding]:
    if bool(block.key_file) != bool(block.certificate_file):
        lacking = "certificate_file" if block.key_file else "key_file"
        yield (
            lacking,
            "is missing: the kernel needs the one to sign, the firmware the other to trust",
            f"both, made by {MAKE}",
        )
    if not (block.key_file and block.certificate_file):
        if block.enroll == "prepared" and not block.key_file and not block.certificate_file:
            yield (
                "enroll",
                "is prepared, and there is no certificate",
                "key_file and certificate_file, or leave enroll out",
            )
        return
    certificate, key = read_certificate(block.certificate_file), read_key(block.key_file)
    problems = [result for result in (certificate, key) if isinstance(result, tuple)]
    yield from problems
    if problems or isinstance(certificate, tuple) or isinstance(key, tuple):
        return
    today = datetime.now(UTC)
    if certificate.not_valid_after_utc <= today:
        ended = f"{block.certificate_file} expired {certificate.not_valid_after_utc:%Y-%m-%d}"
        yield "certificate_file", ended, f"a new key pair, enrolled on the hosts: {MAKE}"
    if certificate.not_valid_before_utc > today:
        begins = f"{block.certificate_file} is valid only from {certificate.not_valid_before_utc:%Y-%m-%d} on"
        yield "certificate_file", begins, "fix this machine's clock, or wait"
    if key is not None and key.public_key() != certificate.public_key():
        message = f"{block.key_file} is not the key of the certificate {block.certificate_file}"
        yield "key_file", message, "name the two files of one pair"


def read_certificate(file: str) -> x509.Certificate | Finding:
    import base64

    from cryptography import x509

    name = "certificate_file"
    try:
        known = certificates.identity(safe_parse.read_named(file))
        return x509.load_der_x509_certificate(base64.b64decode(known["der"]))
    except OSError as error:
        return name, f"{file} cannot be read: {error.strerror}", "put the certificate there"
    except ValueError as error:
        return (
            name,
            f"{file} is not a certificate: {error}",
            "one certificate, PEM or DER, not in the vault: it is public",
        )


def read_key(file: str) -> PrivateKeyTypes | Finding | None:
    """Return the key; None for one in the vault, which is read when it is needed."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    name = "key_file"
    try:
        content = safe_parse.read_named(file)
        if content.startswith(VAULT):
            return None
        key = load_pem_private_key(content, password=None)
    except OSError as error:
        return name, f"{file} cannot be read: {error.strerror}", "put the private key there, readable by you"
    except TypeError:
        fix = "openssl pkey -in FILE -out FILE takes the passphrase off; ansible-vault encrypt FILE protects it instead"
        return name, f"{file} has a passphrase, which nobody gives where modules are built", fix
    except (ValueError, UnsupportedAlgorithm):
        return name, f"{file} is not a private key in PEM", f"made by {MAKE}"
    if not isinstance(key, RSAPrivateKey) or key.key_size < LEAST_BITS:
        # https://docs.kernel.org/admin-guide/module-signing.html: other algorithms depend on the kernel's version and
        # configuration
        return (
            name,
            f"{file} is not an RSA key of {LEAST_BITS} bits or more, which every kernel takes",
            f"made by {MAKE}",
        )
    return key

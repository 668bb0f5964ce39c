"""The sheet for the console: for each host that waits, the steps in MokManager, in its own words."""

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime

from gpuprov.core.sanitize import cleaned
from gpuprov.fleet.enroll import Host
from gpuprov.rules import certificates

# Bytes of a fingerprint in a line of MokManager's screen.
LINE = 10
SITES_OWN = "the site's, whose hash was given with --hash-file"
EARLIER = "on the sheet of the run that made the request; gpuprov enroll --again makes another"

# The same for all hosts: https://github.com/rhboot/shim/blob/main/MokManager.c
STEPS = (
    "1. Open the host's console (BMC), and reboot the host.",
    '2. "Press any key to perform MOK management": press a key, within 10 seconds if no note and no earlier sheet '
    "of the",
    "   host says otherwise.",
    "   If the host boots on instead, the request is gone: run gpuprov enroll again.",
    '3. "Perform MOK management": choose "Enroll MOK".',
    '4. "[Enroll MOK]": choose "View key 0", and compare subject and fingerprint with those below.',
    '   If they differ, or there are other keys, stop: choose nothing more, and power the host off. Else "Continue".',
    '5. "Enroll the key(s)?": choose "Yes".',
    '6. "Password:": type the password of this host. It is not shown. The keyboard is a US one.',
    '7. "Perform MOK management": choose "Reboot".',
    "8. On this machine: gpuprov verify, then gpuprov apply.",
)


def describe_certificate(file: str) -> list[str]:
    """Return the certificate's subject and fingerprint as MokManager shows them."""
    from cryptography import x509

    known = certificates.of_file(file)
    subject = x509.load_der_x509_certificate(base64.b64decode(known["der"])).subject
    digits = [known["fingerprint"][at : at + 2] for at in range(0, len(known["fingerprint"]), 2)]
    lines = (" ".join(digits[at : at + LINE]) for at in range(0, len(digits), LINE))
    parts = [f"{part.rfc4514_attribute_name}={' '.join(str(part.value).split())}" for part in subject]
    return ["[Subject]", f"  {', '.join(parts) or '(empty)'}", "[Fingerprint]", *(f"  {line}" for line in lines)]


def compose_sheet(hosts: Sequence[Host], passwords: Mapping[str, str], *, shared: bool, now: datetime) -> str:
    """Return the sheet. `passwords`: one-time ones, by host; `shared`: this run's requests have the site's."""
    waiting = [host for host in hosts if host.at_console]
    head = [
        f"Secure Boot: certificates to enroll at the console, {now:%Y-%m-%d %H:%M} UTC",
        f"Hosts: {len(waiting)}. Keep this sheet secret while a host waits; destroy it afterwards.",
        "",
        *STEPS,
    ]
    parts = ["\n".join(head)]
    for file in dict.fromkeys(host.certificate for host in waiting):
        parts.append("\n".join([f"Certificate {file}", *(f"  {line}" for line in describe_certificate(file))]))
        parts += [_describe_host(host, passwords, shared=shared) for host in waiting if host.certificate == file]
    return "\n\n".join(parts) + "\n"


def _describe_host(host: Host, passwords: Mapping[str, str], *, shared: bool) -> str:
    password = SITES_OWN if shared else passwords.get(host.host, EARLIER)
    password = password if host.requested else EARLIER
    lost = (f"it may have no request: {host.message}",) if host.state in ("unknown", "unreachable") else ()
    notes = (f"note: {' '.join(cleaned(note).split())}" for note in (*lost, *host.notes))
    return "\n    ".join((f"[ ] {host.host}", f"password: {password}", *notes))

"""Shell code that requests the enrolment of a certificate on one host, as root."""

import shlex

from gpuprov.facts.probes.kernel.mok import MOK_STATE

SKIPPED = "skipped|1"
"""Printed if a request for the certificate was there already: mokutil then keeps that request's password."""


def compose_request(der: str, password_hash: str, *, again: bool, wait: int | None) -> str:
    """Return the code. `der`: the certificate in base64. Prints what mokutil then lists, as `MOK_STATE` reads it. The
    hash is in no argument list, and in no file that others can read."""
    revoke = "LC_ALL=C mokutil --revoke-import >&2\n" if again else ""
    timeout = f"LC_ALL=C mokutil --timeout {int(wait)} >&2\n" if wait is not None else ""
    return f"""umask 077
d=$(mktemp -d /run/gpuprov-enroll.XXXXXX) || exit
trap 'rm -rf "$d"' EXIT
printf '%s' {shlex.quote(der)} | base64 -d >"$d/modules.der" || exit
printf '%s\\n' {shlex.quote(password_hash)} >"$d/hash" || exit
{revoke}i=$(LC_ALL=C mokutil --import "$d/modules.der" --hash-file "$d/hash" 2>&1)
printf '%s\\n' "$i" >&2
case $i in *'already in the enrollment request'*) echo '{SKIPPED}' ;; esac
{timeout}{MOK_STATE.script}"""

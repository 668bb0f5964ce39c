"""Shell code that requests the enrolment of a certificate on one host, as root."""

import shlex

from gpuprov.facts.probes.host.house import LOCK
from gpuprov.facts.probes.kernel.signing import MOK_STATE, VARIABLES

# Printed if a request for the certificate was there already: mokutil then keeps that request's password.
SKIPPED = "skipped|1"
# Printed if the password that waits is not this one's: its salt stands in shim's variable MokAuth, as pw_crypt_t of
# https://github.com/lcp/mokutil/blob/master/src/password-crypt.h.
REPLACED = "replaced|1"
# Printed, with what holds the lock in the next line, instead of anything else if another run works on the host: it may
# reboot it, and shim drops a request at the next boot.
LOCKED = "locked|1"
# Printed before mokutil changes anything.
BEGUN = "begun|1"
# Printed if mokutil --import itself says that it made no request.
REFUSED = "refused|1"
# Printed if mokutil --list-new succeeds, as it does without a request, too: list_keys_in_var in
# https://github.com/lcp/mokutil/blob/master/src/mokutil.c.
LISTED = "listed|1"
# Printed if mokutil --timeout failed.
NO_WAIT = "wait|0"


def compose_request(der: str, password_hash: str, *, again: bool, wait: int | None) -> str:
    """Return the code. `der`: the certificate in base64. Prints what mokutil then lists, as `MOK_STATE` reads it. The
    hash is in no argument list, and in no file that others can read."""
    revoke = "LC_ALL=C mokutil --revoke-import >&2\n" if again else ""
    timeout = f"LC_ALL=C mokutil --timeout {int(wait)} >&2 || echo '{NO_WAIT}'\n" if wait is not None else ""
    return f"""l=$({LOCK.script})
[ -z "$l" ] || {{ printf '{LOCKED}\\n%s\\n' "$l"; exit 0; }}
umask 077
d=$(mktemp -d /run/gpuprov-enroll.XXXXXX) || exit
trap 'rm -rf "$d"' EXIT
printf '%s' {shlex.quote(der)} | base64 -d >"$d/modules.der" || exit
printf '%s\\n' {shlex.quote(password_hash)} >"$d/hash" || exit
echo '{BEGUN}'
{revoke}i=$(LC_ALL=C mokutil --import "$d/modules.der" --hash-file "$d/hash" 2>&1)
r=$?
[ "$r" = 0 ] || [ "$r" -gt 128 ] || echo '{REFUSED}'
printf '%s\\n' "$i" >&2
case $i in *'already in the enrollment request'*) echo '{SKIPPED}' ;; esac
{timeout}a=$(cat {VARIABLES}/MokAuth-* 2>/dev/null | LC_ALL=C tr -cd './0-9A-Za-z')
case $a in '' | *{shlex.quote(password_hash.split("$")[2])}*) ;; *) echo '{REPLACED}' ;; esac
LC_ALL=C mokutil --list-new >/dev/null && echo '{LISTED}'
{MOK_STATE.script}"""

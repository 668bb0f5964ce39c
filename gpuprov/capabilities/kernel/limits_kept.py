"""The check that limits are what they are after the next login and boot, too."""

from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.kernel.desired import limits
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.kernel.limits import LIMIT_SOURCES
from gpuprov.spec.kernel import Kernel

UNITS = {"K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}


@check("kernel.limits_kept", LIMIT_SOURCES, fields=("limits",), moment="next-boot", evidence=LIMIT_SOURCES.evidence)
def limits_kept(ctx: Context[Kernel]) -> Outcome:
    """Logins read limits.conf (PAM's pam_limits), and no file of systemd's after gpuprov's sets another limit of
    services at the next boot."""
    desired = limits(ctx.fragment)
    if not desired:
        return not_asked()
    known = ctx.facts.get(LIMIT_SOURCES)
    wrong = {}
    for service in known.without:
        wrong[f"pam.d/{service} does not read limits.conf"] = (
            f"session required pam_limits.so in /etc/pam.d/{service}, without conf="
        )
    if known.no_pam:
        wrong["sshd does without PAM, and so without limits.conf"] = "UsePAM yes in /etc/ssh/sshd_config"
    for key, value in desired.items():
        text, path = known.services.get(key, ("", ""))
        if text and any(in_bytes(part) != value for part in text.split(":")):
            wrong[f"{path} sets {key}={text} at the next boot"] = f"take {key} out of {path}"
    expected = "limits.conf read at each login, and no other default limits at a boot"
    return fail(expected, "; ".join(wrong), "; ".join(wrong.values())) if wrong else ok(expected)


def in_bytes(text: str) -> str:
    """Return a limit of systemd's files as `systemctl show` prints it: a suffix counts by 1024."""
    number, power = text[:-1].strip(), UNITS.get(text[-1:], 0)
    return str(int(number) << power) if power and is_whole(number) and len(number) < 20 else text

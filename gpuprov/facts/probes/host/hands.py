"""Folders and files that root runs, or reads at a boot, and that others than root can write."""

import msgspec

from gpuprov.facts.probes.base import Output, Probe

FOLDERS = (
    *("/etc/systemd/system", "/etc/systemd/system.conf.d", "/etc/systemd/system.control", "/etc/systemd/user"),
    *("/usr/lib/systemd/system", "/usr/local/lib/systemd/system", "/etc/environment.d", "/etc/profile.d"),
    *("/etc/modprobe.d", "/etc/modules-load.d", "/etc/udev/rules.d", "/etc/ld.so.conf.d", "/etc/sysctl.d"),
    *("/etc/security/limits.d", "/etc/default/grub.d", "/etc/init.d", "/etc/cron.d", "/etc/sudoers.d"),
    *("/etc/cdi", "/var/run/cdi", "/etc/docker", "/etc/containerd", "/etc/nvidia-container-runtime"),
    *("/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin", "/usr/local/lib/gpuprov", "/etc/gpuprov"),
)
ABOVE = ("/", "/etc", "/etc/systemd", "/usr", "/usr/lib", "/usr/local", "/usr/local/lib", "/boot", "/lib/modules")


class Open(msgspec.Struct, frozen=True):
    """A folder or file that others than root can write: its mode in octal, and its owner."""

    path: str
    mode: str
    owner: str


def parse(output: Output) -> tuple[Open, ...]:
    rows = (row.split("|", 3) for row in output.rows().get("open", ()))
    return tuple(Open(path, mode, owner) for kind, mode, owner, path in rows if kind in "df")


# Not what a group may write: /usr/local is staff's on Debian
# (https://www.debian.org/doc/debian-policy/ch-opersys.html).
HANDS = Probe(
    "others_write",
    f"""for p in {" ".join(ABOVE)} {" ".join(FOLDERS)}; do [ -d "$p" ] && set -- "$@" "$p/."; done
echo 'read|'
{{ find "$@" -maxdepth 0 -type d \\( -perm -0002 -o ! -uid 0 \\) -printf 'open|%y|%m|%U|%p\\n'
set --; for p in {" ".join(FOLDERS)}; do [ -d "$p" ] && set -- "$@" "$p/"; done
find "$@" -mindepth 1 -maxdepth 1 -perm -0002 ! -type l -printf 'open|%y|%m|%U|%p\\n'
}} 2>/dev/null | sed 's#/\\.$##; s#//*#/#g'; true""",
    parse,
    "find /etc/systemd/system /etc/modprobe.d /etc/udev/rules.d /usr/local/bin -maxdepth 1 -perm -0002 -ls",
    speaks=True,
    blank=r"read\|",
)

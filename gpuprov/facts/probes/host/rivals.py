"""Commands and files of others that root runs at a boot or by cron: those that change GPUs, NICs or the kernel, and
those that others than root can write."""

import msgspec

from gpuprov.facts.probes.base import Output, Probe

# Characters of a line that count.
LONGEST = 500


class Command(msgspec.Struct, frozen=True):
    """A line that starts such a command, and its file."""

    file: str
    line: str


def parse(output: Output) -> tuple[Command, ...]:
    rows = (row.partition("|") for row in output.rows().get("command", ()))
    return tuple(Command(file, " ".join(line[:LONGEST].split())) for file, _, line in rows)


RIVALS = Probe(
    "rivals",
    r"""for p in grep sed systemctl; do command -v $p >/dev/null || exit 127; done
echo 'read|'
w='nvidia-smi|nvidia-mig-parted|nvidia-mig-manager|nvidia-cuda-mps-control|rmmod|modprobe|systemctl|service'
w="$w|cma_roce_|mlnx_qos|dcb |setpci|sysctl|/proc/sys/|cpupower|cpufreq-set|scaling_governor"
lines() { grep -hE "^[^#]*($w)" "$1" 2>/dev/null | cut -c 1-500 | sed "s#^#command|$1|#"; }
for f in /etc/rc.local /etc/rc.d/rc.local; do [ -f "$f" ] && [ -x "$f" ] && lines "$f"; done
for f in /etc/network/if-*.d/* /etc/networkd-dispatcher/*/* /etc/NetworkManager/dispatcher.d/*; do
  [ -f "$f" ] && [ -x "$f" ] && lines "$f"; done
for f in /etc/network/interfaces /etc/network/interfaces.d/* /etc/udev/rules.d/*.rules \
  /etc/crontab /etc/cron.d/* /var/spool/cron/root /var/spool/cron/crontabs/root /var/spool/cron/tabs/root; do
  case ${f##*/} in *gpuprov-*) continue ;; esac; [ -f "$f" ] && lines "$f"; done
for f in /etc/systemd/system/*.service; do
  case ${f##*/} in gpuprov-*) continue ;; esac
  [ -f "$f" ] && [ ! -L "$f" ] && grep -qE "^Exec[A-Za-z]*=.*($w)" "$f" || continue
  u=${f##*/}; for n in "$u" "${u%.service}.timer" "${u%.service}.path"; do
    systemctl -q is-enabled "$n" 2>/dev/null && { lines "$f"; break; }; done
done; true""",
    parse,
    "cat /etc/rc.local; grep -rE 'nvidia|roce|sysctl' /etc/cron.d /etc/crontab /var/spool/cron /etc/network "
    "/etc/NetworkManager/dispatcher.d /etc/udev/rules.d /etc/systemd/system",
    speaks=True,
    blank=r"read\|",
)


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


def parse_hands(output: Output) -> tuple[Open, ...]:
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
    parse_hands,
    "find /etc/systemd/system /etc/modprobe.d /etc/udev/rules.d /usr/local/bin -maxdepth 1 -perm -0002 -ls",
    speaks=True,
    blank=r"read\|",
)

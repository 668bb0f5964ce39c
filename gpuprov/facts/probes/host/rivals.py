"""Commands of others that a boot or cron runs, and that change GPUs, NICs or the kernel, or stop units of them:
rc.local, crontabs, hooks of the network, udev rules, a site's own units."""

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

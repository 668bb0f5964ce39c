"""Basic facts of a host: distribution, kernel, virtualization, clock, free space; its machine's identity; the user who
answers, writable folders, and a Python that starts."""

import re

import msgspec

from gpuprov.core.safe_parse import Unreadable, is_whole, parse_signed
from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.rules import reach


class OsRelease(msgspec.Struct, frozen=True):
    """The distribution. `id` and `version` as in /etc/os-release: `debian`, `12`."""

    id: str
    version: str
    name: str
    # ID_LIKE: the distributions it is derived from.
    like: tuple[str, ...] = ()
    # The file is valid UTF-8, as os-release(5) requires; otherwise Ansible reads nothing from it.
    is_text: bool = True


class Platform(msgspec.Struct, frozen=True):
    """`system` is `Linux` on every host gpuprov can manage; `kernel` is the running release."""

    system: str
    kernel: str
    machine: str


def parse_os_release(output: Output) -> OsRelease:
    # os-release(5) has values with quotes of either kind, or none (tests/real/os-release-*):
    #     ID=azurelinux
    #     PRETTY_NAME="Alibaba Cloud Linux 3.2104 U13.1 (OpenAnolis Edition)"
    values = dict(re.findall(r"""^([A-Z_]+)=["']?([^"'\n]*)["']?$""", output.text, re.MULTILINE))
    like = values.get("ID_LIKE", "")
    return OsRelease(
        values.get("ID", ""),
        values.get("VERSION_ID", ""),
        values.get("PRETTY_NAME", ""),
        tuple(like.split()),
        "\ufffd" not in output.text,
    )


def parse_platform(output: Output) -> Platform:
    words = output.text.split()
    if len(words) != 3:
        raise ProbeFailed(f"uname printed {output.text.strip()!r}")
    return Platform(*words)


def parse_container(output: Output) -> str:
    words = output.text.split()
    if strange := [word for word in words if not re.fullmatch(r"[a-z][a-z0-9-]*", word)]:
        raise ProbeFailed(f"the kind of container is not a word: {strange[0]!r}")
    return next((word for word in words if word != "none"), "")


def parse_clock(output: Output) -> int:
    seconds = parse_signed(output.text.strip())
    if seconds is None:
        raise Unreadable("no number of seconds")
    return seconds


def parse_space(output: Output) -> dict[str, int]:
    pairs = [line.split() for line in output.text.splitlines()]
    return {pair[1]: int(pair[0]) // 1024 for pair in pairs if len(pair) == 2}  # df has no answer for a missing folder


OS_RELEASE = Probe("os_release", "cat /etc/os-release", parse_os_release, "cat /etc/os-release", speaks=True)
PLATFORM = Probe("platform", "uname -srm", parse_platform, "uname -srm", speaks=True)
# The kind of container that the host is (`podman`, `docker`, `lxc` ...), or empty: bare metal or a machine with its
# own kernel. /.dockerenv does not count: a machine made from a container image has it, too.
CONTAINER = Probe(
    "container",
    "systemd-detect-virt --container 2>/dev/null || { [ -e /run/.containerenv ] && echo podman; "
    "[ -d /run/systemd/system ] || echo none; true; }",
    parse_container,
    "systemd-detect-virt --container",
    speaks=True,
    blank="none$",
)
# The host's clock, in seconds since 1970; to be compared with the time the facts were read (`Facts.read_at`).
CLOCK = Probe("clock", "date +%s", parse_clock, "date", speaks=True)
# Free MiB in /boot, /var and /tmp.
SPACE = Probe(
    "space",
    'for d in /boot /var /tmp; do set -- $d $(df -Pk $d | tail -n 1); echo "$5 $1"; done',
    parse_space,
    "df -h /boot /var /tmp",
    speaks=True,
)


LOGIN_MARKER = "login"


def parse_login(output: Output) -> reach.Heard:
    answer = reach.heard(output.text, LOGIN_MARKER)
    if not answer.system:
        raise ProbeFailed(f"uname printed nothing: {output.error.strip()[:200]!r}")
    return answer


def parse_python(output: Output) -> reach.Heard:
    return reach.heard(output.text, LOGIN_MARKER)


def build_python_probe(named: str = "") -> Probe[reach.Heard]:
    """Return the probe for a host whose inventory names this Python (none: any that works). The name of the probe stays
    the same."""
    return Probe("python", reach.pythons(LOGIN_MARKER, named), parse_python, "python3 --version")


LOGIN = Probe("login", reach.who(LOGIN_MARKER), parse_login, "id; findmnt --options ro", speaks=True)
PYTHON = build_python_probe()


# Shell function `roots PATTERN`: prints /proc/PID of each such process. /proc/PID itself also belongs to root if a
# user has started su under another name; the real user id is the first in its status:
# https://man7.org/linux/man-pages/man5/proc_pid_status.5.html
ROOTS = r"""roots() {
  for d in $(grep -lsxE "$1" /proc/[0-9]*/comm); do
    grep -qs '^Uid:[[:space:]]*0[[:space:]]' "${d%/comm}/status" && echo "${d%/comm}"
  done
}
"""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The machine. Texts are empty where the firmware does not give them; serial numbers are root's to read."""

    name: str = ""
    vendor: str = ""
    product: str = ""
    serial: str = ""
    board_serial: str = ""
    firmware: str = ""
    firmware_date: str = ""
    # The kernel's own name of this boot.
    boot_id: str = ""
    # In Unix time, 0 if unknown.
    booted: int = 0


def parse_identity(output: Output) -> Identity:
    rows = (line.partition("|")[::2] for line in output.text.splitlines())
    values = {key: value.strip() for key, value in rows if key in Identity.__struct_fields__}
    booted = values.pop("booted", "")
    return Identity(**values, booted=int(booted) if is_whole(booted) else 0)


# Files of DMI: Documentation/ABI/testing/sysfs-class-dmi of the kernel,
# https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-dmi
IDENTITY = Probe(
    "identity",
    """echo "name|$(uname -n)"
d=/sys/class/dmi/id
for n in vendor:sys_vendor product:product_name serial:product_serial board_serial:board_serial \\
  firmware:bios_version firmware_date:bios_date; do
  v=""; [ -r $d/${n#*:} ] && read -r v < $d/${n#*:}; echo "${n%%:*}|$v"
done
echo "boot_id|$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
awk '$1 == "btime" { print "booted|" $2 }' /proc/stat""",
    parse_identity,
    "hostnamectl; head /sys/class/dmi/id/*",
    speaks=True,
)

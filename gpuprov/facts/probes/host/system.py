"""Basic facts of a host: distribution, kernel, virtualization, user, clock, free space."""

import re

import msgspec

from gpuprov.core.safe_parse import Unreadable, parse_signed
from gpuprov.facts.probes.base import Output, Probe, ProbeFailed


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
        raise ProbeFailed(f"the kind of container is no word: {strange[0]!r}")
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

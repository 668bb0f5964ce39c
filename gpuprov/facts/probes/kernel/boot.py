"""Kernel command line, sysctl, limits and modules-load: the running values, and those of the next boot."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.host.family import by_family
from gpuprov.facts.probes.kernel.grub_menu import parse_kernel
from gpuprov.host_code import first_boot_judge
from gpuprov.spec.kernel import NUMA_SYSCTL

MODULE = re.compile(r"[\w.+-]+", re.ASCII)
# gpuprov's limits of login sessions.
LOGIN_FILE = "/etc/security/limits.d/90-gpuprov.conf"
# Pattern of a sysctl's name in `sysctl -a`; a level may be a network interface.
# sysctl.d(5) takes a name with slashes as well, where a dot belongs to an interface:
#     net/ipv4/conf/eth0.100/rp_filter = 0
SYSCTL_NAME = re.compile(r"[\w-]+(\.[\w:/@+-]+)+", re.ASCII)


def parse_command_line(output: Output) -> dict[str, str]:
    pairs = (word.partition("=") for word in output.text.split())
    return {key: value for key, _, value in pairs}


def parse_running(output: Output) -> dict[str, str]:
    """Parse the running command line, without the words for a counted first boot, which no other boot has."""
    return parse_command_line(Output(" ".join(first_boot_judge.drop_first_boot_words(output.text.split()))))


class BootEntry(dict[str, str]):
    """The words of an entry's command line."""

    # The release that it starts, empty if its file name has none.
    kernel: str = ""


class BootEntries(tuple[BootEntry, ...]):
    """All entries."""

    # The command lines that entries of later kernels get, by the file that says so last; without those that only a
    # shell could tell.
    templates: Mapping[str, BootEntry] = {}


def parse_templates(lines: Iterable[str]) -> dict[str, BootEntry]:
    """Parse /etc/kernel/cmdline, and the assignments of GRUB's defaults in the order in which they are read."""
    templates, variables, last = {}, {"GRUB_CMDLINE_LINUX": "", "GRUB_CMDLINE_LINUX_DEFAULT": ""}, ""
    for line in lines:
        path, _, text = line.partition(" ")
        name, equals, value = text.partition("=")
        if path == "/etc/kernel/cmdline":
            templates[path] = BootEntry(parse_command_line(Output(text)))
        elif equals:
            # GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX pci=config_acs=..."
            # /etc/default/grub is a shell script that grub-mkconfig sources: `+=` appends, later files win.
            key = name.removesuffix("+")
            try:
                value = " ".join(shlex.split(value, comments=True)[:1])
            except ValueError:
                return templates
            value = re.sub(r"\$\{?(GRUB_CMDLINE_LINUX(_DEFAULT)?)\b\}?", lambda match: variables[match[1]], value)
            if "$" in value or "`" in value:
                return templates
            variables[key] = f"{variables[key]}{value}" if name.endswith("+") else value
            last = path if key == "GRUB_CMDLINE_LINUX" or not last else last
    if last:
        templates[last] = BootEntry(parse_command_line(Output(" ".join(variables.values()))))
    return templates


def parse_boot_entries(output: Output) -> BootEntries:
    variables: dict[str, str] = {}
    entries, later = [], []
    for line in output.text.splitlines():
        words = line.split(None, 2)
        if words[:1] == ["later"]:
            later.append(line.removeprefix("later "))
        elif words[:1] == ["set"] and len(words) > 1:
            # On RHEL 8, options in boot loader entries are a variable of grubenv: `options $kernelopts $tuned_params`.
            variables.setdefault(words[1], words[2] if len(words) == 3 else "")
        elif words and not words[0].startswith("linux"):
            raise ProbeFailed(f"boot entries have a line that is none of theirs: {line.strip()[:80]!r}")
        elif len(words) >= 2:
            options = words[2].split() if len(words) == 3 else []
            expanded = [variables.get(word[1:], "") if word.startswith("$") else word for word in options]
            entries.append(BootEntry(parse_command_line(Output(" ".join(expanded)))))
            entries[-1].kernel = parse_kernel(words[1])
    parsed = BootEntries(entries)
    parsed.templates = parse_templates(later)
    return parsed


def parse_sysctl(output: Output) -> dict[str, str]:
    # `sysctl -a` separates several numbers by tabs (tests/real/sysctl-mem-tabs):
    #     vm.lowmem_reserve_ratio = 256\t256\t32
    pairs = (line.partition("=") for line in output.text.splitlines() if "=" in line)
    return {name: " ".join(value.split()) for key, _, value in pairs if SYSCTL_NAME.fullmatch(name := key.strip())}


def parse_sysctl_at_boot(output: Output) -> dict[str, tuple[str, str]]:
    """Parse the values that a boot sets, each with the file whose line is the last one for it. Patterns of names are
    left out: a line with the name itself counts in their place, wherever it is."""
    values: dict[str, tuple[str, str]] = {}
    for path, key, value in list_assignments(output):
        name = key.removeprefix("-")
        if "/" in name.partition(".")[0]:
            name = name.translate(str.maketrans("./", "/."))
        if SYSCTL_NAME.fullmatch(name):
            values[name] = " ".join(value.split()), path
    return values


def list_assignments(output: Output) -> Iterator[tuple[str, str, str]]:
    """Yield the file, the key and the value of each assignment, in the order of the rows (`file|PATH`,
    `line|KEY=VALUE`)."""
    path = ""
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        if kind == "file":
            path = rest
        elif kind == "line":
            key, _, value = rest.partition("=")
            yield path, key.strip(), value.strip()


def parse_bootloader(output: Output) -> tuple[str, ...]:
    rows = [line.partition("|") for line in output.text.splitlines()]
    return tuple(path for kind, _, path in rows if kind == "absent")


def parse_fixed(output: Output) -> frozenset[str]:
    names = [line.translate(str.maketrans("./", "/.")) for line in output.text.splitlines()]
    return frozenset(name for name in names if SYSCTL_NAME.fullmatch(name))


def parse_modules_load(output: Output) -> frozenset[str]:
    lines = (line.strip() for line in output.text.splitlines())
    names = [line.split()[0] for line in lines if line and line[0] not in "#;"]
    modules = frozenset(name.replace("-", "_") for name in names if MODULE.fullmatch(name))
    if names and not modules:
        raise ProbeFailed(f"modules-load.d has a line that names no module: {names[0][:80]!r}")
    return modules


class LoginLimits(dict[str, str]):
    """Limits of login sessions for everyone (`*`), by item."""

    # Those of single users and groups, by who it is and item; they go before those for everyone, which root never has:
    # limits.conf(5).
    own: Mapping[tuple[str, str], str] = {}
    # The last file that sets a limit, by who and item.
    places: Mapping[tuple[str, str], str] = {}

    def find_later(self, item: str) -> str:
        """Return the file after gpuprov's that sets this limit for everyone; empty if none does."""
        path = self.places.get(("*", item), "")
        return path if path > LOGIN_FILE else ""

    def list_lower(self, item: str, value: str, *, users: bool = False) -> list[str]:
        """List root and the groups whose own limit is lower than this value, or with `users` the other users, each with
        the file that says so."""
        return [
            f"{who} has {item} {text}" + (f" ({place})" if (place := self.places.get((who, item))) else "")
            for (who, key), text in self.own.items()
            if key == item
            and users == (who != "root" and who[0] != "@")
            and any(_is_lower(part, value) for part in text.split(":"))
        ]


def _is_lower(limit: str, value: str) -> bool:
    """Return whether a limit is a number below the value; one that is not set is that of everyone."""
    return is_whole(limit) and (not is_whole(value) or int(limit) < int(value))


def parse_login_limits(output: Output) -> LoginLimits:
    kinds: dict[tuple[str, str], dict[str, str]] = {}
    places: dict[tuple[str, str], str] = {}
    path = ""
    for line in output.text.splitlines():
        if line.startswith("file|"):
            path = line.removeprefix("file|")
        # limits.conf(5): `*  soft  memlock  unlimited`; `-` sets both (tests/real/limits-azure-hpc)
        elif match := re.match(r"([^\s#|]+)\s+(-|hard|soft)\s+([a-z]+)\s+(\S+)", line.strip(), re.ASCII):
            both = ("soft", "hard") if match[2] == "-" else (match[2],)
            kinds.setdefault((match[1], match[3]), {}).update(dict.fromkeys(both, match[4]))
            places[match[1], match[3]] = path
    texts = {key: soft_and_hard(kind.get("soft", "unset"), kind.get("hard", "unset")) for key, kind in kinds.items()}
    limits = LoginLimits({item: text for (who, item), text in texts.items() if who == "*"})
    limits.own = {key: text for key, text in texts.items() if key[0] != "*"}
    limits.places = places
    return limits


def soft_and_hard(soft: str, hard: str) -> str:
    """Return one word if both limits are the same, else both."""
    return hard if soft == hard else f"{soft}:{hard}"


def _build_bootloader_checks(*paths: str) -> str:
    return f'for f in {" ".join(paths)}; do [ -e "$f" ] && echo "there|$f" || echo "absent|$f"; done'


COMMAND_LINE = Probe("command_line", "cat /proc/cmdline", parse_running, "cat /proc/cmdline", speaks=True)
# The command line of each bootloader entry, with its kernel; empty without GRUB.
#
# With Boot Loader Specification files (the Red Hat family), an entry's options can name variables of grub's
# environment: EL 8 keeps the whole line there, as $kernelopts:
# https://docs.redhat.com/en/documentation/red_hat_enterprise_linux/8/html/managing_monitoring_and_updating_the_kernel
BOOT_ENTRIES = Probe(
    "boot_entries",
    r"""g=/boot/grub2/grub.cfg; n=0
sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=/set \1 /p' /boot/grub2/grubenv 2>/dev/null
sed -n 's/^[[:space:]]*set kernelopts="\(.*\)"$/set kernelopts \1/p' $g 2>/dev/null
for e in /boot/loader/entries/*.conf; do
  [ -f "$e" ] && n=1 && awk '$1=="linux"{l=$2} $1=="options"{$1="";o=o $0} END{print "linux", l o}' "$e"
done
[ $n = 1 ] || grep -hE '^[[:space:]]*linux(efi|16)?[[:space:]]' /boot/grub/grub.cfg $g /boot/efi/EFI/*/grub.cfg 2>/dev/null
[ -e /etc/kernel/cmdline ] && echo "later /etc/kernel/cmdline $(tr '\n' ' ' </etc/kernel/cmdline)"
d=; [ -e /usr/sbin/update-grub ] && d=/etc/default/grub.d
for f in /etc/default/grub ${d:+"$d"/*.cfg}; do
  [ -f "$f" ] && sed -nE "s#^[[:space:]]*(export[[:space:]]+)?(GRUB_CMDLINE_LINUX(_DEFAULT)?[+]?=.*)#later $f \2#p" "$f"
done
true""",
    parse_boot_entries,
    "grep 'linux' /boot/grub*/grub.cfg; grubby --info=ALL; grep -r CMDLINE_LINUX /etc/default/grub*; cat "
    "/etc/kernel/cmdline",
    blank=r"later ",
)
# All of them, or with a spec those that it names, and one that every kernel has.
SYSCTL = Probe(
    "sysctl",
    'if [ -n "${sysctls:-}" ]; then sysctl -- $sysctls; else sysctl -a; fi 2>/dev/null; true',
    parse_sysctl,
    "sysctl -a",
    asks=lambda host: {"sysctls": " ".join(("kernel.osrelease", NUMA_SYSCTL, *host.capabilities["kernel"].sysctl))},
    speaks=True,
)
# Sysctls that not even root can write, named as by `sysctl -a`: a dot inside a level is written as a slash, sysctl(8).
SYSCTL_FIXED = Probe(
    "sysctl_fixed",
    "find /proc/sys -type f ! -writable -printf '%P\\n' 2>/dev/null; true",
    parse_fixed,
    "find /proc/sys -type f ! -writable",
    speaks=True,
)
# Missing programs and files that are needed to change the bootloader's command line.
BOOTLOADER = Probe(
    "bootloader",
    by_family(
        _build_bootloader_checks("/boot/grub/grub.cfg"),
        _build_bootloader_checks("/boot/grub2", "/usr/sbin/grubby"),
        _build_bootloader_checks("/boot/grub2/grub.cfg", "/usr/sbin/grub2-mkconfig"),
    ),
    parse_bootloader,
    "ls /boot/grub* /usr/sbin/grub*",
    speaks=True,
    blank=r"there\|",
)
SYSCTL_FILES = Probe(
    "sysctl_files",
    "cat /etc/sysctl.d/90-gpuprov.conf 2>/dev/null; true",
    parse_sysctl,
    "cat /etc/sysctl.d/90-gpuprov.conf",
)
# What a boot sets: the files of all folders by their names, of one name that in the first folder, sysctl.d(5); those of
# /run are gone then.
SYSCTL_AT_BOOT = Probe(
    "sysctl_at_boot",
    """for f in /etc/sysctl.d/*.conf /usr/local/lib/sysctl.d/*.conf /usr/lib/sysctl.d/*.conf; do
  [ -e "$f" ] && echo "${f##*/}|$f"
done | LC_ALL=C sort -s -u -t'|' -k1,1 | { IFS='
'; set -f; grep '^[[:space:]]*[^#;[:space:]].*=' /dev/null $(cut -d'|' -f2-) 2>/dev/null; } |
  sed 's/^\\([^:]*\\):/file|\\1\\
line|/'; true""",
    parse_sysctl_at_boot,
    "/usr/lib/systemd/systemd-sysctl --cat-config",
)
MODULES_LOAD = Probe(
    "modules_load",
    "cat /etc/modules /etc/modules-load.d/*.conf /usr/lib/modules-load.d/*.conf 2>/dev/null; true",
    parse_modules_load,
    "cat /etc/modules-load.d/*.conf",
)
# The later of two lines about the same limit wins, as in pam_limits.
LOGIN_LIMITS = Probe(
    "login_limits",
    """for f in /etc/security/limits.conf /etc/security/limits.d/*.conf; do
  [ -e "$f" ] && { echo "file|$f"; cat "$f"; echo; }
done 2>/dev/null; true""",
    parse_login_limits,
    "grep -v '^#' /etc/security/limits.conf /etc/security/limits.d/*.conf",
    blank=r"file\|",
)

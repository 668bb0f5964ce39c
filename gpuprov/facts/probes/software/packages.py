"""Packages of a host of any family: installed, held, broken; and the versions that its repositories offer."""

import re
from collections.abc import Callable, Collection, Mapping

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host.family import by_family
from gpuprov.facts.probes.software import excluded, rpm, zypper
from gpuprov.facts.probes.software.excluded import Excluded
from gpuprov.facts.probes.software.prebuilt import SUFFIX
from gpuprov.host_code.packages import zypper_locks
from gpuprov.host_code.packages.lists import PRESENT, parse_madison, parse_places

# Pattern of lines about the package manager rather than packages: `blank` of probes that list packages.
PACKAGE_LISTS = r"native\||plugin\||conf\||dnf\||list\||redhat\||suse\|"


class Package(msgspec.Struct, frozen=True):
    """An installed package. `version` is the full one: Debian's, or rpm's `[epoch:]version-release`. `held`: neither
    manual nor automatic upgrades change it. `whole` is false while dpkg has it half-configured, unpacked, awaiting a
    trigger or a reinstall, or while rpm has two versions of it. Both are true only if they are in every architecture
    that it is installed for. `each`: with a foreign architecture, its name for the hold command in each (`libcuda1`,
    `libcuda1:i386`), and whether that one is held. If its version differs in another architecture, it is listed there.
    """

    name: str
    version: str
    source: str
    held: bool
    whole: bool
    each: tuple[tuple[str, bool], ...] = ()


class Index(dict[str, list[str]]):
    """Offered versions by package name, newest first. `complaint`: why they are unknown; empty: they are known.

    `busy`: another package manager holds the lists now. `places`, with apt: the addresses that a version comes from;
    `moved`: transitional packages whose version is left out, and their replacements. `excluded`: from dnf.
    """

    complaint: str = ""
    busy: bool = False
    places: Mapping[tuple[str, str], Collection[str]] = {}
    moved: Mapping[str, str] = {}
    excluded: tuple[Excluded, ...] = ()


# Packages of which rpm keeps several versions in parallel, like kernels (also Amazon Linux's kernel6.12, and ELRepo's
# -ml and -lt). The newest is listed under the plain name; each also under `kernel-devel-5.14.0-570.el9.x86_64`.
INSTALL_ONLY = (
    "kernel([0-9]+[.][0-9]+)?(-(core|modules|devel|drivers|hwe|uek|debug|rt|64k|default|uki).*|"
    "-(ml|lt)(-(core|modules|devel).*)?)?"
)

# Packages of bootable kernels and of their modules; SUSE's are not held.
# https://gitlab.com/redhat/centos-stream/rpms/kernel,
# https://docs.oracle.com/en/operating-systems/uek/8/relnotes8.0/uek8.0-ChangestoUEKContentDistributionandPackaging.html
BOOTING = (
    "linux-image-.*|kernel([0-9]+[.][0-9]+)?(-(uek64k|uek|hwe|ml|lt|64k|rt(-64k)?))?(-debug)?(-(core|"
    "modules(-[a-z]+)*))?|kernel(-(64k|rt(-64k)?))?(-debug)?-uki(-[a-z]+)*"
)

DPKG_FORMAT = "${db:Status-Abbrev}|${Package}|${Version}|${source:Package}|${Architecture}\\n"
RPM_FORMAT = "rpm|%{NAME}|%{EPOCHNUM}|%{VERSION}|%{RELEASE}|%{ARCH}|%{SOURCERPM}\\n"

# Shell: prints the settings that dnf 4's plugin versionlock depends on, and its locks, as KIND|LINE.
LOCKS = """c=/etc/dnf/plugins/versionlock.conf
sed 's/^/dnf|/' /etc/dnf/dnf.conf 2>/dev/null
sed 's/^/conf|/' $c 2>/dev/null
for p in /usr/lib/python3*/*-packages/dnf-plugins/versionlock.py; do [ -e "$p" ] && echo "plugin|$p"; done
l=$(sed -n 's/^[[:space:]]*locklist[[:space:]]*[=:][[:space:]]*//p' $c 2>/dev/null | tail -n 1)
[ -n "$l" ] && { [ -r "$l" ] && echo "list|$l"; sed 's/^/lock|/' "$l" 2>/dev/null; }"""

NO_LOCK_PLUGIN = "dnf's plugin versionlock is not installed"


def build_packages_script(debian: str, redhat: str, more: str = "true") -> str:
    """Return a script that lists packages: quoted patterns for dpkg-query, an ERE for rpm. `more`: shell for dpkg."""
    installed = f"rpm -qa --qf '{RPM_FORMAT}' 2>/dev/null | grep -E '^rpm\\|({redhat})\\|'"
    return by_family(
        f"""echo "native|$(dpkg --print-architecture)"
dpkg-query -W -f '{DPKG_FORMAT}' {debian} 2>/dev/null; {more}; true""",
        f"{installed}\n{LOCKS}; true",
        f"{installed}\n{zypper.LOCKS}; true",
    )


def parse_packages(output: Output) -> dict[str, Package]:
    rows = output.rows()
    native, moved = {"all", *rows.get("native", [])}, excluded.find_transitional(rows.get("depends", []))
    by_name: dict[str, list[tuple[str, Package]]] = {}
    for line in output.text.splitlines():
        cells = line.split("|")
        if len(cells) not in (4, 5) or len(cells[0]) < 2 or cells[0][1] not in PRESENT:
            continue
        selection, state = cells[0][0], cells[0][1]
        version = excluded.VERSION if (cells[1], cells[2]) in moved else cells[2]
        package = Package(cells[1], version, cells[3], selection == "h", state == "i" and cells[0][2:3] != "R")
        called = package.name if native.issuperset(cells[4:]) else f"{package.name}:{cells[4]}"
        by_name.setdefault(package.name, []).append((called, package))
    packages: dict[str, Package] = {}
    for name, entries in by_name.items():
        packages[name] = _merge_packages(sorted(entries, key=lambda entry: entry[0] != entry[1].name))
        if "nvidia" in name and name.endswith(SUFFIX):  # stands for the DKMS package
            packages[name.removesuffix(SUFFIX)] = packages[name]
        packages |= {
            called: msgspec.structs.replace(package, name=called)
            for called, package in entries
            if package.version != packages[name].version
        }
    return packages or _parse_rpm(rows)


def _merge_packages(entries: list[tuple[str, Package]]) -> Package:
    """Merge packages of one name (the first gives the version); each comes with its name for the hold command."""
    first = entries[0][1]
    several = len(entries) > 1 or entries[0][0] != first.name
    return msgspec.structs.replace(
        first,
        held=all(package.held for _, package in entries),
        whole=all(package.whole for _, package in entries),
        each=tuple((called, package.held) for called, package in entries) if several else (),
    )


def _parse_rpm(rows: dict[str, list[str]]) -> dict[str, Package]:
    held = _make_hold_test(rows)
    by_name: dict[str, list[tuple[rpm.Nevra, str]]] = {}
    for row in rows.get("rpm", []):
        cells = row.split("|")
        if len(cells) == 6:
            source = re.sub(r"-[^-]+-[^-]+\.(src|nosrc)\.rpm\Z", "", cells[5])
            by_name.setdefault(cells[0], []).append((rpm.Nevra(*cells[:5]), source))
    packages: dict[str, Package] = {}
    for name, versions in by_name.items():
        versions.sort(key=lambda pair: rpm.by_age(pair[0]), reverse=True)
        several = bool(re.fullmatch(INSTALL_ONLY, name))
        complete = several or len({nevra.evr for nevra, _ in versions}) == 1
        newest = versions[0][0]
        entries = [Package(name, n.evr, of, held(newest if several else n, several), complete) for n, of in versions]
        packages[name] = entries[0] if several else _merge_packages([(name, entry) for entry in entries])
        if several:
            for (nevra, _), entry in zip(versions, entries, strict=True):
                packages[f"{name}-{nevra.version}-{nevra.release}.{nevra.arch}"] = entry
    return packages


def _make_hold_test(rows: dict[str, list[str]]) -> Callable[[rpm.Nevra, bool], bool]:
    """Return a function that says whether a package is held; its second argument: are versions kept in parallel."""
    lines = rows.get("lock", [])
    if "suse" in rows:
        return lambda nevra, _: bool(zypper_locks.list_held(zypper_locks.split_blocks("\n".join(lines)), [nevra.name]))
    locks = [] if _explain_no_locking(rows) else lines
    return lambda nevra, several: rpm.is_held(locks, nevra, beside=several)


def _get_setting(lines: list[str], key: str) -> str:
    """Return the last value of a key in section [main] of an INI file."""
    section, value = "", ""
    for line in lines:
        if match := re.match(r"\s*\[(\w+)\]", line):
            section = match[1]
        elif section == "main" and (match := re.match(rf"\s*{key}\s*[=:]\s*(\S*)", line)):
            value = match[1]
    return value


def _explain_no_locking(rows: dict[str, list[str]]) -> str:
    off = ("0", "false", "no", "off")
    if "plugin" not in rows:
        return NO_LOCK_PLUGIN
    if _get_setting(rows.get("dnf", []), "plugins").casefold() in off:
        return "dnf's plugins are switched off: plugins in /etc/dnf/dnf.conf"
    if _get_setting(rows.get("conf", []), "enabled").casefold() in off:
        return "dnf's plugin versionlock is switched off: enabled in /etc/dnf/plugins/versionlock.conf"
    if not _get_setting(rows.get("conf", []), "locklist"):
        return "dnf's plugin versionlock has no list: locklist in /etc/dnf/plugins/versionlock.conf"
    if "list" not in rows:
        return "the list of dnf's plugin versionlock cannot be read: locklist in /etc/dnf/plugins/versionlock.conf"
    return ""


def parse_locking(output: Output) -> str:
    rows = output.rows()
    if any(
        line.strip().rstrip(";").strip('"').casefold() in ("1", "true", "yes", "on") for line in rows.get("apt", [])
    ):
        return "apt may change held packages: APT::Get::allow-change-held-packages in /etc/apt"
    if "suse" in rows and rows.get("apply", ["yes"])[-1].casefold() not in ("", "yes", "true", "1", "on", "always"):
        return "zypper ignores locks: locksfile.apply in /etc/zypp/zypp.conf or /etc/zypp/zypp.conf.d"
    return _explain_no_locking(rows) if "redhat" in rows else ""


def parse_audit(output: Output) -> str:
    if "transaction lock" in output.error:  # another rpm is at work: apply waits for it
        return ""
    unsaid = output.error.strip() or f"the package database cannot be read (status {output.status})"
    return output.text.strip() or (unsaid if output.status else "")


def parse_index(output: Output) -> Index:
    moved = excluded.find_transitional(output.rows().get("depends", []))
    known = {n: [v for v in versions if (n, v) not in moved] for n, versions in parse_madison(output.text).items()}
    index = Index({name: versions for name, versions in known.items() if versions})
    index.places, index.moved = parse_places(output.text), {name: other for (name, _), other in moved.items()}
    index.excluded = excluded.parse(output.rows())
    offered: dict[str, set[rpm.Nevra]] = {}
    for row in output.rows().get("rpm", []):
        cells = row.split("|")
        if len(cells) == 5:
            offered.setdefault(cells[0], set()).add(rpm.Nevra(*cells))
    for name, versions in offered.items():
        newest_first = sorted(versions, key=rpm.by_age, reverse=True)
        index[name] = list(dict.fromkeys(nevra.evr for nevra in newest_first))
    if not index.keys() - {"dkms"}:
        lines = output.error.strip().splitlines()
        index.complaint = lines[-1] if lines else "the host's package lists name no package of NVIDIA's"
        index.busy = "locked by" in output.error
    return index


INSTALLED = (
    *(
        "*nvidia*",
        "libcuda*",
        "libnv*",
        "libxnvctrl*",
        "cuda*",
        "linux-image-*",
        "linux-headers-*",
        "linux-modules-*",
        "dkms",
    ),
    *("datacenter-gpu-manager*", "nvlink5*", "libcudnn*", "libnccl*"),
)
# Package names that concern the driver: Debian's as dpkg-query's patterns, rpm's as an expression of the whole name.
INSTALLED_RPM = (
    r".*nvidia.*|(lib)?cuda.*|libnv.*|libXNVCtrl.*|kernel([0-9]+[.][0-9]+)?(-.*)?|dkms|nv-prefer-.*|"
    r"datacenter-gpu-manager.*|nvlink.*|lib(cudnn|nccl).*"
)
OFFERED = (
    r"(lib)?(nvidia|cuda|nvcuvid|nvoptix|nvsdm|nvl|xnvctrl)|lib[a-z0-9]+-nvidia|xserver-xorg-video-nvidia|"
    r"firmware-nvidia|linux-(objects|signatures|modules)-nvidia|datacenter-gpu|dkms$"
)
# Package names to look up: Debian's as a regular expression for the beginning of a name, rpm's as dnf's patterns.
OFFERED_RPM = ("*nvidia*", "cuda*", "libnv*", "nvlink5*", "nvlsm", "datacenter-gpu-manager*", "dkms")
# Installed packages that concern the driver, by name.
PACKAGES = Probe(
    "packages",
    build_packages_script(" ".join(f"'{pattern}'" for pattern in INSTALLED), INSTALLED_RPM, excluded.INSTALLED),
    parse_packages,
    "dpkg -l '*nvidia*' 'libcuda*'; rpm -qa '*nvidia*' 'cuda*'; dnf versionlock list; zypper locks",
    blank=PACKAGE_LISTS,
)
# The reason why a held package of this host can change nevertheless; empty if holding works.
#
# dnf and dnf-automatic honour a lock only while the plugin is installed and switched on; `Package.held` is false then.
LOCKING = Probe(
    "package_locking",
    by_family(
        "apt-config dump --format 'apt|%v%n' APT::Get::allow-change-held-packages 2>/dev/null; true",
        f"echo 'redhat|'\n{LOCKS}; true",
        zypper.LOCKING,
    ),
    parse_locking,
    "apt-config dump APT::Get::allow-change-held-packages; grep -r . /etc/dnf/plugins/versionlock.conf; zypper locks",
    blank=PACKAGE_LISTS,
)
_AUDIT_RPM = f"""rpm --verifydb >/dev/null || exit 1
rpm -qa --qf '%{{NAME}}|%{{ARCH}}\\n' | grep -vE '^(gpg-pubkey|{INSTALL_ONLY})\\|' | sort | uniq -d |
  sed 's/\\(.*\\)|\\(.*\\)/\\1.\\2 is installed in two versions: a transaction was cut off/'"""
# The package manager's error about its database, or remains of an interrupted transaction; empty if all is well.
AUDIT = Probe(
    "package_audit",
    by_family("dpkg --audit", _AUDIT_RPM, _AUDIT_RPM),
    parse_audit,
    "dpkg --audit; rpm --verifydb; dnf check --duplicates; zypper verify",
)
# Offered package versions by name, newest first; from the lists that the host has fetched, never the network.
#
# Of Ubuntu's thousands of packages of prebuilt modules those for the host's kernels are read, and the metapackages.
INDEX = Probe(
    "package_index",
    by_family(
        f"n=$(apt-cache pkgnames | grep -E '^({OFFERED})')\n"
        r"""echo "$n" |
  awk -v k="$(ls /lib/modules 2>/dev/null | tr '\n' ' ')" 'BEGIN{n=split(k,r," ")} !/-[0-9]+\.[0-9]+\.[0-9]+-[0-9]+-/{print; next}
    {for(i=1;i<=n;i++) if(substr($0,length($0)-length(r[i]))=="-" r[i]) print}' |
  xargs -r apt-cache madison 2>/dev/null
echo "$n" | """
        f"{excluded.OFFERED}; true",
        f"{excluded.SCRIPT}\n{rpm.search(*OFFERED_RPM, streams=True)}",
        zypper.search(*OFFERED_RPM),
    ),
    parse_index,
    "apt-cache madison nvidia-kernel-dkms; dnf -C repoquery --showduplicates '*nvidia*'; zypper se -s '*nvidia*'",
    blank=r"(away|only)\|",
)

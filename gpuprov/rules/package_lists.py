"""Rules by which packages belong to a set, lists of them by source, and the answer of resolve about a set. Standard
library only."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

# Name prefix of packages that have the kernel's version, though they are for one version of the driver.
OF_KERNEL = "linux-modules-nvidia-"


def rpm_order(version: str) -> tuple[Any, ...]:
    """Return a sort key of `[epoch:]version-release` that orders as rpm does: digits beat letters, `~` is older than
    the end, `^` newer."""
    epoch, _, rest = version.rpartition(":")
    number, _, release = rest.partition("-")
    return (int(epoch) if re.fullmatch("[0-9]{1,18}", epoch) else 0, _split_segments(number), _split_segments(release))


def _split_segments(text: str) -> tuple[tuple[int, int, str], ...]:
    kinds = {"~": (-1, 0, ""), "^": (1, 0, "")}
    parts = re.findall(r"\d+|[A-Za-z]+|[~^]", text)
    segments = [
        kinds.get(part, (3, int(part), "") if re.fullmatch("[0-9]{1,18}", part) else (2, 0, part)) for part in parts
    ]
    return (*segments, (0, 0, ""))


def header_metapackages(names: Iterable[str]) -> list[str]:
    """Return the metapackages that install headers along with each kernel installed by the `linux-image-...`
    metapackages among these names."""
    # linux-image-unsigned-KERNEL and linux-image-extra-KERNEL are packages of one kernel; linux-image-extra-virtual
    # installs the generic one (https://wiki.ubuntu.com/Kernel/Dev/Meta-Pkgs).
    meta = re.compile(r"linux-image-(?!unsigned-|extra-\d)([a-z].*)(?<!-dbg)(?<!-unsigned)")
    images = [match[1] for match in map(meta.fullmatch, names) if match]
    return list(dict.fromkeys(f"linux-headers-{re.sub('^extra-virtual', 'generic', image)}" for image in images))


def header_package(form: str, release: str) -> str:
    """Return the package of a kernel's headers, `kernel-devel-{kernel}` by the form of its distribution."""
    # Oracle's UEK and EL's other kernels (`...aarch64+64k`) have packages with other names:
    # https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/615/oracle-linux.html SUSE's kernels end in
    # their flavour, and their headers are a version of one package: `kernel-{kernel_flavour}-devel={kernel}`.
    if "{kernel_flavour}" in form:
        version, _, own = release.rpartition("-")
        return form.replace("{kernel_flavour}", own).replace("{kernel}", version)
    base, _, variant = release.rpartition("+")
    # None, or in the version: 5.14.0-687.42.1+2.1.el9_8_ciq.x86_64 of Rocky on Google Cloud.
    if not base or "." in variant:
        base, variant = release, ""
    other = f"uek{variant}" if "uek." in release else variant
    if other and form.startswith("kernel-devel-"):
        return f"kernel-{other}-devel-{base}"
    return re.sub("^kernel(?=-)", kernel_name(release), form).replace("{kernel}", release)


def kernel_name(release: str) -> str:
    """Return the package of a kernel on a distribution with several series of them, by its release: Amazon Linux's
    later ones are kernel6.12 and kernel6.18 (https://docs.aws.amazon.com/linux/al2023/ug/kernel-update.html), Azure
    Linux 3's kernel-hwe (https://github.com/microsoft/azurelinux/blob/3.0/SPECS/kernel-hwe/kernel-hwe.spec)."""
    series = re.match(r"(\d+\.\d+)\..*\.(amzn2023|azl3)\b", release)
    if not series or series[1] in ("6.1", "6.6"):
        return "kernel"
    return f"kernel{series[1]}" if series[2] == "amzn2023" else "kernel-hwe"


def without_headers(
    forms: Iterable[str], kernels: Iterable[Sequence[str]], index: Mapping[str, list[str]]
) -> list[str]:
    """Return kernels without headers and without an offered package of them: old ones, which distributions remove from
    their repositories.

    `kernels`: after a first word, a kernel's release, then whether it can boot, has headers, and is running or started
    next ("1"). The kernel that is running or started next is never left out, and neither is the newest."""
    known = [row[1:] for row in kernels]
    newest = max((row[0] for row in known), key=rpm_order, default="")
    offered = {name: {version.partition(":")[2] or version for version in versions} for name, versions in index.items()}

    def is_offered(package: str) -> bool:
        if "=" in package:
            base_name, _, version = package.partition("=")
            return any(f"{candidate}.".startswith(f"{version}.") for candidate in index.get(base_name, ()))
        name = without_release(package)
        versions = offered.get(name, ())
        rest = package.removeprefix(f"{name}-")
        return package in offered or rest in versions or rest.rpartition(".")[0] in versions

    left = [row[0] for row in known if row[2] == row[3] == "0" and row[0] != newest]
    return [
        package
        for package in left
        if not all(is_offered(header_package(form, package)) for form in forms if "{kernel}" in form)
    ]


def exact_version(package: str, index: Mapping[str, list[str]]) -> str:
    """Return `NAME=VERSION` with the offered version: it ends with SUSE's rebuild number, which the kernel's release
    lacks."""
    name, _, version = package.partition("=")
    return next(
        (f"{name}={candidate}" for candidate in index.get(name, ()) if f"{candidate}.".startswith(f"{version}.")),
        package,
    )


def header_packages(
    forms: Iterable[str], kernels: Iterable[str], index: Mapping[str, list[str]] | None = None
) -> list[str]:
    """Return the packages of these kernels' headers, and those that belong to no kernel."""
    known, releases = list(forms), list(kernels)
    each = [header_package(form, release) for form in known if "{kernel}" in form for release in releases]
    each = [exact_version(name, index or {}) if "=" in name else name for name in each]
    return list(dict.fromkeys([*(form for form in known if "{kernel}" not in form), *each]))


def without_release(package: str) -> str:
    """Strip a kernel's release: `kernel6.12-devel-6.12.73-95.123.amzn2023.x86_64` -> `kernel6.12-devel`, the name in
    rpm."""
    return re.sub(r"^(kernel\S*?)[-=]\d+\.\d.*", r"\1", package)


def real_versions(packages: dict[str, str], exact: Mapping[str, dict[str, str]]) -> dict[str, str]:
    """Return versions in the package manager's form, without the driver's before the kernel's; and what each requires
    `exact`ly."""
    real = {n: v.partition("-")[2] if n.startswith(OF_KERNEL) else v for n, v in packages.items()}
    return real | {n: v for name, version in real.items() for n, v in exact.get(f"{name}={version}", {}).items()}


def precompiled_sets(
    sets: Mapping[str, Iterable[Any]], names: Mapping[str, Iterable[str]], kernels: Iterable[str]
) -> dict[str, list[Any]]:
    """Return a driver's sets (see `gpuprov.rules.resolve`) with the modules of these kernels, whose `names` by flavour
    contain `{kernel}`."""
    # NVIDIA's packages for dnf name the kernel without the distribution's tag and what follows it.
    bare = [re.sub(r"\.el\d.*\Z", "", release) for release in kernels]
    more = {
        kind: [{"name": name.replace("{kernel}", kernel), "min": 0, "max": 9999} for kernel in bare for name in given]
        for kind, given in names.items()
    }
    return {kind: [*rules, *more.get(kind, [])] for kind, rules in sets.items()}


class Rule(TypedDict, total=False):
    """A package of a set: `{branch}` and `{version}` in its name are filled in, `min` and `max` are branches."""

    name: str
    min: int
    max: int
    # A pattern of its archive's package versions.
    like: str
    # Moves with the set, but is not part of it.
    companion: bool
    # Names with `{kernel}`, one of which must be installed.
    proof: list[str]
    # A package of the driver without which it does not go.
    needs: str
    # It identifies another source's driver.
    mark: bool
    # One whose modules come to the host in the other way.
    built: bool
    # The fix if none is offered.
    fix: str


class Choice(TypedDict):
    """The flavour of the kernel modules."""

    flavour: str
    reason: str
    problem: str


class Answer(TypedDict, total=False):
    """A set in one version, or the problem; `kept`: it is installed, `replaced`: installed packages that it
    replaces."""

    flavour: str
    reason: str
    version: str
    branch: str
    packages: dict[str, str]
    kept: bool
    replaced: list[str]
    problem: str
    fix: str


class Follower(TypedDict):
    """The package that follows an installed driver."""

    name: str
    version: str
    replaced: Sequence[str]
    problem: str
    fix: str

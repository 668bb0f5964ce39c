"""Checks that are generated from settings and kernel modules: their comparison, their words, and the changes that a
plan shows."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import fields as members
from typing import Any

import msgspec

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Capability, Change, Check, Context, Moment, Outcome, check, fail, not_asked, ok
from gpuprov.facts.probes.base import Facts, Probe
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import words
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.software.packages import Package
from gpuprov.resources import Difference, KernelModule, Modules, Setting, Values, compare_packages
from gpuprov.resources.kernel_module import MODPROBE_FILE
from gpuprov.rules import resolve

_NUMBERED = re.compile(r"GPU (\d+)(?: \([^()]*\))?")


class Group(msgspec.Struct, frozen=True):
    """The resources that one check compares, and what the host has of them."""

    resources: tuple[Setting | KernelModule, ...]
    values: Values = {}
    modules: Modules = Modules()
    # `expected`, `right`: the state that is wanted, and the one that was found, where they are more than the values
    # themselves.
    expected: str = ""
    right: str = ""
    # What to do where one differs.
    fix: str = APPLY
    # What a file says when it is right, by path, where a module or an option is missing in it.
    files: Mapping[str, str] = {}
    # The file that apply changes for all of them together; empty where it is another check's; None: each is a change.
    changed: str | None = None
    # How they differ, in words of their own.
    message: str = ""
    # What else is wrong, which no resource says.
    beside: tuple[str, ...] = ()
    # Why only a reboot brings it.
    reboot: str = ""
    # Devices that the host has, beside those of the resources.
    present: tuple[str, ...] = ()

    def compare(self) -> list[Difference]:
        """Compare all of them, in their order."""
        return [difference for resource in self.resources for difference in compare_resource(resource, self)]


def compare_resource(resource: Setting | KernelModule, group: Group) -> Iterator[Difference]:
    """Compare one resource of a group with what the host has."""
    if isinstance(resource, KernelModule):
        yield from resource.compare(group.modules)
    elif difference := resource.compare(group.values):
        yield difference


@dataclass(frozen=True, kw_only=True)
class Compared(Check):
    """A check that is generated from a group."""

    # The group for a host; or the outcome where there is nothing to compare.
    group: Callable[[Context[Any]], Group | Outcome]
    # What ends the values of its settings once nothing declares them; empty: they have gone with the files by which
    # they are set.
    until: str = ""


def compared(
    identifier: str,
    *probes: Probe[Any],
    fields: tuple[str, ...] = (),
    moment: Moment = "now",
    evidence: str = "",
    until: str = "",
) -> Callable[[Callable[[Context[Any]], Group | Outcome]], Compared]:
    """Turn a function that yields a group into the check of its resources."""

    def made(group: Callable[[Context[Any]], Group | Outcome]) -> Compared:
        def run(ctx: Context[Any]) -> Outcome:
            result = group(ctx)
            return result if isinstance(result, Outcome) else judge(result)

        run.__doc__ = group.__doc__
        plain = check(identifier, *probes, fields=fields, moment=moment, evidence=evidence)(run)
        return Compared(
            **{field.name: getattr(plain, field.name) for field in members(Check)}, group=group, until=until
        )

    return made


def list_compared(capability: Capability) -> list[Compared]:
    """Return the capability's checks that are generated from settings and modules."""
    return [check for check in capability.checks if isinstance(check, Compared)]


def judge(group: Group) -> Outcome:
    """Compare a group's resources with the host's."""
    if not (group.resources or group.right or group.beside):
        return not_asked()
    expected = group.expected or " ".join(filter(None, map(describe, group.resources)))
    differences = group.compare()
    if not (differences or group.beside):
        return ok(group.right or expected, expected)
    fixes = dict.fromkeys(difference.fix or group.fix for difference in differences) or (group.fix,)
    reasons = dict.fromkeys(filter(None, (group.reboot, *(difference.reboot for difference in differences))))
    return fail(
        expected,
        group.message or "; ".join([*describe_differences(differences), *group.beside]),
        "; ".join(fixes),
        changes=_list_changes(group, differences, expected),
        reboot="; ".join(reasons),
    )


def keep_out(facts: Facts, names: Iterable[str]) -> Group:
    """Return these modules as ones that nothing loads by an alias, in modprobe's merged configuration."""
    out = tuple(KernelModule(name=name, kept_out=True) for name in names)
    return Group(
        out,
        modules=Modules(kept_out=facts.get(modules.MODPROBE).blacklist),
        expected="blacklisted: " + " ".join(module.kernel_name for module in out),
        fix=f"{APPLY} writes {MODPROBE_FILE}",
    )


def find_fault(
    resource: Setting | KernelModule,
    state: Modules | Values,
    expected: str,
    message: str = "",
    *,
    fix: str = APPLY,
    reboot: str = "",
) -> Outcome | None:
    """Return the outcome of a check by hand if one resource differs, which it needs; None if it does not. message: its
    difference in words."""
    loaded, values = (state, {}) if isinstance(state, Modules) else (Modules(), state)
    differences = Group((resource,), values, loaded).compare()
    if not differences:
        return None
    words = message or "; ".join(describe_differences(differences))
    return fail(
        expected,
        words,
        differences[0].fix or fix,
        changes=list_changes(differences),
        reboot=reboot or differences[0].reboot,
    )


def _list_changes(group: Group, differences: Iterable[Difference], expected: str) -> list[Change]:
    if group.changed is None:
        return list_changes(differences, group.files)
    return [Change(kind="file", name=group.changed, after=expected)] if group.changed else []


def describe(resource: Setting | KernelModule) -> str:
    """Describe what is wanted, in few words."""
    if isinstance(resource, KernelModule):
        return " ".join([resource.kernel_name, *(f"{key}={value}" for key, value in resource.options.items())])
    return f"{resource.key or resource.label}={resource.value}" if resource.value else resource.key or resource.label


def describe_differences(differences: Iterable[Difference]) -> Iterator[str]:
    """Describe differences, each in its words; devices that differ alike together."""
    alike: dict[str, list[str]] = {}
    for difference in differences:
        alike.setdefault(difference.words or f"{difference.path}: {difference.before}", []).append(difference.device)
    for text, devices in alike.items():
        yield text.replace("{devices}", fold_devices(dict.fromkeys(devices)))


def fold_devices(devices: Iterable[str]) -> str:
    """Name devices; several GPUs as `GPUs 0, 1, 2`."""
    names = list(devices)
    numbers = [match[1] for name in names if (match := _NUMBERED.fullmatch(name))]
    return f"GPUs {', '.join(numbers)}" if 1 < len(numbers) == len(names) else " ".join(names)


def list_changes(differences: Iterable[Difference], files: Mapping[str, str] = {}) -> list[Change]:
    """Return what apply would make of differences, without those that it cannot change; those of one file together,
    with the text that it gets where that is known."""
    merged: dict[tuple[str, str], list[Difference]] = {}
    for difference in differences:
        if difference.outdone:
            continue
        merged.setdefault((difference.kind, difference.path), []).append(difference)
    return [
        Change(
            kind=each[0].kind,
            name=path,
            before="; ".join(dict.fromkeys(difference.before for difference in each if difference.before)),
            after=files.get(path) or "; ".join(dict.fromkeys(difference.after for difference in each)),
        )
        for (_, path), each in merged.items()
    ]


def move_packages(
    desired: Mapping[str, str], installed: Mapping[str, str] = {}, remove: Iterable[str] = ()
) -> list[Change]:
    """Return the packages that a package manager would move, those removed first."""
    return list_changes(compare_packages(desired, installed, remove))


def judge_package(facts: Facts, package: Package, driver: str, expected: str, fix: str = APPLY) -> Outcome | None:
    """Return what is wrong with an installed package; None if it is whole and of the driver's version. `fix`: the fix
    for another version."""
    if not package.whole:
        repair = words(facts.get(system.OS_RELEASE)).repair
        return fail(expected, f"{package.name} is incomplete", f"{repair}; {APPLY}")
    if not driver:
        return fail(expected, f"{package.name} {package.version}, and no driver", "add nvidia_driver to the spec")
    if resolve.upstream(package.version) != driver:
        changes = move_packages({package.name: driver}, {package.name: package.version})
        return fail(expected, f"{package.name} {package.version}", fix, changes=changes)
    return None


def judge_program(facts: Facts, program: str, version: str, driver: str, expected: str) -> Outcome | None:
    """Return what is wrong with a program that says this version of itself; None if it is the driver's."""
    if version == driver:
        return None
    owner = words(facts.get(system.OS_RELEASE)).owner
    fix = f"{owner} {program}; another installation's program lies there"
    return fail(expected, f"{program} says {version or 'nothing'}", fix)


def find_missing(
    names: Iterable[str], installed: Iterable[str], fix: str = APPLY, expected: str = ""
) -> Outcome | None:
    """Return the outcome of a host without one of these packages; None if it has all."""
    needed = list(names)
    differences = list(compare_packages(dict.fromkeys(needed, "installed"), dict.fromkeys(installed, "")))
    if not differences:
        return None
    message = "; ".join(describe_differences(differences))
    return fail(expected or " ".join(needed), message, fix, changes=list_changes(differences))


def rebuild_images(images: Iterable[str], after: str = "rebuilt") -> list[Change]:
    """Return the initramfs images that are made anew."""
    return list_changes(Difference(image, "", after, kind="initramfs") for image in images)


def build_modules(name: str, kernels: Mapping[str, str], after: str = "built") -> list[Change]:
    """Return a module that is built for these kernels, each with what its present one is; empty where it has none."""
    return list_changes(
        Difference(f"{name} for {release}", before, after, kind="module") for release, before in kernels.items()
    )


def restart_unit(name: str, before: str, after: str = "restarted") -> list[Change]:
    """Return a unit that is started anew, since its program does not do what its unit says."""
    return list_changes([Difference(name, before, after, kind="service")])

"""Anything that the next boot would load in place of the driver's modules, or that keeps them from loading."""

from collections.abc import Iterator

from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, ok, skip
from gpuprov.capabilities.booting import coming
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.catalog.drivers.sets import MODULE_NAMES
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.kernel import boot, initramfs, modules
from gpuprov.facts.probes.kernel.boot import BootEntry
from gpuprov.facts.probes.kernel.next_boot import NEXT_BOOT
from gpuprov.host_code.first_boot_tools import KEPT

Ctx = Context[NvidiaDriver]
NEEDED = frozenset(modules.underscored(f"{name}{part}") for name in MODULE_NAMES for part in ("", "-uvm"))
VFIO = "vfio_pci"
# By family: how to remove a parameter from the boot entries.
ENTRIES = {
    "debian": "take {} out of /etc/default/grub and /etc/default/grub.d; update-grub",
    "redhat": "grubby --update-kernel=ALL --remove-args={}",
    "suse": "take {} out of /etc/default/grub; grub2-mkconfig -o /boot/grub2/grub.cfg",
}
PLACES = "/etc/modprobe.d /usr/lib/modprobe.d /run/modprobe.d"


@check(
    "nvidia_driver.initramfs",
    initramfs.INITRAMFS,
    fields=("version",),
    moment="next-boot",
    evidence=initramfs.INITRAMFS.evidence,
)
def in_initramfs(ctx: Ctx) -> Outcome:
    """No initramfs holds older NVIDIA modules than those of its kernel, which would be loaded and not match the
    driver's libraries."""
    images = ctx.facts.get(initramfs.INITRAMFS)
    if not images:
        return skip("no initramfs in /boot")
    if unreadable := [image for image in images if not image.readable]:
        return skip(f"not readable: {' '.join(image.image for image in unreadable)}; {unreadable[0].listing}")
    if old := [image for image in images if image.old_driver]:
        made_anew = old if "kernel" in ctx.host.capabilities else []  # its role alone makes images
        changes = [Change(kind="initramfs", name=image.image, after="rebuilt") for image in made_anew]
        message = (
            f"older than the driver's modules, and with NVIDIA modules inside: {' '.join(image.image for image in old)}"
        )
        fix = f"{old[0].rebuild}; without, the next boot ends in Driver/library version mismatch"
        return fail("no older NVIDIA module in any image", message, fix, changes=changes)
    return ok(f"no older NVIDIA module in {counted(len(images), 'image')}")


@check(
    "nvidia_driver.kept_away",
    *(modules.MODPROBE, modules.BUILT_IN, modules.KERNELS, boot.MODULES_LOAD, boot.BOOT_ENTRIES, NEXT_BOOT),
    *(initramfs.INITRAMFS, pci.NVIDIA_FUNCTIONS, system.OS_RELEASE),
    fields=("version",),
    moment="next-boot",
    evidence="modprobe -c | grep -E '^(blacklist|install|options|softdep) (nvidia|vfio)'; grep linux "
    "/boot/grub*/grub.cfg",
)
def kept_away(ctx: Ctx) -> Outcome:
    """No setting keeps the driver from the host's GPUs at the next boot: neither modprobe's, nor a parameter of the
    entry that starts."""
    expected, entries = "nothing that keeps NVIDIA's driver from the GPUs", _list_next_entries(ctx)
    wrong = dict([*_find_unloaded(ctx, entries), *_find_taken_gpus(ctx, entries)])
    if wrong:
        return fail(expected, "; ".join(wrong), "; ".join(dict.fromkeys(wrong.values())))
    listed = ctx.facts.get(modules.MODPROBE).blacklist.union(
        *(_list_names(entry.get("modprobe.blacklist", "")) for entry in entries)
    )
    by_name = " ".join(sorted(NEEDED & listed))
    suffix = (
        f"; blacklisted, so that only what asks for it by name loads it, as nvidia-modprobe does: {by_name}"
        if by_name
        else ""
    )
    ids = ctx.facts.get(modules.MODPROBE).options.get(VFIO, {}).get("ids", "")
    if any(_is_true_for_all(ids, gpu.identifier) for gpu in _list_gpus(ctx)):
        suffix += f"; vfio-pci ids={ids} would take GPUs, and nothing loads vfio-pci early"
    return ok(f"nothing keeps it away{suffix}", expected)


def _list_next_entries(ctx: Ctx) -> list[BootEntry]:
    """Return the entries of the kernels that start next, without rescue entries and those that gpuprov keeps for a boot
    that fails."""
    ahead = coming(ctx.facts)
    releases = {kernel.release for kernel in ahead.each} if ahead else set()
    known = [fact for fact in ctx.facts.get(boot.BOOT_ENTRIES) if fact.kernel in releases]
    return [entry for entry in known if not {"single", "recovery", KEPT} & set(entry)]


def _find_unloaded(ctx: Ctx, entries: list[BootEntry]) -> Iterator[tuple[str, str]]:
    """Yield each fault and its fix: a command that replaces a module and loads nothing, and `module_blacklist`, which
    applies whatever loads the module."""
    # https://docs.kernel.org/admin-guide/kernel-parameters.html
    for name, command in sorted(ctx.facts.get(modules.MODPROBE).install.items()):
        if name in NEEDED and modules.loads_nothing(command):
            places = " ".join(ctx.facts.get(modules.MODPROBE).places.get(("install", name), []))
            fix = f"take install {name} out of {places}" if places else f"grep -rn install {PLACES}, and take it out"
            yield f"install {name} {command} (modprobe.d)", fix
    if entries and all(NEEDED & _list_names(entry.get("module_blacklist", "")) for entry in entries):
        yield (
            f"module_blacklist={entries[0]['module_blacklist']} (boot entries)",
            _describe_removed_words(ctx, "module_blacklist"),
        )


def _find_taken_gpus(ctx: Ctx, entries: list[BootEntry]) -> Iterator[tuple[str, str]]:
    """Yield GPUs that vfio-pci takes by their ids, if it loads before NVIDIA's driver: by a list, from an initramfs, by
    a softdep, as a part of the kernel."""
    # GPUs bound to it now are meant for it (https://docs.kernel.org/driver-api/vfio.html).
    known, built_in = ctx.facts.get(modules.MODPROBE), VFIO in ctx.facts.get(modules.BUILT_IN)
    first = [known.before.get(name, frozenset()) for name in (*NEEDED, "nouveau")]
    images = [fact.modules for fact in ctx.facts.get(initramfs.INITRAMFS)]
    early = any(VFIO in names for names in (ctx.facts.get(boot.MODULES_LOAD), *first, *images))
    of_entries = [entry.get("vfio-pci.ids", "") or entry.get("vfio_pci.ids", "") for entry in entries]
    of_modprobe = known.options.get(VFIO, {}).get("ids", "")
    for every, place, fix in (
        ([of_modprobe] * (early and not built_in), "modprobe.d", f"grep -rn vfio {PLACES}, and take the ids out"),
        (of_entries * (early or built_in), "boot entries", _describe_removed_words(ctx, "vfio-pci.ids")),
    ):
        taken = [
            gpu.address
            for gpu in _list_gpus(ctx)
            if every and all(_is_true_for_all(ids, gpu.identifier) for ids in every)
        ]
        if taken:
            yield f"vfio-pci ids={every[0]} ({place}), which takes {' '.join(taken)}", fix


def _list_gpus(ctx: Ctx) -> list[pci.PciFunction]:
    return list(pci.driven(ctx.facts.get(pci.NVIDIA_FUNCTIONS)))


def _is_true_for_all(ids: str, identifier: str) -> bool:
    return identifier in [":".join(part.lower().split(":")[:2]) for part in ids.split(",")]


def _list_names(listed: str) -> frozenset[str]:
    return frozenset(map(modules.underscored, listed.split(",")))


def _describe_removed_words(ctx: Ctx, word: str) -> str:
    return ENTRIES[family(ctx.facts.get(system.OS_RELEASE)) or "debian"].format(word)


CHECKS = (in_initramfs, kept_away)

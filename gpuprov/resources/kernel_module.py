"""A kernel module as a resource: loaded or not, loaded at a boot, kept out, with its parameters."""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from gpuprov.resources.difference import Difference

MODPROBE_FILE, MODULES_FILE = "/etc/modprobe.d/gpuprov.conf", "/etc/modules-load.d/gpuprov.conf"


class Modules(msgspec.Struct, frozen=True, kw_only=True):
    """Modules of a host, by the kernel's names: `loaded`, which are part of the kernel, too; `at_boot`: in
    modules-load.d; `kept_out`: blacklisted, `options`: their parameters, both by modprobe's merged configuration."""

    loaded: Collection[str] = ()
    at_boot: Collection[str] = ()
    kept_out: Collection[str] = ()
    options: Mapping[str, Mapping[str, str]] = {}


class KernelModule(msgspec.Struct, frozen=True, kw_only=True):
    """A module. `loaded`: whether it is; None: either is right. `at_boot`: it is loaded at each boot, `kept_out`:
    nothing loads it by an alias, `options`: its parameters as modprobe gives them, all by gpuprov's own files. `label`:
    its name in messages. `outdated`: which module is loaded in place of the right one, `right`. `reboot`: why only a
    reboot brings it. `fix`: what to do where it is not loaded. `outdone`: parameters that files of others decide."""

    name: str
    loaded: bool | None = None
    at_boot: bool = False
    kept_out: bool = False
    options: Mapping[str, str] = {}
    label: str = ""
    outdated: str = ""
    right: str = "that on disk"
    reboot: str = ""
    fix: str = ""
    outdone: Collection[str] = ()

    @property
    def kernel_name(self) -> str:
        """The name as the kernel writes it."""
        return self.name.replace("-", "_")

    def compare(self, modules: Modules) -> Iterator[Difference]:
        """Compare it with what the host has."""
        name, label = self.kernel_name, self.label or self.kernel_name
        if self.kept_out and name not in modules.kept_out:
            yield Difference(MODPROBE_FILE, "", f"blacklist {name}", device=name, words="not blacklisted: {devices}")
        options = modules.options.get(name, {})
        for key, value in self.options.items():
            if options.get(key) != value:
                before = f"{label}: {key}={options.get(key, 'missing')}"
                after, outdone = f"{label}: {key}={value}", key in self.outdone
                yield Difference(MODPROBE_FILE, before, after, device=name, words=before, outdone=outdone)
        if self.at_boot and name not in modules.at_boot:
            yield Difference(MODULES_FILE, "", name, device=name, words="not in modules-load.d: {devices}")
        is_loaded = name in modules.loaded
        if self.loaded is not None and self.loaded != is_loaded:
            before, after = ("loaded", "unloaded") if is_loaded else ("", "loaded")
            yield self._differ(before, after, "loaded: {devices}" if is_loaded else "not loaded: {devices}")
        elif self.loaded and self.outdated:
            yield self._differ(self.outdated, self.right, f"{{devices}} is {self.outdated}")

    def _differ(self, before: str, after: str, words: str) -> Difference:
        label = self.label or self.kernel_name
        return Difference(
            label,
            before,
            after,
            kind="module",
            device=label,
            words=words,
            moment="now",
            reboot=self.reboot,
            fix=self.fix,
        )


def describe_module(module: KernelModule) -> str:
    """Describe the wanted state: `loaded, at each boot`."""
    words = [] if module.loaded is None else ["loaded" if module.loaded else "not loaded"]
    words += ["at each boot"] * module.at_boot + ["kept out"] * module.kept_out
    return ", ".join([*words, *(f"{key}={value}" for key, value in module.options.items())]) or "as it is"

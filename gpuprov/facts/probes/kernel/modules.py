"""Kernel modules: those loaded, the configuration of modprobe, and those of each installed kernel."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Output, Probe, ProbeFailed

# Pattern of a module's name.
NAME = re.compile(r"[\w.+-]+", re.ASCII)


class Modprobe(msgspec.Struct, frozen=True):
    """modprobe's merged configuration. Module names have underscores, as the kernel writes them."""

    blacklist: frozenset[str]
    options: dict[str, dict[str, str]]
    # Commands in place of modules.
    install: dict[str, str] = {}
    # Modules loaded before a module (softdep).
    before: dict[str, frozenset[str]] = {}
    # The files with a line of that kind about a module, or with that option of it, in the order of their names, which
    # is modprobe's.
    places: dict[tuple[str, ...], list[str]] = {}

    def show_places(self, kind: str, name: str) -> str:
        """Return the files that blacklist a module, or install a command in its place."""
        return ", ".join(self.places.get((kind, name), ["modprobe.d"]))

    def is_brief(self, kind: str, name: str) -> bool:
        """Return whether only files below /run blacklist a module, or install a command in its place: a boot finds none
        there."""
        places = self.places.get((kind, name), [])
        return bool(places) and all(path.startswith("/run/") for path in places)

    def list_outdone(self, module: str, keys: Iterable[str]) -> frozenset[str]:
        """Return the options of a module that a file after gpuprov's sets, whose value counts."""
        last = {key: self.places.get(("options", underscored(module), key), [""])[-1] for key in keys}
        return frozenset(key for key, path in last.items() if path.rpartition("/")[2] > "gpuprov.conf")

    def list_moves(self, declared: Mapping[str, Mapping[str, str]]) -> list[str]:
        """List what is to be taken out of files that are not gpuprov's: options with another value than the declared
        one."""
        wrong = {
            f"take {key} of {name} out of {path}"
            for name, options in declared.items()
            for key, value in options.items()
            if self.options.get(underscored(name), {}).get(key) != value
            for path in self.places.get(("options", underscored(name), key), [])
            if path.rpartition("/")[2] != "gpuprov.conf"
        }
        return sorted(wrong)


class KernelModules(msgspec.Struct, frozen=True, kw_only=True):
    """One installed kernel: whether it can boot here (`bootable`: an image in /boot, or beside its modules where /boot
    has none, as with unified images and ostree), its headers, its NVIDIA modules."""

    release: str
    bootable: bool
    headers: bool
    # The version of the NVIDIA module on disk for it, empty if none.
    nvidia: str
    # It has nouveau.
    nouveau: bool
    # The kernel that the NVIDIA module was built for, which is this one too if the symbol versions match; empty if the
    # module does not state it.
    built: str = ""
    # It is the running kernel.
    runs: bool = False
    # It has one, or that is unknown.
    initramfs: bool = True
    # Other modules of the set with another version, as NAME=VERSION.
    strays: tuple[str, ...] = ()
    # Modules that CUDA needs and that are not there, or cannot be read.
    missing: tuple[str, ...] = ()

    @property
    def alien(self) -> bool:
        """True if its NVIDIA module is for another kernel, so that this one refuses it."""
        return self.built not in ("", self.release)


def underscored(name: str) -> str:
    """Return a module's name as the kernel writes it."""
    return name.replace("-", "_")


# Programs that load no module.
NOTHING = frozenset({"true", "false", ":"})


def loads_nothing(command: str) -> bool:
    """Return whether a command that stands for a module loads none."""
    return command.partition(" ")[0].rpartition("/")[2] in NOTHING and "modprobe" not in command


def parse_loaded(output: Output) -> dict[str, int]:
    if output.status:
        raise ProbeFailed(f"/proc/modules cannot be read: {output.error.strip()}")
    # /proc/modules: `nvidia_uvm 1560576 2 - Live 0x0000000000000000 (POE)`; lsmod prints the first three columns.
    cells = [line.split() for line in output.text.splitlines() if not line.startswith("Module ")]  # lsmod's title
    if strange := [row for row in cells if row and not (len(row) >= 3 and NAME.fullmatch(row[0]) and is_whole(row[1]))]:
        raise ProbeFailed(f"/proc/modules has a line that is none of it: {' '.join(strange[0])[:80]!r}")
    return {row[0]: int(row[2]) if is_whole(row[2]) else 0 for row in cells if len(row) >= 3}


def parse_built_in(output: Output) -> frozenset[str]:
    names = [underscored(name) for name in output.text.split()]
    if strange := [name for name in names if not NAME.fullmatch(name)]:
        raise ProbeFailed(f"modules.builtin has a name that is none: {strange[0][:80]!r}")
    return frozenset(names)


def parse_modprobe(output: Output) -> Modprobe:
    blacklist: set[str] = set()
    options: dict[str, dict[str, str]] = {}
    install: dict[str, str] = {}
    before: dict[str, frozenset[str]] = {}
    places: dict[tuple[str, ...], list[str]] = {}
    for line in output.text.splitlines():
        kind, _, rest = line.strip().partition(" ")
        if kind == "in":
            path, _, text = rest.partition(":")
            kind, name, *words = [*text.split(), "", ""]
            for key in [word.partition("=")[0] for word in words if kind == "options" and word] or [""]:
                places.setdefault(tuple(filter(None, (kind, underscored(name), key))), []).append(path)
            continue
        name, _, values = rest.strip().partition(" ")
        # `modprobe -c` prints the merged lines of modprobe.d(5) (tests/real/nixos-2-modprobe-d):
        #     blacklist nouveau
        #     softdep nvidia post: nvidia-uvm
        if kind == "blacklist":
            blacklist.add(underscored(name))
        elif kind == "options":
            pairs = (item.partition("=") for item in values.split())
            options.setdefault(underscored(name), {}).update({key: value.strip('"') for key, _, value in pairs})
        elif kind == "install":
            install[underscored(name)] = values.strip()
        elif kind == "softdep":
            first = values.partition("post:")[0].replace("pre:", " ").split()
            before[underscored(name)] = frozenset(map(underscored, first))
    return Modprobe(frozenset(blacklist), options, install, before, places)


# Shell: only an image beside the modules counts. In a container that has the machine's /lib/modules, it is the
# machine's.
BESIDE = "2"


NONE = "=none"


def parse_kernels(output: Output) -> tuple[KernelModules, ...]:
    kernels = []
    rows = output.text.splitlines()
    image = "1" if any(line.split("|")[1:2] == ["1"] for line in rows) else BESIDE
    for line in rows:
        release, bootable, headers, nvidia, nouveau, built, runs, initial, strays = (*line.split("|"), *[""] * 4)[:9]
        kernels.append(
            KernelModules(
                release=release,
                bootable=bootable == image,
                headers=headers == "1",
                nvidia=nvidia,
                nouveau=nouveau == "1",
                built=built,
                runs=runs == "1",
                initramfs=initial != "0",
                strays=tuple(word for word in strays.split() if not word.endswith(NONE)),
                missing=tuple(word.removesuffix(NONE) for word in strays.split() if word.endswith(NONE)),
            )
        )
    return tuple(kernels)


# Loaded modules by name, with their use counts.
# A kernel built without modules, as small virtual machines have it, has neither file.
LOADED = Probe(
    "loaded_modules",
    "[ ! -e /proc/version ] || [ -e /proc/modules ] || [ -e /proc/sys/kernel/modprobe ] || exit 0; cat /proc/modules",
    parse_loaded,
    "lsmod",
)
# Modules that are part of the running kernel itself: always present, never in lsmod.
# kernel/drivers/infiniband/core/ib_core.ko     (modules.builtin: a path for each module)
BUILT_IN = Probe(
    "built_in_modules",
    "sed 's#.*/##; s#\\.ko.*##' /lib/modules/$(uname -r)/modules.builtin 2>/dev/null; true",
    parse_built_in,
    "cat /lib/modules/$(uname -r)/modules.builtin",
)
MODPROBE = Probe(
    "modprobe_config",
    """x=$(modprobe -c 2>/dev/null | grep -E '^(blacklist|options|install|softdep) ') || exit; echo "$x"
for f in /etc/modprobe.d/*.conf /run/modprobe.d/*.conf /usr/local/lib/modprobe.d/*.conf /usr/lib/modprobe.d/*.conf; do
  [ -e "$f" ] && echo "${f##*/}|$f"
done | LC_ALL=C sort -s -u -t'|' -k1,1 | { IFS='
'; set -f; grep -E '^[[:space:]]*(options|blacklist|install)[[:space:]]' /dev/null $(cut -d'|' -f2-) 2>/dev/null; } |
  sed 's/^/in /'; true""",
    parse_modprobe,
    "modprobe -c",
)
# Kernels that can boot, or for which modules are built (headers without an image: a container).
KERNELS = Probe(
    "kernels",
    """fits() {
  case $2 in */weak-updates/*) return 0 ;; esac
  for s in "/lib/modules/$1/symvers.gz" "/lib/modules/$1/symvers.xz" "/lib/modules/$1/build/Module.symvers"; do
    [ -r "$s" ] && break
  done
  case $s in *.gz) c=zcat ;; *.xz) c=xzcat ;; *) c=cat ;; esac
  { modprobe --dump-modversions "$2" | sed 's/^/asks /'; $c "$s"; } 2>/dev/null |
    awk '$1 == "asks" {w[$3] = $2; n++; next} ($2 in w) && w[$2] == $1 {ok++} END {exit !(n && n == ok)}'
}
r=$(uname -r) o=1
{ systemd-detect-virt --container --quiet || [ -e /run/.containerenv ]; } 2>/dev/null && o=
for d in /lib/modules/*; do
  k=${d##*/}; b=0; h=0; n=0; c=0; i=0
  for f in "$d/vmlinuz" "$d/Image"; do [ -n "$o" ] && [ -e "$f" ] && b=2; done
  for f in "/boot/vmlinuz-$k" "/boot/Image-$k"; do [ -e "$f" ] && b=1; done
  [ -e "$d/build/Makefile" ] && h=1
  [ "$b$h" = 00 ] && continue
  v=""; for m in nvidia-current nvidia-current-open nvidia; do v=$(modinfo -k "$k" -F version $m 2>/dev/null) &&
    break; done
  u=""; [ -n "$v" ] && u=$(modinfo -k "$k" -F vermagic $m 2>/dev/null) && u=${u%% *}
  case $u in '' | "$k") ;; *) fits "$k" "$(modinfo -k "$k" -n $m)" && u=$k ;; esac
  w=""; for p in ${v:+uvm modeset drm}; do
    x=$(modinfo -k "$k" -F version "$m-$p" 2>/dev/null); case $x in '' | "$v") ;; *) w="$w $m-$p=$x" ;; esac
  done
  [ -z "$v" ] || [ -n "$(modinfo -k "$k" -F license "$m-uvm" 2>/dev/null)" ] || w="$w $m-uvm=none"
  [ -f "$d/modules.dep" ] && grep -q '/nouveau\\.ko' "$d/modules.dep" && n=1
  [ "$k" = "$r" ] && c=1
  for f in "/boot/initrd.img-$k" "/boot/initramfs-$k.img" "/boot/initrd-$k"; do [ -e "$f" ] && i=1; done
  echo "$k|$b|$h|$v|$n|$u|$c|$i|$w"
done""",
    parse_kernels,
    "ls /lib/modules /boot; modinfo -k $(uname -r) -F version nvidia-current; modinfo -k $(uname -r) -F vermagic "
    "nvidia-current",
)


class BuiltModule(msgspec.Struct, frozen=True):
    """A module that the spec names, for one installed kernel."""

    release: str
    name: str
    # Its file, `(builtin)`, or empty if there is none.
    path: str = ""
    # The release that it was built for, empty if the module does not state it.
    kernel: str = ""

    @property
    def fits(self) -> bool:
        """True if this kernel can load it."""
        # One that weak-updates links was built for another kernel with the same symbols.
        return bool(self.path) and ("/weak-updates/" in self.path or self.kernel in ("", self.release))


def parse_built(output: Output) -> tuple[BuiltModule, ...]:
    rows = [line.split("|") for line in output.text.splitlines()]
    return tuple(BuiltModule(release, underscored(name), path, kernel) for release, name, path, kernel in rows)


# The modules that `kernel.modules_built` names, for each installed kernel.
BUILT = Probe(
    "modules_built",
    """for d in /lib/modules/*; do
  k=${d##*/}; [ -e "$d/modules.dep" ] || continue
  for m in $built; do
    f=$(modinfo -k "$k" -n "$m" 2>/dev/null | tail -n 1); v=
    case $f in /*) v=$(modinfo -k "$k" -F vermagic "$m" 2>/dev/null); v=${v%% *} ;; esac
    echo "$k|$m|$f|$v"
  done
done""",
    parse_built,
    "modinfo -k RELEASE -F vermagic MODULE",
    asks=lambda host: {"built": " ".join(host.capabilities["kernel"].modules_built)},
)

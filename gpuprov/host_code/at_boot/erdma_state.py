"""eRDMA's driver and interfaces: their reader, and their differences from the configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterator, Mapping, NamedTuple

from .program import group_cells

# eRDMA by its PCI id 1ded:107f and its driver's name. The node GUID is the EUI-48 of the network interface, with one
# bit changed: https://github.com/alibaba/elastic-rdma-drivers/blob/main/kernel/src/erdma_main.c
READER = r"""PATH=$PATH:/usr/sbin:/sbin
r=$(uname -r); [ -d "/lib/modules/$r" ] || r=$(ls /lib/modules 2>/dev/null | sort -V | tail -n 1)
for d in /sys/bus/pci/devices/*; do
  read -r v <"$d/vendor" && [ "$v" = 0x1ded ] && read -r v <"$d/device" && [ "$v" = 0x107f ] || continue
  b=; [ -L "$d/driver" ] && b=$(readlink "$d/driver") && b=${b##*/}
  echo "function|${d##*/}|$b"
done
if [ -d /sys/module/erdma ]; then
  echo "loaded|$(cat /sys/module/erdma/refcnt 2>/dev/null)"
  for f in /sys/module/erdma/parameters/*; do [ -f "$f" ] && echo "parameter|${f##*/}|$(cat "$f" 2>/dev/null)"; done
  echo "holders|$(echo $(ls /sys/module/erdma/holders 2>/dev/null))"
  v=$(cat /sys/module/erdma/srcversion 2>/dev/null) w=$(modinfo -k "$r" -F srcversion erdma 2>/dev/null)
  [ -n "$v" ] && [ -n "$w" ] && [ "$v" != "$w" ] && echo 'stale|'
fi
for d in /sys/class/infiniband/*; do
  [ -L "$d/device/driver" ] || continue
  b=$(readlink "$d/device/driver"); [ "${b##*/}" = erdma ] || continue
  w=$(cat "$d"/ports/1/gid_attrs/ndevs/0 2>/dev/null)
  if [ -z "$w" ]; then
    g=$(tr -d : < "$d/node_guid" 2>/dev/null)
    for e in /sys/class/net/*/address; do
      a=$(tr -d : < "$e"); case $a in ????????????) ;; *) continue ;; esac
      z=${a#??}; q=${a#??????}; z=${z%$q}; t=${a%??????????}
      i=$(printf '%02x%sfffe%s' $((0x$t ^ 2)) "$z" "$q")
      [ "$i" = "$g" ] && w=${e%/address} && w=${w##*/} && break
    done
  fi
  echo "pair|${d##*/}|$w|$([ -n "$w" ] && cat "/sys/class/net/$w/mtu" 2>/dev/null)"
  for v in /sys/class/infiniband_verbs/uverbs*; do
    [ "$(cat "$v/ibdev" 2>/dev/null)" = "${d##*/}" ] || continue
    for p in $(find /proc/[0-9]*/fd -lname "/dev/infiniband/${v##*/}" 2>/dev/null |
      sed 's#/fd/.*##; s#.*/##' | sort -un); do
      echo "user|$p|$(head -n 1 "/proc/$p/comm" 2>/dev/null)"
    done
  done
done
"""


class Pair(NamedTuple):
    """An eRDMA device and its network interface, empty if there is none."""

    device: str
    netdev: str = ""
    mtu: int = 0


@dataclass(frozen=True)
class State:
    """`functions`: PCI functions of eRDMA with the driver that each is bound to. `stale`: another build than the one on
    disk is loaded. `parameters`: of the loaded module. `users`: processes that hold a device: (pid, name). `holders`:
    modules that use it."""

    functions: tuple[tuple[str, str], ...] = ()
    loaded: bool = False
    stale: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    pairs: tuple[Pair, ...] = ()
    users: tuple[tuple[str, str], ...] = ()
    holders: tuple[str, ...] = ()


class Difference(NamedTuple):
    """An actual and a desired value."""

    name: str
    actual: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}: {self.actual} -> {self.value}"


def parse(text: str) -> State:
    """Parse the reader's output."""
    many = group_cells(text)
    return State(
        functions=tuple((row[0], row[1]) for row in many.get("function", ())),
        loaded="loaded" in many,
        stale="stale" in many,
        parameters={row[0]: row[1] for row in many.get("parameter", ())},
        pairs=tuple(Pair(row[0], row[1], int(row[2] or 0)) for row in many.get("pair", ())),
        users=tuple((row[0], row[1]) for row in many.get("user", ())),
        holders=tuple("|".join(many.get("holders", [[""]])[-1]).split()),
    )


def format_as_sysfs(text: str) -> str:
    """Return a parameter's value as sysfs would show it."""
    word = text.strip().strip('"')
    if word.lower() in ("y", "yes", "true", "on"):
        return "Y"
    if word.lower() in ("n", "no", "false", "off"):
        return "N"
    return str(int(word, 16)) if word.lower().startswith("0x") else word


def is_same_value(actual: str, value: str) -> bool:
    """Return whether the actual value, from modprobe.d or sysfs, equals the desired one; 1 and 0 of a bool parameter
    are Y and N."""
    normalized = format_as_sysfs(actual)
    if value in ("Y", "N") and normalized in ("0", "1"):
        normalized = "NY"[int(normalized)]
    return normalized == value


def compare_driver(state: State, desired: Mapping[str, str]) -> Iterator[Difference]:
    """Yield the differences that require the driver to be loaded or reloaded."""
    if not state.loaded:
        yield Difference("erdma", "not loaded", "loaded")
        return
    if state.stale:
        yield Difference("erdma", "another build", "the one on disk")
    for name, value in desired.items():
        if not is_same_value(state.parameters.get(name, ""), value):
            yield Difference(name, state.parameters.get(name) or "none", value)


def compare_mtu(state: State, mtu: int) -> Iterator[tuple[Pair, Difference]]:
    """Yield the devices whose network interface has another MTU."""
    for pair in state.pairs:
        if pair.mtu != mtu:
            yield pair, Difference(f"MTU of {pair.netdev or pair.device}", str(pair.mtu or "none"), str(mtu))


def find_users(state: State) -> str:
    """Return the processes and modules that use the driver; "" if there are none."""
    people = [f"{name or '?'} ({pid})" for pid, name in state.users]
    return ", ".join([*people[:10], *(f"module {name}" for name in state.holders)])

"""enroot and pyxis: their settings and folders, and what must be there for a job to run in a container with its
GPUs."""

from collections.abc import Iterator

from gpuprov.capabilities.answers import APPLY, HEADER
from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.slurm.fragment import Ctx
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.host.slurm import SLURM
from gpuprov.facts.probes.host.slurm_containers import (
    CONTAINERS,
    ENROOT_CONF,
    OPTION,
    PLUGIN,
    PLUGSTACK,
    PROLOG,
    PYXIS_CONF,
    SYSCTLS,
)
from gpuprov.host_code.at_boot import slurm as onhost
from gpuprov.resources import Absent, File, Resource

# The first enroot that reads enroot.conf.d: https://github.com/NVIDIA/enroot/commit/0d66136
OLDEST = (3, 4)
RUNTIME = "/run/enroot"
USER = "user-$(id -u)"
PACKAGES = "https://github.com/NVIDIA/enroot/blob/main/doc/installation.md"
PATHS = (ENROOT_CONF, PROLOG, PLUGSTACK, PYXIS_CONF)
OFF = "containers: enroot: false"


def list_folders(ctx: Ctx) -> dict[str, str]:
    """Return the folder of all users' folders, by enroot's setting."""
    above = ctx.fragment.containers.folder
    return {
        "ENROOT_RUNTIME_PATH": RUNTIME,
        **{f"ENROOT_{name.upper()}_PATH": f"{above}/{name}" for name in ("cache", "data", "temp")},
    }


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield enroot's settings, the prolog, and pyxis's lines of the plug-in stack, unless files of the site's have
    them."""
    block = ctx.fragment.containers
    if not block.enroot:
        yield from (Absent(path) for path in PATHS if path != PLUGSTACK)
        return
    folders = list_folders(ctx)
    yield File(ENROOT_CONF, HEADER + "".join(f"{key} {path}/{USER}\n" for key, path in folders.items()))
    yield File(PROLOG, write_prolog(list(folders.values())), 0o755)
    facts = ctx.facts.get(CONTAINERS)
    if not block.pyxis or facts.plugged:
        yield Absent(PYXIS_CONF)
        return
    yield File(PYXIS_CONF, f"{HEADER}required {facts.plugin or PLUGIN}\n")
    if facts.stack != "site":
        yield File(PLUGSTACK, f"{HEADER}include {PLUGSTACK}.d/*.conf\n")


def write_prolog(folders: list[str]) -> str:
    """Return the program that makes a user's folders below these, which must be root's: nobody else may make them
    first."""
    return f"""#!/bin/sh
# Slurm's Prolog, or a part of it: enroot's folders for the user of a job. Managed by gpuprov: change the inventory, then apply again.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
set -eu
umask 022
user=$SLURM_JOB_UID
group=$(id -g "$user")
for above in {" ".join(folders)}; do
  mkdir -p "$above"
  if [ -L "$above" ] || [ ! -O "$above" ]; then
    echo "$above is not a folder of root's: remove it" >&2
    exit 1
  fi
  [ -d "$above/user-$user" ] || mkdir -m 0700 "$above/user-$user"
  chown -h "$user:$group" "$above/user-$user"
done
"""


@check(
    "slurm.enroot",
    CONTAINERS,
    fields=("containers",),
    moment="preflight",
    evidence="enroot version; getcap $(command -v enroot-aufs2ovlfs)",
)
def enroot(ctx: Ctx) -> Outcome:
    """enroot is installed, 3.4 or newer, with enroot+caps, without which users cannot import images."""
    if not ctx.fragment.containers.enroot:
        return not_asked(OFF)
    facts, expected = ctx.facts.get(CONTAINERS), "enroot 3.4 or newer, and enroot+caps"
    if facts.enroot is None:
        fix = f"install NVIDIA's packages enroot and enroot+caps, which no distribution has: {PACKAGES}"
        return fail(expected, "enroot is not installed", fix)
    numbers = facts.enroot.split(".")[:2]
    if all(map(is_whole, numbers)) and tuple(map(int, numbers)) < OLDEST:
        return fail(
            expected, f"enroot {facts.enroot}, which reads no enroot.conf.d", f"install a newer one: {PACKAGES}"
        )
    if not facts.importing:
        fix = f"install the package enroot+caps (enroot-hardened+caps beside enroot-hardened): {PACKAGES}"
        return fail(expected, f"enroot {facts.enroot}, whose programs lack their capabilities", fix)
    return ok(f"enroot {facts.enroot}, enroot+caps")


@check(
    "slurm.pyxis_plugin",
    *(CONTAINERS, SLURM),
    fields=("containers",),
    moment="preflight",
    evidence=f"find / -xdev -name {PLUGIN}",
)
def pyxis_plugin(ctx: Ctx) -> Outcome:
    """pyxis's plugin is installed, or a file of the site's in plugstack.conf.d names it."""
    if not ctx.fragment.containers.pyxis:
        return not_asked("containers: pyxis: false")
    facts = ctx.facts.get(CONTAINERS)
    if facts.plugin or facts.plugged:
        return ok(facts.plugin or ", ".join(facts.plugged))
    version = ctx.facts.get(SLURM).version or "the cluster's Slurm"
    fix = f"build pyxis with the headers of {version}, and install it: https://github.com/NVIDIA/pyxis#installation"
    return fail(PLUGIN, f"no {PLUGIN} in the folders of Slurm's plugins", fix)


@check(
    "slurm.enroot_folders",
    CONTAINERS,
    fields=("containers",),
    evidence=f"cat /etc/enroot/enroot.conf {ENROOT_CONF}; grep -i prolog {onhost.FOLDER}/slurm.conf",
)
def enroot_folders(ctx: Ctx) -> Outcome:
    """No earlier line of the site's wins over gpuprov's folders in enroot's configuration, and slurm.conf's Prolog
    makes each user's before a job."""
    if not ctx.fragment.containers.enroot:
        return not_asked(OFF)
    facts = ctx.facts.get(CONTAINERS)
    for key, path in list_folders(ctx).items():
        if (value := facts.settings.get(key)) is None:
            return fail(f"{key} {path}/{USER}", f"no {key}", APPLY)
        if value != f"{path}/{USER}":
            fix = f"take {key} out of /etc/enroot/enroot.conf and earlier files of enroot.conf.d: the first line wins"
            return fail(f"{key} {path}/{USER}", f"{key} {value}", fix)
    if not facts.prolog:
        fix = (
            f"in slurm.conf of the cluster: Prolog={PROLOG}, or have your own Prolog start it; then scontrol "
            "reconfigure"
        )
        return fail(f"a Prolog that makes {RUNTIME}/user-UID", "slurm.conf's Prolog does not start it", fix)
    return ok(f"below {RUNTIME} and {ctx.fragment.containers.folder}, by Prolog")


@check(
    "slurm.enroot_gpus",
    CONTAINERS,
    fields=("containers",),
    evidence="ls /etc/enroot/hooks.d; nvidia-container-cli info",
)
def enroot_gpus(ctx: Ctx) -> Outcome:
    """enroot gives containers their GPUs: its hook is there, and the program that the hook calls."""
    if not ctx.fragment.containers.enroot:
        return not_asked(OFF)
    facts, expected = ctx.facts.get(CONTAINERS), "98-nvidia.sh, and nvidia-container-cli"
    if not facts.hook:
        return fail(expected, "no /etc/enroot/hooks.d/98-nvidia.sh", "install enroot's package again: it has the hook")
    if not facts.cli:
        return fail(expected, "no nvidia-container-cli", "container_toolkit: {}, whose packages have it")
    return ok(f"98-nvidia.sh, {facts.cli}")


@check(
    "slurm.user_namespaces", CONTAINERS, fields=("containers",), evidence=f"cd /proc/sys; grep . {' '.join(SYSCTLS)}"
)
def user_namespaces(ctx: Ctx) -> Outcome:
    """The kernel lets users make the user and mount namespaces that enroot runs in."""
    if not ctx.fragment.containers.enroot:
        return not_asked(OFF)
    facts = ctx.facts.get(CONTAINERS)
    *limits, clone, restricted = SYSCTLS
    if limits[0] not in facts.sysctls:
        return fail(
            "user and mount namespaces for users",
            "a kernel without user namespaces",
            "start a kernel with CONFIG_USER_NS",
        )
    wrong = {name: 65536 for name in limits if facts.sysctls.get(name, 2) <= 1}
    wrong |= {clone: 1} if facts.sysctls.get(clone, 1) == 0 else {}
    wrong |= {restricted: 0} if facts.sysctls.get(restricted, 0) and not facts.profile else {}
    if not wrong:
        return ok("user and mount namespaces for users")
    actual = ", ".join(f"{name.replace('/', '.')}={facts.sysctls[name]}" for name in wrong)
    settings = ", ".join(f"{name.replace('/', '.')}: {value}" for name, value in wrong.items())
    fix = f"kernel: {{sysctl: {{{settings}}}}}"
    if restricted in wrong:
        fix += "; or enroot's AppArmor profile, /etc/apparmor.d/enroot, of its packages from 3.5 on"
    return fail("user and mount namespaces for users", actual, fix)


@check(
    "slurm.pyxis",
    CONTAINERS,
    SLURM,
    fields=("containers",),
    evidence=f"srun --help | grep -e {OPTION}; cat {PLUGSTACK}",
)
def pyxis(ctx: Ctx) -> Outcome:
    """srun here loads pyxis: it has the option --container-image. A plugin that was built for another release of Slurm
    is refused, and with it every job."""
    if not ctx.fragment.containers.pyxis:
        return not_asked("containers: pyxis: false")
    facts, version = ctx.facts.get(CONTAINERS), ctx.facts.get(SLURM).version
    expected = f"srun {OPTION}"
    if len(facts.plugged) > 1:
        return fail(expected, f"{PLUGIN} is named in {', '.join(facts.plugged)}", "name it in one file")
    if facts.complaints is None:
        return skip("srun is not installed here", "install Slurm's client programs of the same version")
    if facts.built_for:
        fix = f"build pyxis again with the headers of {version}: https://github.com/NVIDIA/pyxis#installation"
        return fail(expected, f"pyxis was built for Slurm {facts.built_for}, and this is {version}", fix)
    if facts.offered:
        return ok(expected)
    if facts.complaints:
        return fail(expected, facts.complaints[0][:300], "see that message; journalctl -u slurmd")
    fix = f"include {PLUGSTACK}.d/*.conf" if facts.stack == "site" else APPLY
    return fail(expected, "srun does not have it", f"in {PLUGSTACK}: {fix}" if facts.stack == "site" else fix)


CHECKS = (enroot, pyxis_plugin, enroot_folders, enroot_gpus, user_namespaces, pyxis)

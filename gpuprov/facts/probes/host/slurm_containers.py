"""enroot and pyxis on a compute node of Slurm: what is installed, which settings win, and what srun makes of the
plugin."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.host_code.at_boot import slurm as onhost

ENROOT_FOLDER = "/etc/enroot"
ENROOT_CONF = f"{ENROOT_FOLDER}/enroot.conf.d/50-gpuprov.conf"
PROLOG = "/usr/local/lib/gpuprov/slurm/enroot-folders.sh"
PLUGSTACK = f"{onhost.FOLDER}/plugstack.conf"
PYXIS_CONF = f"{PLUGSTACK}.d/50-gpuprov-pyxis.conf"
PLUGIN = "spank_pyxis.so"
OPTION = "--container-image"
SETTING = re.compile(r"(ENROOT_[A-Z_]+)[ \t=]+(.*)")
REFUSED = re.compile(rf"Incompatible Slurm plugin \S*{PLUGIN} version \((\S+)\)")
# https://github.com/NVIDIA/enroot/blob/main/doc/requirements.md
SYSCTLS = (
    *("user/max_user_namespaces", "user/max_mnt_namespaces"),
    *("kernel/unprivileged_userns_clone", "kernel/apparmor_restrict_unprivileged_userns"),
)


class Containers(msgspec.Struct, frozen=True, kw_only=True):
    """`enroot`: its version, empty if it names none; None: it is not installed. `importing`: enroot+caps has given its
    programs their capabilities. `hook`: enroot has its hook for GPUs; `cli`: the path of nvidia-container-cli.
    `settings`: of enroot.conf and its drop-ins, of each the first, as enroot takes it. `sysctls`: by name; `profile`:
    AppArmor lets enroot make user namespaces. `prolog`: the Prolog of slurm.conf is gpuprov's program, or starts it.
    `plugin`: pyxis's file; `plugged`: files of the site's that name it. `stack`: plugstack.conf is absent, gpuprov's or
    the site's. `offered`: srun has pyxis's option; `complaints`: errors of srun, None without srun."""

    enroot: str | None = None
    importing: bool = False
    hook: bool = False
    cli: str = ""
    settings: dict[str, str] = {}
    sysctls: dict[str, int] = {}
    profile: bool = False
    prolog: bool = False
    plugin: str = ""
    plugged: tuple[str, ...] = ()
    stack: str = "absent"
    offered: bool = False
    complaints: tuple[str, ...] | None = None

    @property
    def built_for(self) -> str:
        """Return the Slurm that the plugin was built for, if srun refuses it; else empty."""
        return next((match[1] for line in self.complaints or () if (match := REFUSED.search(line))), "")


def parse_containers(output: Output) -> Containers:
    rows = output.rows()
    settings: dict[str, str] = {}
    for match in filter(None, map(SETTING.fullmatch, rows.get("conf", []))):
        settings.setdefault(match[1], match[2].strip())
    pairs = (line.split("|") for line in rows.get("sysctl", []))
    return Containers(
        enroot=rows.get("enroot", [None])[0],
        importing=len(rows.get("caps", [])) == 2,
        hook="hook" in rows,
        cli=rows.get("cli", [""])[0],
        settings=settings,
        sysctls={name: int(value) for name, value in pairs if re.fullmatch("[0-9]{1,18}", value)},
        profile="profile" in rows,
        prolog="prolog" in rows,
        plugin=rows.get("plugin", [""])[0],
        plugged=tuple(path for path in rows.get("plugged", []) if path != PYXIS_CONF),
        stack=rows.get("stack", ["absent"])[0],
        offered="offered" in rows,
        complaints=tuple(rows.get("error", [])) if "srun" in rows else None,
    )


CONTAINERS = Probe(
    "slurm_containers",
    f"""PATH=$PATH:/usr/sbin:/sbin:/usr/local/bin:/opt/slurm/bin; c={onhost.FOLDER}
# enroot itself would make the folders of whoever starts it.
p=$(command -v enroot) && echo "enroot|$(sed -n 's/.*ENROOT_VERSION="\\([0-9.]*\\)".*/\\1/p' "$p" | head -n 1)"
for p in mksquashovlfs aufs2ovlfs; do
  p=$(command -v enroot-$p) && getcap "$p" 2>/dev/null | grep cap_sys_admin | sed 's/^/caps|/'
done
[ -e {ENROOT_FOLDER}/hooks.d/98-nvidia.sh ] && echo 'hook|'
p=$(command -v nvidia-container-cli) && echo "cli|$p"
cat {ENROOT_FOLDER}/enroot.conf {ENROOT_FOLDER}/enroot.conf.d/*.conf 2>/dev/null | head -c 65536 | grep '^ENROOT_' |
  sed 's/^/conf|/'
for k in {" ".join(SYSCTLS)}; do v=$(cat /proc/sys/$k 2>/dev/null) && echo "sysctl|$k|$v"; done
grep -qs 'enroot-nsenter' /etc/apparmor.d/enroot && [ ! -e /etc/apparmor.d/disable/enroot ] && echo 'profile|'
for f in $(sed -n 's/^[[:space:]]*[Pp]rolog[[:space:]]*=[[:space:]]*//p' $c/slurm.conf 2>/dev/null | tr ',' ' '); do
  [ "$(readlink -f "$f")" = {PROLOG} ] || grep -qs {PROLOG} "$f" && {{ echo 'prolog|'; break; }}
done
d=$(sed -n 's/^[[:space:]]*[Pp]lugin[Dd]ir[[:space:]]*=[[:space:]]*\\([^[:space:]#]*\\).*/\\1/p' $c/slurm.conf 2>/dev/null)
d=$(echo $d | tr ':' ' ')
for f in $d /usr/lib/*/slurm /usr/lib/*/slurm-wlm /usr/lib64/slurm /usr/lib/slurm /usr/local/lib/slurm /opt/slurm/lib/slurm; do
  [ -e "$f/{PLUGIN}" ] && {{ echo "plugin|$f/{PLUGIN}"; break; }}
done
[ -e {PLUGSTACK} ] && {{ head -n 1 {PLUGSTACK} | grep -q '^{onhost.MARK}' && echo 'stack|gpuprov' || echo 'stack|site'
  }}
grep -ls '^[^#]*{PLUGIN}' {PLUGSTACK} {PLUGSTACK}.d/* 2>/dev/null | sed 's/^/plugged|/'
if command -v srun >/dev/null && [ -r $c/slurm.conf ]; then
  echo 'srun|'; o=$(timeout 10 srun --help 2>&1 </dev/null)
  case $o in *{OPTION}*) echo 'offered|';; esac
  printf '%s\\n' "$o" | grep -iE '^srun: .*(error|spank|plugin|pyxis)' | head -n 8 | sed 's/^/error|/'
fi
true""",
    parse_containers,
    f"enroot version; srun --help | grep container-image; cat {PLUGSTACK} {PLUGSTACK}.d/* "
    f"{ENROOT_FOLDER}/enroot.conf.d/*",
)

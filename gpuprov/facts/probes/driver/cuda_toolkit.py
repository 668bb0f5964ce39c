"""CUDA toolkits on a host: their packages, directories in /usr/local, the default toolkit, and the libraries that
programs find."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.host.family import by_family
from gpuprov.facts.probes.software import rpm, zypper
from gpuprov.facts.probes.software.packages import PACKAGE_LISTS, build_packages_script, parse_index, parse_packages


class Toolkit(msgspec.Struct, frozen=True, kw_only=True):
    """A directory /usr/local/cuda-X.Y. `release` and `build`: reported by its nvcc (12.4, 12.4.131); `complaint`:
    the error if it reports neither. `cudart`: the version in the name of its libcudart.so, `kit` that of the toolkit
    in version.json. Empty: absent."""

    release: str = ""
    build: str = ""
    complaint: str = ""
    cudart: str = ""
    kit: str = ""


class Toolkits(msgspec.Struct, frozen=True, kw_only=True):
    """All toolkits. `toolkits` by version. `link`: final target of /usr/local/cuda, `by`: its kind (`alternatives`,
    `link`, `directory`, or empty: absent). `mode` of the alternatives: auto, manual, or empty without any; `choices`
    of them. `profile`: text of gpuprov's file in /etc/profile.d. `libraries`: files in the linker's cache, by their
    short name."""

    toolkits: dict[str, Toolkit] = {}
    link: str = ""
    by: str = ""
    mode: str = ""
    choices: tuple[str, ...] = ()
    profile: str = ""
    libraries: dict[str, str] = {}
    cudnn_header: str = ""
    space: dict[str, int] = {}


def parse_toolkits(output: Output) -> Toolkits:
    rows: dict[str, list[str]] = {}
    kits: dict[str, dict[str, str]] = {}
    kit: dict[str, str] = {}
    for line in output.text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "@toolkit":
            kit = kits.setdefault(rest, {})
        elif word in ("nvcc", "complaint", "cudart", "kit"):
            kit[word] = rest
        else:
            rows.setdefault(word, []).append(rest)
    if "space" not in rows:  # the last that the script prints, on every host
        raise ProbeFailed("/usr/local was not read to the end")
    display = "\n".join(rows.get("alternative", []))
    first = display.partition("\n")[0]
    kind, _, target = (rows.get("link") or [""])[0].partition(" ")
    return Toolkits(
        toolkits={version: _build_toolkit(fields) for version, fields in kits.items()},
        link=target,
        by=kind,
        mode="manual" if "manual" in first else "auto" if "auto" in first else "",
        # `update-alternatives --display cuda` (Debian, then the Red Hat family):
        #     /usr/local/cuda-12.4 - priority 124
        #     /usr/local/cuda-12.4 - family cuda priority 124
        choices=tuple(re.findall(r"^(/\S+) - (?:family \S+ )?priority", display, re.MULTILINE)),
        profile="\n".join(rows.get("profile", [])),
        libraries=dict(line.split(" ", 1) for line in reversed(rows.get("library", [])) if " " in line),
        cudnn_header=".".join(rows.get("cudnn", [])),
        space={
            folder: int(free) // 1024 for free, _, folder in (line.partition(" ") for line in rows.get("space", []))
        },
    )


def _build_toolkit(fields: dict[str, str]) -> Toolkit:
    release, _, build = fields.get("nvcc", "").partition(" ")
    complaint, cudart = fields.get("complaint", ""), fields.get("cudart", "")
    return Toolkit(release=release, build=build, complaint=complaint, cudart=cudart, kit=fields.get("kit", ""))


# Installed packages of CUDA toolkits, cuDNN and NCCL, by name.
PACKAGES = Probe(
    "cuda_packages",
    build_packages_script(
        "'cuda*' 'libcu*-[0-9]*-[0-9]*' 'libcudnn*' 'libnccl*' 'libnpp*' 'libnv*-*-*' 'gds-tools-*' 'nvidia-gds*' "
        "nvidia-cuda-toolkit nvidia-cuda-dev",
        "cuda.*|libcu.*-[0-9]+-[0-9]+|libcudnn.*|libnccl.*|libnpp.*|libnv.*-[0-9]+-[0-9]+|gds-tools-.*|nvidia-gds.*",
    ),
    parse_packages,
    "dpkg -l 'cuda*' 'libcu*' 'libnccl*'; rpm -qa 'cuda*' 'libcu*' 'libnccl*'",
    blank=PACKAGE_LISTS,
)
NAMES = r"cuda-(toolkit|minimal-build|libraries)-[0-9]+-[0-9]+|libcudnn[0-9].*|libnccl.*"
PATTERNS = ("cuda-toolkit-*", "cuda-minimal-build-*", "cuda-libraries-*", "libcudnn*", "libnccl*")
# Offered versions of the top-level packages of toolkit, cuDNN and NCCL; from the lists that the host has fetched,
# never the network.
INDEX = Probe(
    "cuda_index",
    by_family(
        f"apt-cache pkgnames | grep -xE '{NAMES}' | xargs -r apt-cache madison 2>/dev/null; true",
        rpm.search(*PATTERNS, streams=True),
        zypper.search(*PATTERNS),
    ),
    parse_index,
    "apt-cache madison cuda-toolkit-12-4 libcudnn9-cuda-12 libnccl2; dnf -C repoquery --showduplicates "
    "'cuda-toolkit-*'",
)
# Dependencies by package name and version: the minimum version of each component that it depends on, by name.
Requires = dict[str, dict[str, dict[str, str]]]
# Depends: cuda-compiler-12-4 (>= 12.4.1), libc6 (>= 2.27)        (apt-cache show)
# cuda-compiler-12-4 >= 12.4.1                                    (dnf repoquery --requires)
_BOUND = re.compile(r"([^\s(|]+)\s*+(?:\(\s*+)?>?=\s*([^\s)]+)")


def parse_requires(output: Output) -> Requires:
    requires: Requires = {}
    bounds: dict[str, str] = {}
    for line in output.text.splitlines():
        name, bar, version = line.strip().removeprefix("@").partition("|")
        if line.startswith("@") and bar:
            bounds = requires.setdefault(name, {}).setdefault(version, {})
        elif match := _BOUND.match(line.strip()):
            bounds.setdefault(match[1], match[2])
    return requires


# Shell: filters blocks `@NAME|VERSION` with a dependency a line for components of a toolkit.
_COMPONENTS = r"""awk '/^@/ { mine = ($0 ~ /-[0-9]+-[0-9]+(-config-common)?[|]/) }
  mine && (/^@/ || /-[0-9]+-[0-9]+(-config-common)? *[(]?>?= /)'"""
# Dependencies of each offered toolkit's packages on toolkit components; from the lists that the host has fetched.
REQUIRES = Probe(
    "cuda_requires",
    by_family(
        r"""apt-cache pkgnames | grep -E -- '-[0-9]+-[0-9]+(-config-common)?$' | xargs -r apt-cache show 2>/dev/null |
  awk '
  /^Package: / { name = $2 }
  /^Version: / { version = $2 }
  /^Depends: / { depends = substr($0, 10) }
  /^$/ { tell() }
  END { tell() }
  function tell() {
    if (name) { gsub(/, */, "\n", depends); print "@" name "|" version; print depends }
    name = version = depends = ""
  }' | """
        + _COMPONENTS,
        rpm.search(
            *("cuda-*-[0-9]*-[0-9]*", "libcu*-[0-9]*-[0-9]*", "libnpp-*", "libnv*-[0-9]*-[0-9]*"),
            *("gds-tools-*", "nvidia-gds-*"),
            form=r"@%{name}|%{version}-%{release}\n%{requires}",
            streams=True,
        )
        + " |\n  "
        + _COMPONENTS,
        "true",
    ),
    parse_requires,
    "apt-cache show cuda-toolkit-12-4; dnf -C repoquery --requires cuda-toolkit-12-4",
)
# Toolkits in /usr/local and libraries that the linker finds; of several files with one name the first, as the
# linker does.
TOOLKITS = Probe(
    "cuda_toolkits",
    r"""for d in /usr/local/cuda-[0-9]*.[0-9]*; do
  [ -d "$d" ] || continue
  echo "@toolkit ${d#/usr/local/cuda-}"
  if [ -e "$d/bin/nvcc" ]; then
    o=$("$d/bin/nvcc" --version 2>&1)
    v=$(echo "$o" | sed -n 's/.*release \([0-9.]*\), V\([0-9.]*\).*/nvcc \1 \2/p')
    echo "${v:-complaint $(echo "$o" | tail -n 1)}"
  fi
  k=$(tr -d '\n' 2>/dev/null < "$d/version.json" | sed -n 's/.*"cuda" *: *{[^}]*"version" *: *"\([0-9.]*\)".*/\1/p')
  [ -n "$k" ] && echo "kit $k"
  for l in "$d"/targets/*/lib/libcudart.so.*.*.*; do [ -f "$l" ] && echo "cudart ${l##*.so.}"; done
done
l=/usr/local/cuda
if [ -L $l ]; then
  case $(readlink $l) in /etc/alternatives/cuda) k=alternatives ;; *) k=link ;; esac
  echo "link $k $(readlink -f $l)"
elif [ -e $l ]; then echo "link directory $l"; fi
LC_ALL=C update-alternatives --display cuda 2>/dev/null | sed 's/^/alternative /'
sed 's/^/profile /' /etc/profile.d/gpuprov-cuda.sh 2>/dev/null
PATH=$PATH:/sbin:/usr/sbin ldconfig -p | sed -n 's/.*=> //p' |
  grep -E '/lib(cudart\.so\.[0-9]+(\.[0-9]+)?|(cudnn|nccl)\.so\.[0-9]+)$' | while read -r f; do
  echo "library ${f##*/} $(readlink -f "$f")"
done
d=/usr/include
for f in $d/cudnn_version.h $d/*/cudnn_version.h $d/cudnn_version_v9.h $d/*/cudnn_version_v9.h; do
  [ -f "$f" ] || continue
  sed -n 's/^#define CUDNN_\(MAJOR\|MINOR\|PATCHLEVEL\)  *\([0-9][0-9]*\).*/cudnn \2/p' "$f"; break
done
for d in /usr/local /var; do set -- $d $(df -Pk $d | tail -n 1); echo "space $5 $1"; done; true""",
    parse_toolkits,
    "ls -ld /usr/local/cuda*; /usr/local/cuda/bin/nvcc --version; update-alternatives --display cuda; ldconfig -p | "
    "grep cudart",
    speaks=True,
)

"""DCGM of simulated hosts: stand-ins for both release lines and for the exporter, with the real packages' names and
relations.

Names and relations: https://github.com/NVIDIA/DCGM/blob/master/cmake/packaging.cmake; the split from 4.7.0 on, where
-core is a metapackage: https://github.com/NVIDIA/DCGM/issues/314
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpuprov.catalog import dcgm
from gpuprov.simulate.parts.base import File, text
from gpuprov.simulate.standins.extra import Extra, Packaged

ASSETS = Path(__file__).parents[1] / "parts" / "dcgm_files"
VERSIONS_4 = ("4.4.2", "4.5.3", "4.7.0")
VERSIONS_3 = ("3.3.8", "3.3.9")
SPLIT = "4.7.0"
# Versions of the exporter, and the build number added by its rpm.
EXPORTERS = {"4.7.1": "", "4.8.2": "", "4.8.4": ".3955"}
CORE = "datacenter-gpu-manager-4-core"
USER = (
    "#!/bin/sh\nset -e\nuseradd -Urs /usr/sbin/nologin nvidia-dcgm 2>/dev/null || [ $? = 9 ]\nmkdir -p "
    "/var/log/nvidia-dcgm\n"
)
RELOAD = "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi\n"
STOP = 'if [ "$1" = {word} ] && [ -d /run/systemd/system ]; then systemctl disable --now {unit} || true; fi\n'
SERVICE = """\
# A stand-in of gpuprov's simulated hosts, with what the real unit has.
[Unit]
Description=NVIDIA DCGM service
{conflicts}
[Service]
User=root
PrivateTmp=false
Environment="DCGM_HOME_DIR=/var/log/nvidia-dcgm"
ExecStart=/usr/bin/nv-hostengine -n --service-account nvidia-dcgm
Restart=on-abort

[Install]
WantedBy=multi-user.target
{alias}"""
EXPORTER_SERVICE = f"""\
# A stand-in of gpuprov's simulated hosts, with what the real unit has.
[Unit]
Description=NVIDIA DCGM-exporter service
Wants={dcgm.UNIT}
After={dcgm.UNIT}

[Service]
User=root
PrivateTmp=false
StandardOutput=append:/var/log/dcgm-exporter.log
StandardError=append:/var/log/dcgm-exporter.log
ExecStart={dcgm.EXPORTER_PROGRAM} -f {dcgm.COUNTERS}
Restart=on-abort

[Install]
WantedBy=multi-user.target
"""
UNITS = "/usr/lib/systemd/system"


def program(name: str, version: str) -> File:
    """Return a stand-in program that reports this version."""
    return File((ASSETS / name).read_bytes().replace(b"@VERSION@", version.encode()), 0o755)


def scripts(unit: str, first: str = "#!/bin/sh\nset -e\n") -> tuple[dict[str, str], dict[str, str]]:
    """Return the maintainer scripts of a package with a unit, of the deb and of the rpm. Like the real ones they start
    nothing."""
    shebang = "#!/bin/sh\nset -e\n"
    deb = {
        "postinst": first + RELOAD,
        "prerm": shebang + STOP.format(word="remove", unit=unit),
        "postrm": shebang + RELOAD,
    }
    rpm = {
        "post": first.removeprefix("#!/bin/sh\n") + RELOAD,
        "preun": STOP.format(word="0", unit=unit),
        "postun": RELOAD,
    }
    return deb, rpm


def exactly(names: Iterable[str], form: str) -> tuple[str, ...]:
    """Return relations to packages of the same version; the epoch is explicit, as in the real ones."""
    return tuple(f"{name} (= 1:{{version}})" if form == "deb" else f"{name} = 1:{{version}}" for name in names)


def package(
    name: str,
    version: str,
    files: dict[str, File],
    needs: Iterable[str] = (),
    *,
    unit: bool = False,
    conflicts: tuple[str, ...] = (),
    piece: bool = False,
    revision: str = "-1",
    of_system: tuple[str, ...] = (),
) -> Extra:
    """Return one package of DCGM. `needs`: others of the same version. `of_system`: Debian packages required by the
    stand-in. A `piece` has files that the core of older releases has."""
    required = list(needs)
    older = {"deb": f"{CORE} (<< 1:{SPLIT})", "rpm": f"{CORE} < 1:{SPLIT}"}
    against = {form: (*conflicts, *([relation] if piece else [])) for form, relation in older.items()}
    deb, rpm = scripts(dcgm.UNIT, USER) if unit else ({}, {})
    return Extra(
        name=name,
        summary=f"NVIDIA Data Center GPU Manager {version}: {name}",
        files=files,
        epoch=1,
        deb=Packaged(
            f"{version}{revision}",
            requires=(*exactly(required, "deb"), *of_system),
            conflicts=against["deb"],
            scripts=deb,
        ),
        rpm=Packaged(f"{version}-1", requires=exactly(required, "rpm"), conflicts=against["rpm"], scripts=rpm),
    )


def line_3(version: str) -> list[Extra]:
    """Return one package with everything, and the deprecated unit beside the present one."""
    unit = SERVICE.format(conflicts="Conflicts=dcgm.service\n", alias="")
    old = SERVICE.format(conflicts="Conflicts=nvidia-dcgm.service\n", alias="")
    files = {
        "/usr/bin/nv-hostengine": program("nv-hostengine", version),
        "/usr/bin/dcgmi": program("dcgmi", version),
        f"{UNITS}/{dcgm.UNIT}": text(unit),
        f"{UNITS}/{dcgm.OLD_UNIT}": text(old),
    }
    # The deb of line 3 has no revision.
    return [package("datacenter-gpu-manager", version, files, unit=True, revision="", of_system=("python3",))]


def line_4(version: str) -> list[Extra]:
    """Return the core, with its builds for each CUDA; in later releases the core is a metapackage."""
    unit = text(SERVICE.format(conflicts="", alias=f"Alias={dcgm.OLD_UNIT}\n"))
    engine = {"/usr/bin/nv-hostengine": program("nv-hostengine", version), f"{UNITS}/{dcgm.UNIT}": unit}
    client = {"/usr/bin/dcgmi": program("dcgmi", version)}
    split = version >= SPLIT
    common = [name for name in dcgm.PIECES if "{cuda}" not in name]
    made = [
        package(
            CORE,
            version,
            {} if split else engine | client,
            common if split else (),
            unit=not split,
            conflicts=("datacenter-gpu-manager",),
            of_system=("python3",),
        ),
        package(dcgm.NAMES["4"]["proprietary"][0], version, {}, (CORE,)),
        package(dcgm.NAMES["4"]["multinode"][0], version, {}, (CORE,)),
    ]
    contents = {"nv-hostengine": engine, "dcgmi": client}
    made += [
        package(n, version, contents.get(n, {}), unit=n == "nv-hostengine", piece=True)
        for n in (common if split else ())
    ]
    for cuda in dcgm.CUDA:
        own = [name.format(cuda=cuda) for name in dcgm.PIECES if "{cuda}" in name]
        made += [package(name, version, {}) for name in (own if split else ())]
        made.append(package(f"datacenter-gpu-manager-4-cuda{cuda}", version, {}, (CORE, *(own if split else ()))))
        of_core = [
            dcgm.NAMES["4"]["proprietary"],
            *([dcgm.NAMES["4"]["multinode"]] if cuda in dcgm.MULTINODE_CUDA else []),
        ]
        made += [package(name.format(cuda=cuda), version, {}, (agnostic,)) for agnostic, name in of_core]
    return made


def exporter(version: str, build: str) -> Extra:
    """Return the exporter, which has its own version line and works with any core of line 4."""
    files = {
        dcgm.EXPORTER_PROGRAM: program("dcgm-exporter", version),
        dcgm.COUNTERS: File((ASSETS / "default-counters.csv").read_bytes()),
        f"{UNITS}/{dcgm.EXPORTER_UNIT}": text(EXPORTER_SERVICE),
    }
    deb, rpm = scripts(dcgm.EXPORTER_UNIT)
    return Extra(
        name=dcgm.EXPORTER,
        summary=f"NVIDIA DCGM exporter {version}",
        files=files,
        deb=Packaged(f"{version}-1", requires=(f"{CORE} (>= 1:4)", "python3"), scripts=deb),
        rpm=Packaged(f"{version}{build}-1", requires=(f"{CORE} >= 1:4",), scripts=rpm),
    )


EXTRAS: tuple[Extra, ...] = (
    *(extra for version in VERSIONS_3 for extra in line_3(version)),
    *(extra for version in VERSIONS_4 for extra in line_4(version)),
    *(exporter(version, build) for version, build in EXPORTERS.items()),
)

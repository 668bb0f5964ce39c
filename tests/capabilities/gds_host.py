"""GPUDirect Storage, told as its probes print it: offered on the good host, and on a host that has it."""

from __future__ import annotations

from pathlib import Path

VERSION, MODULE = "1.13.1.3-1", "2.24.2-1"
PLACE = "/usr/local/cuda-12.8/gds/cufile.json"
REAL = Path(__file__).parents[1] / "real"


def packages(**versions: str) -> str:
    """The installed packages; an empty version: not installed."""
    known = {"libcufile-12-8": VERSION, "gds-tools-12-8": VERSION, "nvidia-fs-dkms": MODULE}
    known |= {name.replace("_", "-"): version for name, version in versions.items()}
    return "native|amd64\n" + "".join(
        f"ii |{name}|{version}|{name}|amd64\n" for name, version in known.items() if version
    )


def offers(**versions: str) -> str:
    """The offered packages, several versions with blanks between them."""
    known = {"libcufile-12-8": VERSION, "gds-tools-12-8": VERSION, "nvidia-fs-dkms": MODULE}
    known |= {name.replace("_", "-"): version for name, version in versions.items()}
    return "".join(
        f" {name} | {version} | http://mirror ./ Packages\n" for name, each in known.items() for version in each.split()
    )


def state(
    *,
    link: str = PLACE,
    module: str = "2.24.2",
    licence: str = "Dual MIT/GPL",
    p2pdma: str = "yes",
    multipath: str = "N",
    kernel: str = "6.8.0-79-generic",
    system: str = "ubuntu",
) -> dict[str, str]:
    """The probe `gds`, changed."""
    rows = {"kernel": kernel, "id": system, "link": link, "module": module, "on_disk": "2.24.2", "licence": licence}
    rows |= {"p2pdma": p2pdma, "multipath": multipath}
    return {"gds": "".join(f"{kind}|{value}\n" for kind, value in rows.items() if value)}


def said(name: str, *changes: tuple[str, str]) -> dict[str, str]:
    """A capture of gdscheck, changed."""
    text = (REAL / f"gdscheck-{name}" / "gdscheck.txt").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return {"gds_check": "".join(f"said|{line}\n" for line in text.splitlines())}


INSTALLED = {**state(), **said("1.16-nvfs-l4"), "gds_packages": packages(), "gds_index": offers()}
PROBES = {**state(link="", module=""), "gds_check": "none|\n", "gds_packages": "native|amd64\n", "gds_index": offers()}

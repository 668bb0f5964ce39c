"""The index of a few rpm files on this host, as written by createrepo_c, which hosts do not have.

https://github.com/openSUSE/libsolv/blob/master/ext/repo_rpmmd.c reads it, for dnf and for zypper.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import Iterator, Mapping, Sequence
from xml.etree import ElementTree

from .files import write
from .packages.commands import run

COMMON = "http://linux.duke.edu/metadata/common"
RPM = "http://linux.duke.edu/metadata/rpm"
REPO = "http://linux.duke.edu/metadata/repo"
RELATIONS = {"provides": "Provide", "requires": "Require", "conflicts": "Conflict", "obsoletes": "Obsolete"}
# rpmsenseFlags: https://github.com/rpm-software-management/rpm/blob/master/include/rpm/rpmds.h
LESS, GREATER, EQUAL = 2, 4, 8
# rpmfileAttrs: a file that the package owns but does not contain.
GHOST = 64
FLAGS = {
    LESS: "LT",
    GREATER: "GT",
    EQUAL: "EQ",
    LESS | EQUAL: "LE",
    GREATER | EQUAL: "GE",
}
# Characters that rpm prints unchanged, and that XML forbids: https://www.w3.org/TR/xml/#charsets
NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
Header = Mapping[str, Sequence[str]]


def write_index(folder: str, files: Mapping[str, str]) -> None:
    """Write `repodata` into the folder for these files of it, by name with their SHA-256. Raises ValueError,
    OSError."""
    top = ElementTree.Element("metadata", {"xmlns": COMMON, "xmlns:rpm": RPM, "packages": str(len(files))})
    for file, digest in sorted(files.items()):
        top.append(describe_package(read_header(f"{folder}/{file}"), file, digest, os.path.getsize(f"{folder}/{file}")))
    primary = ElementTree.tostring(top, encoding="unicode")
    os.makedirs(f"{folder}/repodata", exist_ok=True)
    write(f"{folder}/repodata/primary.xml", primary)
    checksum = hashlib.sha256(primary.encode()).hexdigest()
    data = ElementTree.Element("repomd", {"xmlns": REPO})
    ElementTree.SubElement(data, "revision").text = checksum[:16]
    element = ElementTree.SubElement(data, "data", {"type": "primary"})
    ElementTree.SubElement(element, "checksum", {"type": "sha256"}).text = checksum
    ElementTree.SubElement(element, "location", {"href": "repodata/primary.xml"})
    ElementTree.SubElement(element, "size").text = str(len(primary.encode()))
    write(f"{folder}/repodata/repomd.xml", ElementTree.tostring(data, encoding="unicode"))


def read_header(path: str) -> Header:
    """Return the tags of a package, as rpm writes them."""
    ran = run(["rpm", "-qp", "--xml", "--nosignature", path])
    if ran.status:
        raise ValueError(f"rpm cannot read {path}: {ran.message[-300:]}")
    try:
        header = ElementTree.fromstring(NO_XML.sub("", ran.out))
        return {tag.get("name", ""): [value.text or "" for value in tag] for tag in header}
    except ElementTree.ParseError as error:
        raise ValueError(f"rpm says no XML of {path}: {error}") from error


def describe_package(header: Header, file: str, digest: str, size: int) -> ElementTree.Element:
    def first(tag: str, default: str = "") -> str:
        return next(iter(header.get(tag, ())), default)

    top = ElementTree.Element("package", {"type": "rpm"})
    for name in ("Name", "Arch"):
        ElementTree.SubElement(top, name.lower()).text = first(name)
    evr = {"epoch": first("Epoch", "0"), "ver": first("Version"), "rel": first("Release")}
    ElementTree.SubElement(top, "version", evr)
    ElementTree.SubElement(top, "checksum", {"type": "sha256", "pkgid": "YES"}).text = digest
    for name in ("Summary", "Description"):
        ElementTree.SubElement(top, name.lower()).text = first(name)
    built = first("Buildtime", "0")
    ElementTree.SubElement(top, "time", {"file": built, "build": built})
    installed, archive = first("Size", "0"), first("Archivesize", "0")
    ElementTree.SubElement(top, "size", {"package": str(size), "installed": installed, "archive": archive})
    ElementTree.SubElement(top, "location", {"href": file})
    more = ElementTree.SubElement(top, "format")
    for name in ("License", "Vendor", "Group", "Buildhost", "Sourcerpm"):
        ElementTree.SubElement(more, f"rpm:{name.lower()}").text = first(name)
    for relation, tag in RELATIONS.items():
        entries = list(list_entries(header, tag))
        if entries:
            ElementTree.SubElement(more, f"rpm:{relation}").extend(entries)
    for path, kind in list_files(header):
        ElementTree.SubElement(more, "file", kind).text = path
    return top


def list_entries(header: Header, tag: str) -> Iterator[ElementTree.Element]:
    names, flags, versions = (header.get(f"{tag}{part}", ()) for part in ("name", "flags", "version"))
    for name, flag, version in zip(names, flags, versions):
        if name.startswith("rpmlib("):
            continue
        entry = {"name": name}
        if version and int(flag) & (LESS | GREATER | EQUAL):
            epoch, _, rest = version.rpartition(":")
            ver, _, rel = rest.partition("-")
            entry.update(flags=FLAGS[int(flag) & (LESS | GREATER | EQUAL)], epoch=epoch or "0", ver=ver)
            entry.update({"rel": rel} if rel else {})
        yield ElementTree.Element("rpm:entry", entry)


def list_files(header: Header) -> Iterator[tuple[str, dict[str, str]]]:
    folders, tags = header.get("Dirnames", ()), ("Dirindexes", "Basenames", "Filemodes", "Fileflags")
    for number, name, mode, flags in zip(*(header.get(tag, ()) for tag in tags)):
        kind = "dir" if stat.S_ISDIR(int(mode) & 0xFFFF) else "ghost" if int(flags) & GHOST else ""
        yield folders[int(number)] + name, {"type": kind} if kind else {}

"""What is in a bundle, for those who keep lists of software: CycloneDX 1.6, https://cyclonedx.org/docs/1.6/json/"""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import quote

from gpuprov import __version__
from gpuprov.catalog.licences import source
from gpuprov.offline.licences import FREE, classes
from gpuprov.offline.model import Named, Package, Repository


def bom(repositories: tuple[Repository, ...], downloads: tuple[Named, ...], made_at: str) -> dict[str, Any]:
    """The document. Its number follows from its content: the same packages have the same one."""
    made = [_component(one, each) for one in repositories for each in one.packages] + [_file(one) for one in downloads]
    rows = {row["bom-ref"]: row for row in made}
    named = "\n".join(f"{reference} {row['hashes'][0]['content']}" for reference, row in sorted(rows.items()))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, named)}",
        "version": 1,
        "metadata": {
            "timestamp": made_at,
            "tools": {"components": [{"type": "application", "name": "gpuprov", "version": __version__}]},
            "component": {"type": "data", "name": "gpuprov bundle", "bom-ref": "bundle"},
        },
        "components": [rows[reference] for reference in sorted(rows)],
    }


def _component(one: Repository, package: Package) -> dict[str, Any]:
    # https://github.com/package-url/purl-spec/blob/main/types-doc: deb-definition.md, rpm-definition.md
    debian = one.family == "debian"
    words = f"arch={package.architecture}&distro={one.distribution}-{one.release}"
    epoch, _, version = ("", "", package.version) if debian else package.version.rpartition(":")
    words += f"&epoch={epoch}" if epoch else ""
    name = f"{'deb' if debian else 'rpm'}/{one.distribution}/{quote(package.name, safe='')}"
    purl = f"pkg:{name}@{quote(version, safe='')}?{words}"
    row: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": package.sha256}],
    }
    if package.licence != FREE:
        about = classes()[package.licence]
        row["licenses"] = [{"license": {"name": f"{about.key}: {about.told}", "url": source(about)}}]
    return row


def _file(one: Named) -> dict[str, Any]:
    """What a spec names by its address."""
    name = one.url.rpartition("/")[2] or one.of
    words = f"checksum=sha256:{one.sha256}&download_url={quote(one.url, safe='')}"
    return {
        "type": "file",
        "bom-ref": f"{one.of}:{one.sha256}",
        "name": name,
        "purl": f"pkg:generic/{quote(name, safe='')}?{words}",
        "hashes": [{"alg": "SHA-256", "content": one.sha256}],
        "description": f"named by the spec as {one.of}",
        "externalReferences": [{"type": "distribution", "url": one.url}],
    }

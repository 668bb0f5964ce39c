"""Bill of materials of a bundle: CycloneDX 1.6, https://cyclonedx.org/docs/1.6/json/"""

import uuid
from typing import Any
from urllib.parse import quote

from gpuprov import __version__
from gpuprov.bundle.licences import FREE, classes
from gpuprov.bundle.model import Named, Package, Repository
from gpuprov.catalog.licences import format_source


def build_bom(repositories: tuple[Repository, ...], downloads: tuple[Named, ...], made_at: str) -> dict[str, Any]:
    """Build the document. Its number follows from its content: the same packages have the same one."""
    made = [_describe_package(entry, each) for entry in repositories for each in entry.packages] + [
        _describe_file(entry) for entry in downloads
    ]
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


def _describe_package(repository: Repository, package: Package) -> dict[str, Any]:
    # https://github.com/package-url/purl-spec/blob/main/types-doc: deb-definition.md, rpm-definition.md
    debian = repository.family == "debian"
    words = f"arch={package.architecture}&distro={repository.distribution}-{repository.release}"
    epoch, _, version = ("", "", package.version) if debian else package.version.rpartition(":")
    words += f"&epoch={epoch}" if epoch else ""
    name = f"{'deb' if debian else 'rpm'}/{repository.distribution}/{quote(package.name, safe='')}"
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
        row["licenses"] = [{"license": {"name": f"{about.key}: {about.told}", "url": format_source(about)}}]
    return row


def _describe_file(file: Named) -> dict[str, Any]:
    """Describe a file that a spec names by its address."""
    name = file.url.rpartition("/")[2] or file.of
    words = f"checksum=sha256:{file.sha256}&download_url={quote(file.url, safe='')}"
    return {
        "type": "file",
        "bom-ref": f"{file.of}:{file.sha256}",
        "name": name,
        "purl": f"pkg:generic/{quote(name, safe='')}?{words}",
        "hashes": [{"alg": "SHA-256", "content": file.sha256}],
        "description": f"named by the spec as {file.of}",
        "externalReferences": [{"type": "distribution", "url": file.url}],
    }

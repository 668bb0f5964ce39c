"""Bill of materials of a bundle: CycloneDX 1.6, https://cyclonedx.org/docs/1.6/json/"""

import uuid
from urllib.parse import quote

from gpuprov import __version__
from gpuprov.bundle.licences import FREE, classes
from gpuprov.bundle.model import Named, Package, Repository
from gpuprov.catalog.licences import format_source
from gpuprov.host_code.json_members import Json


def build_bom(repositories: tuple[Repository, ...], downloads: tuple[Named, ...], made_at: str) -> dict[str, Json]:
    """Build the document. Its number follows from its content: the same packages have the same one."""
    made = [(_describe_package(entry, each), each.sha256) for entry in repositories for each in entry.packages]
    made += [(_describe_file(entry), entry.sha256) for entry in downloads]
    rows = {str(row["bom-ref"]): (row, digest) for row, digest in made}
    named = "\n".join(f"{reference} {rows[reference][1]}" for reference in sorted(rows))
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
        "components": [rows[reference][0] for reference in sorted(rows)],
    }


def _describe_package(repository: Repository, package: Package) -> dict[str, Json]:
    # https://github.com/package-url/purl-spec/blob/main/types-doc: deb-definition.md, rpm-definition.md
    debian = repository.family == "debian"
    words = f"arch={package.architecture}&distro={repository.distribution}-{repository.release}"
    epoch, _, version = ("", "", package.version) if debian else package.version.rpartition(":")
    words += f"&epoch={epoch}" if epoch else ""
    name = f"{'deb' if debian else 'rpm'}/{repository.distribution}/{quote(package.name, safe='')}"
    purl = f"pkg:{name}@{quote(version, safe='')}?{words}"
    row: dict[str, Json] = {
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


def _describe_file(file: Named) -> dict[str, Json]:
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

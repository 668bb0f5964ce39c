"""Ansible's name of a distribution, and its key in the catalogue, which is also the key of the roles' tables."""

from gpuprov.catalog.distributions import list_distributions


def index_platforms() -> dict[str, str]:
    """Return `debian-12`, `ubuntu-24.04`, `redhat-9`, `rocky-9` ... -> `debian12`, `ubuntu2404`, `rhel9`: NAME-VERSION
    as in Ansible, with the major version, or for Ubuntu the whole."""
    return {
        f"{entry.ansible.get(name, name)}-{entry.version_id}": entry.key
        for entry in list_distributions()
        if entry.version_id
        for name in (entry.id, *entry.likes)
    }


def find_platform(distribution: str, version: str) -> str:
    """Return the catalogue's key of Ansible's name of a distribution (`Debian`, `12.5`); the version matches as a whole
    or by its major number. "" if it is not supported."""
    name, known = distribution.lower().replace(" ", ""), index_platforms()
    fitting = (f"{name}-{version}", f"{name}-{version.partition('.')[0]}")
    return next((known[key] for key in fitting if key in known), "")


def find_family(os_family: str) -> str:
    """Return the family of packages by ansible_facts['os_family']: debian, suse, or redhat for all other supported
    ones."""
    return {"Debian": "debian", "Suse": "suse"}.get(os_family, "redhat")

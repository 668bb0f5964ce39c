"""The command that runs a program in an image, seen from the machine that builds it."""

import os

# Ansible's name of the connection to an image: plugins/connection.
CONNECTION = "gpuprov_chroot"
# Folder in the image, on a file system that ends with the run.
PLACE = "/run/gpuprov-bake"
PATH = f"{PLACE}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Environment of programs in the image. SYSTEMD_OFFLINE: units are enabled as files, and never started. XDG_CACHE_HOME:
# what they keep for later does not stay in the image.
FIXED = {
    "PATH": PATH,
    "HOME": "/root",
    "USER": "root",
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
    "SYSTEMD_OFFLINE": "1",
    "XDG_CACHE_HOME": f"{PLACE}/cache",
}
PASSED = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy")


def command(root: str, *argv: str) -> list[str]:
    """Return the command that runs a program in the image, with no environment of this machine but its proxies."""
    proxies = {name: os.environ[name] for each in PASSED for name in (each, each.upper()) if os.environ.get(name)}
    assignments = [f"{name}={value}" for name, value in {**FIXED, **proxies}.items()]
    return ["chroot", "--", root, "/usr/bin/env", "-i", *assignments, *argv]

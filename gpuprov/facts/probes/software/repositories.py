"""Package sources of a host, the keys that they are trusted by, and keys that are trusted for every source."""

from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.host.family import by_family
from gpuprov.host_code import openpgp, source_files, sources


def parse(output: Output) -> sources.Host:
    """Parse the package sources, if all were read: an empty list is an answer, no output is not."""
    if lost := source_files.find_missing_part(output.text):
        what = lost if "@unread" in output.text else " ".join(output.error.split())[:200] or lost
        raise ProbeFailed(f"the package sources could not be read: {what}")
    return sources.parse(openpgp.replace_rpm_keys(output.text))


# Result of `sources.parse`: files, sources, and the keys trusted for all.
REPOSITORIES: Probe[sources.Host] = Probe(
    "repositories",
    by_family(**source_files.SCRIPTS) + source_files.END,
    parse,
    "cat /etc/apt/sources.list.d/* /etc/yum.repos.d/* /etc/zypp/repos.d/*; "
    "ls /etc/apt/keyrings /etc/apt/trusted.gpg.d /etc/pki/rpm-gpg",
    speaks=True,
    blank="@arch |@machine |@release |@end",
)

"""Limits after the next login and boot: PAM, sshd and systemd's files, whatever limits.conf and systemd say now."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.kernel.limits_kept import in_bytes
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.kernel.limits import LIMIT_SOURCES, parse
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import CHECKS, facts
from tests.rows import run_each

OWN = "file|/etc/systemd/system.conf.d/90-gpuprov.conf\nline|DefaultLimitMEMLOCK=infinity\n"
LATER = "file|/etc/systemd/system.conf.d/99-site.conf\nline|DefaultLimitMEMLOCK="


def judge(text: str, **limits: int | str) -> Outcome:
    block = Kernel(limits=limits)  # type: ignore[arg-type]
    host = HostSpec(name="gpu1", capabilities={"kernel": block})
    return CHECKS["kernel.limits_kept"].run(Context(host, block, facts(limit_sources=f"{text}read|\n")))


@run_each(
    ("text", "limits", "status", "words"),
    [
        ("", {}, "n/a", ""),
        (f"{OWN}pam|yes\n", {"memlock": "unlimited"}, "pass", ""),
        (f"{OWN}{LATER}64K\n", {"memlock": "unlimited"}, "fail", "99-site.conf sets DefaultLimitMEMLOCK=64K"),
        (f"{OWN}{LATER}infinity\n", {"memlock": "unlimited"}, "pass", ""),
        (f"{LATER}8M\n", {"memlock": 8192}, "pass", ""),
        (f"{LATER}64K:8M\n", {"memlock": 8192}, "fail", "=64K:8M at the next boot"),
        (f"{LATER}64K\n{OWN}", {"memlock": "unlimited"}, "pass", ""),
        (f"{OWN}{LATER}64K\nline|DefaultLimitMEMLOCK=\n", {"memlock": "unlimited"}, "pass", ""),
        (f"{OWN}without|sshd\n", {"memlock": "unlimited"}, "fail", "pam.d/sshd does not read limits.conf"),
        (f"{OWN}pam|no\n", {"memlock": "unlimited"}, "fail", "sshd does without PAM"),
    ],
)
def test_limits_kept(text: str, limits: dict[str, int | str], status: str, words: str) -> None:
    outcome = judge(text, **limits)
    assert (outcome.status, words in outcome.found) == (status, True), outcome


def test_sizes() -> None:
    assert [in_bytes(text) for text in ("64K", "8M", "1G", "8192", "infinity", "xK", "")] == [
        *("65536", "8388608", "1073741824", "8192", "infinity", "xK", ""),
    ]


def read(root: Path) -> object:
    script = LIMIT_SOURCES.script
    for folder in ("/etc/", "/usr/", "/run/"):
        script = script.replace(f" {folder}", f" {root}{folder}").replace(f"={folder}", f"={root}{folder}")
    script = script.replace(" /etc/systemd", f" {root}/etc/systemd")
    out = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    return parse(Output(out.replace(str(root), ""), 0))


def test_the_script_follows_includes_and_the_order_of_files(tmp_path: Path) -> None:
    files = {
        "etc/pam.d/sshd": "@include common-session\nsession required pam_env.so\n",
        "etc/pam.d/common-session": "session required pam_unix.so\nsession include deeper\n",
        "etc/pam.d/deeper": "session include deeper\nsession  required  pam_limits.so\n",
        "etc/pam.d/login": "#session required pam_limits.so\nsession required pam_limits.so conf=/etc/other.conf\n",
        "etc/ssh/sshd_config": "#UsePAM yes\nUsePAM no\n",
        "etc/systemd/system.conf": "[Manager]\nDefaultLimitMEMLOCK=1K\n#DefaultLimitNOFILE=5\n",
        "etc/systemd/system.conf.d/90-gpuprov.conf": "[Manager]\nDefaultLimitMEMLOCK=infinity\n",
        "etc/systemd/system.conf.d/99-zz.conf": "[Manager]\n DefaultLimitMEMLOCK = 64K\n",
        "run/systemd/system.conf.d/99-zzz.conf": "[Manager]\n DefaultLimitMEMLOCK = 32K\n",
        "usr/lib/systemd/system.conf.d/90-gpuprov.conf": "[Manager]\nDefaultLimitMEMLOCK=5\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    known = read(tmp_path)
    assert known == parse(
        Output(
            "file|/etc/systemd/system.conf.d/99-zz.conf\nline|DefaultLimitMEMLOCK=64K\nwithout|login\npam|no\nread|\n",
            0,
        )
    )

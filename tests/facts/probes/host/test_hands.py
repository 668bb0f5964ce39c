"""The probe of what others than root can write, over a folder that looks like a host."""

from __future__ import annotations

from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host.rivals import ABOVE, FOLDERS, HANDS, Open
from tests.facts.probes import run_script


def test_what_every_user_can_write(tmp_path: Path) -> None:
    for folder in ("etc/systemd/system/a.service.d", "etc/modprobe.d", "usr/local/bin"):
        (tmp_path / folder).mkdir(parents=True)
    for path in ("etc/systemd/system/b.service", "etc/modprobe.d/a.conf", "usr/local/bin/x"):
        (tmp_path / path).touch()
    (tmp_path / "usr/local/bin/link").symlink_to("/bin/true")
    script = HANDS.script.replace("! -uid 0", f"! -uid {tmp_path.stat().st_uid}")
    for place in (" ".join(ABOVE), " ".join(FOLDERS)):
        script = script.replace(place, " ".join(f"{tmp_path}{each}" for each in place.split()))

    def read() -> list[tuple[str, str]]:
        output = run_script(script, tmp_path, {})
        assert output.status == 0, output
        return [(each.path.removeprefix(str(tmp_path)), each.mode) for each in HANDS.parse(output)]

    assert read() == []
    (tmp_path / "etc/systemd/system").chmod(0o777)
    (tmp_path / "usr/local/bin").chmod(0o1777)
    (tmp_path / "etc/systemd/system/a.service.d").chmod(0o777)
    (tmp_path / "etc/modprobe.d/a.conf").chmod(0o666)
    assert sorted(read()) == [
        ("/etc/modprobe.d/a.conf", "666"),
        ("/etc/systemd/system", "777"),
        ("/etc/systemd/system/a.service.d", "777"),
        ("/usr/local/bin", "1777"),
    ]


def test_a_mask_by_a_mount_is_no_file() -> None:
    """As containers have /dev/null over a unit."""
    assert HANDS.parse(Output("read|\nopen|c|666|0|/etc/systemd/system/a.service\n")) == ()
    assert HANDS.parse(Output("read|\nopen|d|755|7|/etc\n")) == (Open("/etc", "755", "7"),)

"""What a compute tray says of nvidia-imex, read by the probe's own script from files and programs that look like the
real ones."""

from __future__ import annotations

from pathlib import Path

from gpuprov.facts.probes.gpus.imex import IMEX, Imex, parse
from tests.capabilities.imex_host import HERE, THERE, domain
from tests.facts.probes import run_well

UNIT = "printf 'LoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\n'"


def read(root: Path, **programs: str) -> Imex:
    commands = {"systemctl": "exit 1", "hostname": f"echo '{HERE} 2001:db8::1 '"}
    commands |= {name.replace("_", "-"): body for name, body in programs.items()}
    places = ("/etc/nvidia-imex", "/proc/[0-9]*", "/proc/driver", "/dev/nvidia")
    assert "/usr/bin/nvidia-imex" in IMEX.script
    return parse(run_well(IMEX.script.replace("/usr/bin/", f"{root}/bin/"), root, commands, places))


def test_a_tray(tmp_path: Path) -> None:
    folder = tmp_path / "etc/nvidia-imex"
    folder.mkdir(parents=True)
    (folder / "nodes_config.cfg").write_text(f"# the rack\n{HERE}\n\n{THERE}  # tray 2\n")
    (folder / "config.cfg").write_text(
        "# IMEX_CMD_PORT=1\nIMEX_CMD_ENABLED=1\nIMEX_CMD_PORT=50005 # port\nBIND_INTERFACE_IP=\n"
    )
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/params").write_text("ImexChannelCount: 2048\nCreateImexChannel0: 1\n")
    (tmp_path / "proc/9").mkdir()
    (tmp_path / "proc/9/cgroup").write_text("0::/system.slice/nvidia-imex.service\n")
    (tmp_path / "proc/9/stat").write_text(f"9 (nvidia-imex) S 1 {'0 ' * 17}4200 0 0\n")
    (tmp_path / "proc/8").mkdir()
    (tmp_path / "proc/8/cgroup").write_text("0::/user.slice/user@1000.service/x:/system.slice/nvidia-imex.service\n")
    (tmp_path / "proc/8/stat").write_text(f"8 (x) S 1 {'0 ' * 17}4200 0 0\n")
    (tmp_path / "proc/8/cmdline").write_bytes(b"x\nsetting|IMEX_CMD_PORT=1\0")
    (tmp_path / "proc/9/cmdline").write_bytes(b"/usr/bin/nvidia-imex\0-c\0/etc/nvidia-imex/config.cfg\0")
    state = read(
        tmp_path,
        systemctl=f'case "$*" in *ControlGroup*) echo ControlGroup=/system.slice/nvidia-imex.service ;; *) {UNIT} '
        ";; esac",
        nvidia_imex="echo 'IMEX version is: 580.105.08'",
        nvidia_imex_ctl=f"case $1 in -q) echo READY ;; -N) echo '{domain('READY', 'READY')}' ;; esac",
    )
    assert state.nodes == (HERE, THERE)
    assert state.addresses == {HERE, "2001:db8::1"}
    assert (state.load, state.active, state.file) == ("loaded", "active", "enabled")
    assert (state.daemon.version, state.ready, state.parameter, state.channel) == ("580.105.08", "READY", "1", False)
    assert state.daemon.settings == {"IMEX_CMD_ENABLED": "1", "IMEX_CMD_PORT": "50005", "BIND_INTERFACE_IP": ""}
    assert [process.pid for process in state.daemon.processes] == [9]
    assert state.domain
    assert (state.domain.status, len(state.domain.members)) == ("UP", 2)


def test_a_daemon_that_does_not_answer(tmp_path: Path) -> None:
    state = read(
        tmp_path,
        nvidia_imex="echo 'IMEX version is: 580.105.08'",
        nvidia_imex_ctl="echo 'Failed to connect to 127.0.0.1:50005' >&2; exit 1",
    )
    assert (state.domain, state.ready, state.nodes) == (None, "", None)
    assert state.complaint == "Failed to connect to 127.0.0.1:50005"


def test_a_host_without_it(tmp_path: Path) -> None:
    state = read(tmp_path)
    assert (state.load, state.file, state.domain, state.daemon.version) == ("not-found", "", None, "")
    assert HERE in state.addresses

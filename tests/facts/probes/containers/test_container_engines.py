"""The probe of container engines, over stand-ins of docker's programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.rules import engine_output
from tests.facts.probes import run_well

PROGRAMS = {
    "dockerd": 'echo "Docker version 28.3.3"',
    # A question at docker.socket starts the daemon behind it.
    "docker": 'touch "$(dirname "$0")/started"; echo "{}"',
    "systemctl": """case $* in
  *MainPID*) cat "$(dirname "$0")/../process" ;;
  *ExecStart\\ docker*) echo "ExecStart={ path=/usr/bin/dockerd ; argv[]=/usr/bin/dockerd -H fd:// OPTION ; ignore_errors=no }" ;;
  *docker.service*) s=inactive; [ -e "$(dirname "$0")/started" ] && s=active
    printf 'ActiveState=%s\\nUnitFileState=disabled\\nExecMainStartTimestampMonotonic=5\\n' "$s" ;;
esac""",
}


def told(folder: Path, option: str = "") -> engine_output.Engine:
    """What the probe finds of docker."""
    programs = {name: text.replace("OPTION", option) for name, text in PROGRAMS.items()}
    return engine_output.parse(run_well(ENGINES.script, folder, programs).text)["docker"]


def test_a_daemon_behind_its_socket_is_alive_when_it_was_asked(tmp_path: Path) -> None:
    assert told(tmp_path)["active"] == "active"


@pytest.mark.install
@pytest.mark.parametrize("option", ["--default-runtime=nvidia", "--default-runtime nvidia"])
def test_a_default_runtime_of_the_command_line(tmp_path: Path, option: str) -> None:
    assert told(tmp_path, option)["default"] == "nvidia"
    assert "default" not in told(tmp_path, "--add-runtime nvidia=/usr/bin/nvidia-container-runtime")
    both = told(tmp_path, f"--config-file /srv/docker.json {option}")
    assert (both["config"], both["default"]) == ("/srv/docker.json", "nvidia")


# As Amazon Linux writes its unit: ExecStart=/usr/bin/dockerd ... $OPTIONS $DOCKER_STORAGE_OPTIONS $DOCKER_ADD_RUNTIMES
def test_a_default_runtime_of_a_variable(tmp_path: Path) -> None:
    with subprocess.Popen(["sh", "-c", "read -r _", "--default-runtime=nvidia"], stdin=subprocess.PIPE) as process:
        (tmp_path / "process").write_text(f"{process.pid}\n", encoding="utf-8")
        assert told(tmp_path, "\\$OPTIONS")["default"] == "nvidia"
        process.communicate(b"\n")

"""The probe of container engines, over stand-ins of docker's programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.rules import cluster_engines, engine_output, engines
from tests.facts.probes import run_well
from tests.rows import run_each

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
    assert told(tmp_path).active == "active"


def test_the_hosts_own_daemon_is_asked_whatever_a_variable_says(tmp_path: Path) -> None:
    script = f"export DOCKER_HOST=elsewhere DOCKER_CONTEXT=elsewhere\n{ENGINES.script}"
    docker = 'printf \'{"ID": "%s%s"}\' "${DOCKER_HOST-}" "${DOCKER_CONTEXT-}"'
    found = engine_output.parse(run_well(script, tmp_path, PROGRAMS | {"docker": docker}).text)["docker"]
    assert found.live.strip() == '{"ID": ""}'


@run_each(
    ("state", "enabled", "starter"),
    [
        ("disabled", "docker.socket", "docker.socket"),
        ("masked", "docker.socket", ""),
        ("static", "kubelet.service", ""),
    ],
)
def test_what_starts_a_disabled_daemon_at_a_boot(tmp_path: Path, state: str, enabled: str, starter: str) -> None:
    programs = PROGRAMS | {
        "systemctl": f"""case $* in
  -q\\ is-enabled\\ {enabled}) exit 0 ;; -q*) exit 1 ;;
  *UnitFileState*) printf 'TriggeredBy=docker.socket\\nUnitFileState={state}\\nActiveState=active\\nWantedBy=foo.service\\n' ;;
esac"""
    }
    found = engine_output.parse(run_well(ENGINES.script, tmp_path, programs).text)["docker"]
    assert (found.active, found.enabled, found.starter) == ("active", state, starter)


@pytest.mark.install
@pytest.mark.parametrize("option", ["--default-runtime=nvidia", "--default-runtime nvidia"])
def test_a_default_runtime_of_the_command_line(tmp_path: Path, option: str) -> None:
    assert told(tmp_path, option).default == "nvidia"
    assert not told(tmp_path, "--add-runtime nvidia=/usr/bin/nvidia-container-runtime").default
    both = told(tmp_path, f"--config-file /srv/docker.json {option}")
    assert (both.config, both.default) == ("/srv/docker.json", "nvidia")


# As Amazon Linux writes its unit: ExecStart=/usr/bin/dockerd ... $OPTIONS $DOCKER_STORAGE_OPTIONS $DOCKER_ADD_RUNTIMES
def test_a_default_runtime_of_a_variable(tmp_path: Path) -> None:
    with subprocess.Popen(["sh", "-c", "read -r _", "--default-runtime=nvidia"], stdin=subprocess.PIPE) as process:
        (tmp_path / "process").write_text(f"{process.pid}\n", encoding="utf-8")
        assert told(tmp_path, "\\$OPTIONS").default == "nvidia"
        process.communicate(b"\n")


K3S_FILES = {
    "/etc/rancher/k3s/config.yaml": 'token: "s3cret"\ndefault-runtime: "crun"\nnode-label: [a=b]\n',
    "/etc/rancher/k3s/config.yaml.d/99-gpuprov.yaml": "# Managed\ndefault-runtime: nvidia\n",
    "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl": '{{ template "base" . }}\n[registry]\nauth = '
    '"s3cret"\n',
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml": (
        "version = 3\n[plugins.'io.containerd.cri.v1.images'.registry.configs.'x'.auth]\n"
        '  username = "s3cret"\n  password = "s3cret"\n  auth = "s3cret"\n  identitytoken = "s3cret"\n'
        "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.'nvidia'.options]\n"
        '  BinaryName = "/usr/bin/nvidia-container-runtime"\n  SystemdCgroup = true\n'
    ),
    "/var/snap/microk8s/current/args/containerd-template.toml": 'version = 2\nsnapshotter = "${SNAPSHOTTER}"\n',
    "/var/snap/microk8s/current/args/containerd.toml": "version = 2\n",
}
CLUSTER_PROGRAMS = {
    "k3s": 'echo "k3s version v1.33.5+k3s1 (0a1b2c3d)"; echo "go version go1.24.6"',
    "systemctl": """case $* in
  -q\\ is-*\\ k3s-agent.service) exit 0 ;; -q*) exit 3 ;;
  *ExecStart\\ k3s*) echo "ExecStart={ path=/usr/local/bin/k3s ; argv[]=/usr/local/bin/k3s agent OPTION ; ignore_errors=no }" ;;
  *) printf 'ActiveState=active\\nUnitFileState=enabled\\nExecMainStartTimestampMonotonic=5\\n' ;;
esac""",
}


@run_each(("option", "told_default"), [("", "nvidia"), ("--default-runtime=crun", "crun")])
def test_what_k3s_and_microk8s_write_is_read_without_secrets(tmp_path: Path, option: str, told_default: str) -> None:
    for path, text in K3S_FILES.items():
        (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path[1:]).write_text(text, encoding="utf-8")
    programs = {name: text.replace("OPTION", option) for name, text in CLUSTER_PROGRAMS.items()}
    places = ("/etc/rancher", "/var/lib/rancher", "/var/snap/microk8s")
    text = run_well(ENGINES.script, tmp_path, programs, places).text.replace(str(tmp_path), "")
    assert "s3cret" not in text
    found = {name: one for name, one in engine_output.parse(text).items() if name in cluster_engines.WRITTEN}
    assert list(found) == ["k3s", "microk8s"], "no folder of RKE2's"
    k3s = found["k3s"]
    assert (k3s.version, k3s.unit, k3s.active) == ("1.33.5", "k3s-agent.service", "active")
    assert cluster_engines.read_default("k3s", k3s) == told_default
    assert cluster_engines.find_own_template("k3s", k3s) == ""
    assert engines.in_force("k3s", k3s, default=False) == ""
    assert found["microk8s"].unit == "snap.microk8s.daemon-containerd.service"
    assert "${SNAPSHOTTER}" in found["microk8s"].files[cluster_engines.TEMPLATE].text


def test_a_unit_that_no_engine_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no unit 'x; reboot' of an engine"):
        engine_output.parse("@clock 1 1\n@engine k3s\n@service x; reboot\n")

"""container_toolkit: whether each engine of a host can read the CDI specification that is made for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.catalog import container_toolkit as catalogue
from gpuprov.catalog import engines as known
from gpuprov.facts.probes.containers.container_toolkit import CDI, CDI_ANSWERS
from gpuprov.rules import engines as files
from tests.capabilities.asking import Row, ask, judge
from tests.capabilities.contents_host import Also, with_lines
from tests.capabilities.test_container_toolkit_desired import made
from tests.capabilities.toolkit_host import CRIO_DROP_IN, DAEMON, cdi, containerd, crio, docker, podman, toolkit
from tests.capabilities.toolkit_rows import EXACT, engines, row
from tests.rows import run_each

FILE = "/var/run/cdi/nvidia.yaml"
GIDS = {"cdi_specifications": cdi(of="0.7.0", fields=("additionalGids",))}
PLAIN = toolkit(flags="")
ENVIRONMENT, FLAGS = catalogue.REFRESH_ENVIRONMENT, catalogue.FLAGS_VARIABLE
OUTPUT = f"{catalogue.OUTPUT_VARIABLE}={FILE}"
ANSWER = r"""podman time="2026-11-28T05:18:19Z" level=debug msg="The following error was triggered when refreshing the CDI registry: 1 error occurred:\n\t* failed to load CDI Spec: failed to parse CDI Spec \"/var/run/cdi/nvidia.yaml\": failed to unmarshal CDI Spec: error unmarshaling JSON: while decoding JSON: json: unknown field \"additionalGids\"\n\n"
"""  # noqa: E501 (as podman 4.3.1 of Debian 12 prints it)
BOTH = "podman Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all, gpuprov.invalid/none=none\n"
OURS = "podman Error: setting up CDI devices: unresolvable CDI devices gpuprov.invalid/none=none\n"
WARNING = f'CDI: Error associated with spec file {FILE}: failed to parse CDI Spec "{FILE}": unknown field'
LISTED = {
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}],
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
}


def newer(version: str = "0.7.0", **given: Any) -> dict[str, str]:
    return {"cdi_specifications": cdi(of=version, **given)}


IN_CONF, IN_FOLDER = "containers.conf", "containers.conf.d/a.conf"
CDI_MODE = " [nvidia-container-runtime.modes.cdi]\n {}"
CONTAINERS = """\
@file /etc/containers/{} 1
 [engine]
 cdi_spec_dirs = ["{}"]
"""
CONFIG = '\n [nvidia-container-runtime]\n mode = "auto"\n {}'
ROWS = [
    row("closed to users, and podman is here", "cdi", None, {"cdi_specifications": f"{cdi()}@closed\n"}, "fail",
        f"{FILE} can be read by root alone: engines of users have no GPU by it", f"chmod o+r {FILE}"),
    row("closed to users, who have no engine", "cdi", None, {"cdi_specifications": f"{cdi()}@closed\n",
                                                             **engines(docker())}, "pass"),
    *(row(f"the runtime's config: {line}", "mode", None, {"container_toolkit": toolkit(config=CONFIG.format(line))},
          status, words)
      for line, status, words in (
        ("[nvidia-ctk]\n path = '/bin/true'", "fail", "nvidia-ctk.path is /bin/true, not nvidia-ctk"),
        ("[nvidia-ctk]\n path = '/usr/bin/nvidia-ctk'", "pass", ""),
        ("[nvidia-container-cli]\n root = '/run/nvidia/driver'", "fail",
         "nvidia-container-cli.root is /run/nvidia/driver"),
        ("[nvidia-container-runtime-hook]\n path = '/opt/hook'", "fail",
         "nvidia-container-runtime-hook.path is /opt/hook"),
      )),
    row("containers get no CUDA", "mode", None,
        {"container_toolkit": toolkit(config=' supported-driver-capabilities = "utility,video"' + CONFIG.format(""))},
        "fail",
        "supported-driver-capabilities has no compute"),
    row("in another folder, by daemon.json", "cdi", None, engines(docker({**DAEMON, "cdi-spec-dirs": ["/srv/cdi"]},
                                                                         version="28.3.0")),
        "fail", "docker looks for CDI specifications in /srv/cdi alone",
        "put /var/run/cdi into cdi-spec-dirs (/etc/docker/daemon.json), or take it out, and restart the engine"),
    row("in another folder, by docker's word", "cdi", None, engines(docker(info={"CDISpecDirs": ["/srv/cdi"]},
                                                                           version="28.3.0")),
        "fail", "docker looks for CDI specifications in /srv/cdi alone", "cdi-spec-dirs (docker info)"),
    row("in this folder by its other name", "cdi", None, engines(docker({**DAEMON, "cdi-spec-dirs": ["/run/cdi/"]},
                                                                        version="28.3.0")),
        "pass"),
    row("in another folder, by podman's last file", "cdi", None,
        engines(podman("5.2.0") + CONTAINERS.format(IN_CONF, "/var/run/cdi") + CONTAINERS.format(IN_FOLDER, "/srv")),
        "fail", "podman looks for CDI specifications in /srv alone",
        "cdi_spec_dirs (/etc/containers/containers.conf.d/a.conf)"),
    row("in this folder, by podman's last file", "cdi", None,
        engines(podman("5.2.0") + CONTAINERS.format(IN_CONF, "/srv") + CONTAINERS.format(IN_FOLDER, "/run/cdi")),
        "pass"),
    row("in another folder, by cri-o's files", "cdi", None,
        engines(crio(CRIO_DROP_IN + '[crio.runtime]\ncdi_spec_dirs = ["/srv"]\n', live=None)),
        "fail", "crio looks for CDI specifications in /srv alone"),
    row("in another folder, by containerd's", "cdi", ContainerToolkit(runtimes=("containerd",)),
        engines(containerd(dump='[plugins."io.containerd.grpc.v1.cri"]\n  cdi_spec_dirs = []\n', version="1.7.27")),
        "fail", "containerd looks for CDI specifications in no folder alone"),
    row("the runtime's own folders", "cdi", None,
        {"container_toolkit": toolkit(config=CDI_MODE.format('spec-dirs = ["/srv"]'))},
        "fail", "NVIDIA's runtime looks for CDI specifications in /srv alone"),
    row("the runtime's own kind", "cdi", None,
        {"container_toolkit": toolkit(config=CDI_MODE.format('default-kind = "x.y/z"'))},
        "fail", "NVIDIA's runtime takes devices of kind x.y/z, not nvidia.com/gpu"),
    row("older than podman 4.3.1's limit", "cdi", None, engines(podman("4.3.1")), "pass"),
    row(
        "groups of device files, and podman 4.3.1 by its release",
        "cdi",
        None,
        {**GIDS, **engines(podman())},
        "fail",
        f"podman 4.3.1 cannot read {FILE}: it is of CDI 0.7.0, with additionalGids, and this release reads up to 0.5.0",
        f"--output={FILE} --feature-flag=no-additional-gids-for-device-nodes; or podman 5.1 or newer",
        f"file {FILE}:  -> made anew",
    ),
    row(
        "by podman's own word",
        "cdi",
        None,
        {**GIDS, **engines(podman()), "cdi_answers": ANSWER + BOTH},
        "fail",
        f'podman 4.3.1 cannot read {FILE}: failed to load CDI Spec: failed to parse CDI Spec "{FILE}": failed to '
        'unmarshal',
    ),
    row("a podman that says it can, whatever its release", "cdi", None,
        {**GIDS, **engines(podman("4.9.4")), "cdi_answers": OURS}, "pass"),
    row("an old podman that complains about no file", "cdi", None, {**GIDS, **engines(podman()), "cdi_answers": BOTH},
        "pass"),
    row("a podman of another mind that has the device", "cdi", None,
        {**GIDS, **engines(podman("5.2.0")), "cdi_answers": ANSWER + OURS}, "pass"),
    row("a podman that fails of something else", "cdi", None,
        {**GIDS, **engines(podman()), "cdi_answers": "podman Error: CDI registry is not there\n"}, "fail",
        "up to 0.5.0"),
    row("docker's own containerd", "cdi", None,
        {**GIDS, **engines(docker(version="27.1.0"), containerd(version="1.7.13"))}, "pass"),
    row("beside docker, and asked for", "cdi", ContainerToolkit(runtimes=("docker", "containerd")),
        {**GIDS, **engines(docker(version="27.1.0"), containerd(version="1.7.13"))}, "fail",
        "containerd 1.7.13 cannot"),
    row("docker's own word", "cdi", None,
        {**engines(docker(version="28.3.0", info={**LISTED, "Warnings": [WARNING]}))}, "fail",
        f"docker 28.3.0 cannot read {FILE}: CDI: Error associated with spec file {FILE}"),
    row("docker warns of another file", "cdi", None, {**engines(docker(version="28.3.0", info={**LISTED,
        "Warnings": [WARNING.replace(FILE, "/etc/cdi/x.yaml"), "bridge"]}))}, "pass"),
    row("docker's own word goes before its release", "cdi", None,
        {**newer("1.1.0"), **engines(docker(version="28.3.0", info=LISTED))}, "pass"),
    row("a file newer than all that is known, and a newer podman", "cdi", None,
        {**newer("1.2.0"), **engines(podman("7.0.1"))}, "fail",
        "up to 1.0.0 (judged as 5.8, the newest release known here)", "or a newer podman"),
    row("a field that is newer than what the file says it is", "cdi", None,
        {**newer("0.5.0", fields=("netDevices",)), **engines(podman("5.5.0"))}, "fail", "CDI 1.1.0, with netDevices"),
    row("a toolkit that has no such feature", "cdi", None,
        {**GIDS, **engines(podman()), "container_toolkit": toolkit("1.18.2")}, "fail", "additionalGids",
        f"--output={FILE}; or podman 5.1"),
    row("the feature is not there for the next boot", "files", None,
        {"container_toolkit": PLAIN, "contents": Also(with_lines(ENVIRONMENT, OUTPUT))}, "fail",
        f"{FLAGS} is not set (podman 4.3.1 could not read the specification of a boot)", "gpuprov apply"),
    row("beside a feature of the site's", "files", None, {"container_toolkit": toolkit(flags='"a,b"'),
        "contents": Also(with_lines(ENVIRONMENT, OUTPUT, f'{FLAGS}="a,b"'))}, "fail", f'{FLAGS}="a,b" (podman'),
    row("as it is set", "files", None, {"container_toolkit": PLAIN}, "pass", f"{FLAGS}={catalogue.WITHOUT_GIDS}"),
    row("podman 4.2, which reads no file that names GPUs by number", "engines",
        ContainerToolkit(runtimes=("podman",)), engines(podman("4.2.0")), "fail", "podman 4.2.0", "upgrade podman"),
]  # fmt: skip


@run_each("question", ROWS)
def test_readers(question: Row) -> None:
    judge(question)


@run_each(
    ("make", "version", "passes"),
    [
        *[(podman, version, version > "5.0.0") for version in ("4.9.3", "5.0.0", "5.1.0", "5.7.0")],
        *[(docker, version, version != "26.0.2") for version in ("20.10.24", "26.0.2", "26.1.0")],
        *[(containerd, version, version != "1.7.13") for version in ("1.6.20", "1.7.13", "1.7.16", "2.3.1")],
        *[(crio, version, version > "1.29.2") for version in ("1.29.2", "1.30.4")],
    ],
)
def test_releases(make: Callable[..., str], version: str, passes: bool) -> None:
    host = make().replace("1.30.4", version) if make is crio else make(version=version)
    outcome = ask("container_toolkit.cdi", None, **GIDS, **engines(host))
    assert (outcome.status == "pass") == passes, outcome
    assert passes or f"{make.__name__} {version} cannot read {FILE}: it is of CDI 0.7.0" in outcome.found


def test_a_release_that_is_as_known_is_not_called_newer() -> None:
    told = ask("container_toolkit.cdi", None, **newer("1.2.0"), **engines(podman("5.8.2"))).found
    assert "judged as" not in told


@run_each(
    ("host", "flags"),
    [
        (podman("4.9.3"), "no-additional-gids-for-device-nodes"),
        (docker(version="25.0.3"), "no-additional-gids-for-device-nodes"),
        (podman("5.1.0"), None),
        (docker(version="20.10.24"), None),
        (docker(version="27.0.1") + containerd(version="1.7.13"), None),
    ],
)
def test_the_unit_of_each_boot_leaves_out_what_an_engine_cannot_read(host: str, flags: str | None) -> None:
    assert keys(None, PLAIN, host).get(FLAGS) == flags


def keys(block: ContainerToolkit | None, there: str, host: str, **more: str) -> dict[str, str]:
    """What the toolkit's own refresh unit is told."""
    lines = made(block, None, container_toolkit=there, **engines(host), **more)["lines"]
    return dict(lines[0]["keys"]) if lines else {}


def test_features_of_the_sites_stay_and_an_old_toolkit_gets_none() -> None:
    assert keys(None, toolkit(flags="a"), podman())[FLAGS] == f"a,{catalogue.WITHOUT_GIDS}"
    for there, host in ((toolkit(flags=f"a,{catalogue.WITHOUT_GIDS}"), podman()), (PLAIN, podman("5.1.0") + crio())):
        assert FLAGS not in keys(None, there, host)
    assert keys(EXACT, PLAIN, podman()) == {}
    old = toolkit("1.18.2", flags="")
    assert FLAGS not in ask("container_toolkit.files", None, container_toolkit=old, **engines(podman())).found


def test_what_is_to_be_installed_decides() -> None:
    """`version: any` installs 1.20 on a host without a toolkit."""
    assert keys(None, toolkit("", flags=""), podman(), packages="")[FLAGS] == catalogue.WITHOUT_GIDS


def test_the_catalogue_is_in_order_and_agrees_with_what_turns_cdi_on() -> None:
    table = known.read_engines_file()
    for engine in ("docker", "containerd", "crio", "podman", "k3s", "rke2"):
        rows = [row for row in table.reads if row.engine == engine]
        assert [files.number(row.since) for row in rows] == sorted({files.number(row.since) for row in rows}), engine
        assert [files.number(row.cdi) for row in rows] == sorted({files.number(row.cdi) for row in rows}), engine
        assert files.number(known.find_newest_known(engine)) >= files.number(rows[-1].since)
    for engine, since in files.CDI_SINCE.items():
        first = next(row for row in table.reads if row.engine == known.BUNDLED.get(engine, engine))
        assert files.number(first.since) == since


def test_the_probes_look_for_each_field_of_the_catalogue() -> None:
    for row_ in known.read_engines_file().fields:
        assert row_.field in CDI.script
        assert row_.field in CDI_ANSWERS.script


def test_docker_info_that_is_no_object_is_no_answer() -> None:
    assert (
        ask("container_toolkit.cdi", None, **engines(docker(info=json.dumps([1]), version="28.3.0"))).status == "pass"
    )

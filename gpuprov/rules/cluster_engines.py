"""containerd as k3s, RKE2 and MicroK8s bring it: they write its configuration anew whenever they start.

So there are two answers: what they last wrote is in force, and what they will write follows from their own settings.
k3s and RKE2 register NVIDIA's runtime by themselves if its program is on their PATH when they start:
https://docs.k3s.io/advanced#alternative-container-runtime-support, https://docs.rke2.io/advanced. MicroK8s fills in a
template: https://github.com/canonical/microk8s/blob/master/microk8s-resources/wrappers/run-containerd-with-args
"""

import re
from dataclasses import replace

from gpuprov.rules.engine_output import Engine, EngineFile
from gpuprov.rules.engine_runtimes import NAME, Table, at, merged, number, parse_toml

RANCHER = ("k3s", "rke2")
MICROK8S = "/var/snap/microk8s/current/args"
TEMPLATE = f"{MICROK8S}/containerd-template.toml"
# The configuration that each writes for containerd.
WRITTEN = {
    **{name: f"/var/lib/rancher/{name}/agent/etc/containerd/config.toml" for name in RANCHER},
    "microk8s": f"{MICROK8S}/containerd.toml",
}
# Their settings: the last file that has a key wins, and the command line over all of them.
# https://docs.k3s.io/installation/configuration#multiple-config-files
SETTINGS = {name: f"/etc/rancher/{name}/config.yaml.d/99-gpuprov.yaml" for name in RANCHER}
KEY = "default-runtime"
# The first release with that setting: https://github.com/k3s-io/k3s/pull/8936
FLAG_SINCE = (1, 28, 5)
# The runtimes in MicroK8s' template, which is of version 2 with each release of containerd.
SECTION = ("plugins", "io.containerd.grpc.v1.cri", "containerd")
PROGRAM = "/usr/bin/nvidia-container-runtime"


def is_cluster_engine(name: str) -> bool:
    return name in WRITTEN


def read_written(name: str, engine: Engine) -> Table:
    """Return the configuration that was written at the last start. Raises ValueError."""
    path = WRITTEN[name]
    if path not in engine.files:
        raise ValueError(f"{path} is missing: {name} has not started yet, or runs pods in docker (--docker)")
    return parse_toml(engine.files[path].text, path)


def predict(name: str, engine: Engine) -> Table:
    """Return the configuration that the next start writes. Raises ValueError."""
    if name == "microk8s":
        if TEMPLATE not in engine.files:
            raise ValueError(f"{TEMPLATE} is not there")
        return parse_toml(engine.files[TEMPLATE].text.replace("${RUNTIME}", "runc"), TEMPLATE)
    written = read_written(name, engine)
    if find_own_template(name, engine):
        return written
    plugin = "io.containerd.cri.v1.runtime" if written.get("version") == 3 else SECTION[1]
    shape = {"runtime_type": "io.containerd.runc.v2", "options": {"BinaryName": engine.program}}
    containerd = {
        "default_runtime_name": read_default(name, engine),
        **({"runtimes": {NAME: shape}} if engine.program else {}),
    }
    return merged(written, {"plugins": {plugin: {"containerd": containerd}}})


def find_own_template(name: str, engine: Engine) -> str:
    """Return the site's template that neither extends the base template nor lists the runtimes found; empty if there is
    none. Of two, k3s takes that of version 3."""
    texts = {path: file.text for path, file in engine.files.items() if path.endswith(".tmpl")}
    path = next((path for path in sorted(texts) if "-v3." in path), min(texts, default=""))
    return path if path and not re.search(r'template "base"|ExtraRuntimes', texts[path]) else ""


def read_default(name: str, engine: Engine, without: str = "") -> str:
    """Return the default runtime set for k3s or RKE2; empty if none. `without`: a file that is left out."""
    if flag := engine.default:
        return flag
    value = ""
    for path, file in sorted(engine.files.items(), key=lambda item: (".d/" in item[0], item[0])):
        match = re.search(rf"^{KEY}: *[\"']?([\w.-]+)", file.text, re.MULTILINE)
        if match and path.startswith(f"/etc/rancher/{name}/") and path != without:
            value = match[1]
    return value


def derive_drop_in(name: str, engine: Engine, default: bool) -> str:
    """Return the setting that gives k3s or RKE2 the default runtime; empty if it needs none."""
    if default:
        return f"{KEY}: {NAME}\n"
    return f"{KEY}: runc\n" if read_default(name, engine, without=SETTINGS[name]) == NAME else ""


def refuse(name: str, engine: Engine, default: bool) -> str:
    """Return why neither a setting nor a restart can bring the runtime; empty if they can. What is not written yet,
    after an installation of the toolkit, they can."""
    if name not in RANCHER:
        return ""
    if own := find_own_template(name, engine):
        runtime = re.search(rf"runtimes\.[\"']?{NAME}\b", engine.files[WRITTEN[name]].text)
        return (
            "" if runtime else f'{own} leaves out the runtimes that {name} found: add {{{{ template "base" . }}}} to it'
        )
    flag = engine.default
    if flag and (flag == NAME) != default:
        return f"{engine.unit} gives {name} --{KEY} {flag}, which no file can change: take it out there"
    if default and number(engine.version) < FLAG_SINCE:
        return f"{name} {engine.version} has no setting {KEY}, which came with {'.'.join(map(str, FLAG_SINCE))}"
    drop_in = EngineFile(text=derive_drop_in(name, engine, default))
    coming = replace(engine, files={**engine.files, SETTINGS[name]: drop_in})
    if (result := read_default(name, coming)) and (result == NAME) != default:
        return f"a file that {name} reads after {SETTINGS[name]} has {KEY}: {result}: take it out there"
    return ""


def takes_cdi(name: str, engine: Engine, enabled: bool | None) -> bool:
    """Return whether containerd resolves CDI devices: on by itself from 2.0 on, which k3s and RKE2 have since 1.31.6
    and 1.32.2. `enabled`: as the configuration says; None: it does not."""
    # https://docs.k3s.io/advanced#configuring-containerd.
    release = number(engine.version)
    second = release >= (2,) if name == "microk8s" else release >= (1, 32, 2) or (1, 31, 6) <= release < (1, 32)
    return second if enabled is None else enabled


def template_values(config: Table, default: bool, cdi: bool) -> list[tuple[list[str], str, str | bool]]:
    """Return what MicroK8s' template needs: tables, key, and value. `cdi`: CDI has to be switched on."""
    runtime = [*SECTION, "runtimes", NAME]
    present = at(config, *SECTION, "default_runtime_name")
    values: list[tuple[list[str], str, str | bool]] = [
        (runtime, "runtime_type", "io.containerd.runc.v2"),
        ([*runtime, "options"], "BinaryName", PROGRAM),
    ]
    if cdi:
        values.append(([*SECTION[:2]], "enable_cdi", True))
    if default or present == NAME:  # its own start puts runc in the place of the variable
        values.append(([*SECTION], "default_runtime_name", NAME if default else "${RUNTIME}"))
    return values

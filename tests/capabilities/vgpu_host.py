"""A virtual machine with a licensed vGPU, told as the text its probes print; and a way to ask one check about a changed
one."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Context, Outcome
from gpuprov.explain import all_checks
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.spec.model import Fragment, HostSpec
from tests.capabilities import contents_host

CHECKS = {check.id: check for check in all_checks()}

NOW = 1_800_000_000
GPU = "0000:06:00.0"
FUNCTION = f"{GPU} 0x10de 0x26b9 0x10de 0x1851 0x030200 nvidia\n"
GEFORCE = f"{GPU} 0x10de 0x2204 0x10de 0x1454 0x030000 \n"
DIRECTORY = "/etc/nvidia/ClientConfigToken"
NAME = "client_configuration_token_03-01-2026-10-00-00.tok"
SHA = "ab" * 32
BOUND = (
    "bar|0|0x00000000fc000000|0x00000000fcffffff|0x0000000000040200\n"
    "bar|1|0x0000380000000000|0x0000380fffffffff|0x000000000014220c\n"
    "bar|3|0x0000381000000000|0x0000381001ffffff|0x000000000014220c\n"
)
UNBOUND = BOUND.replace("bar|1|0x0000380000000000|0x0000380fffffffff", "bar|1|0x0000000000000000|0x0000000fffffffff")
REGISTERS_LOST = BOUND.replace(
    "bar|0|0x00000000fc000000|0x00000000fcffffff", "bar|0|0x0000000000000000|0x0000000000ffffff"
)
# As an H100 has them: region 0 is 64-bit, so the window on the memory is region 2; here it has lost even its size.
WIDE_LOST = (
    "bar|0|0x0000002000000000|0x0000002003ffffff|0x000000000014220c\n"
    "bar|2|0x0000000000000000|0x0000000000000000|0x0000000000000000\n"
    "bar|4|0x0000002004000000|0x0000002005ffffff|0x000000000014220c\n"
)
WIDE = WIDE_LOST.replace(
    "0000000000000000|0x0000000000000000|0x0000000000000000", "0000004000000000|0x0000005fffffffff|0x000000000014220c"
)


def machine(kind: str = "kvm", efi: bool = True, flag: int = 1, **dmi: str) -> str:
    """What the machine says of itself."""
    said = {"vendor": "", "product": "", "tag": ""} | dmi
    return f"kind|{kind}\n" + "".join(f"{k}|{v}\n" for k, v in said.items()) + "efi|1\n" * efi + f"flag|{flag}\n"


def function(
    kind: str = "vgpu", host: str = "580.95.02|r580_95", bars: str = BOUND, reset: str = "", address: str = GPU
) -> str:
    """One GPU as its PCI function."""
    return f"gpu|{address}|{kind}|{host if kind == 'vgpu' else '|'}|{reset}\n{bars}"


def token_row(mode: str = "744", owner: str = "root", sha: str = SHA, expires: str = "", name: str = NAME) -> str:
    return f"token|{mode}|{owner}|{sha}|{expires}|{DIRECTORY}/{name}\n"


def gridd(
    *settings: str,
    tokens: str | None = None,
    unit: tuple[str, str, str] = ("loaded", "active", "enabled"),
    log: str = "",
    program: bool = True,
    config: bool = True,
) -> str:
    """nvidia-gridd, its configuration, its tokens, its unit."""
    lines = ["program|/usr/bin/nvidia-gridd"] * program + ["config|"] * config
    lines += [f"setting|{one}" for one in settings or ("FeatureType=1",)] * config
    text = "\n".join(lines) + "\n" + (token_row() if tokens is None else tokens)
    text += f"LoadState|{unit[0]}\nActiveState|{unit[1]}\nUnitFileState|{unit[2]}\n"
    return text + (f"log|{log}\n" if log else "")


def licence(
    status: str = "Licensed (Expiry: 2027-1-16 9:5:7 GMT)", mode: str = "VGPU", bus: str = "00000000:06:00.0"
) -> str:
    """The lines of `nvidia-smi -q` that are kept of a GPU."""
    name = "        Product Name                      : NVIDIA Virtual Compute Server\n"
    product = f"{name}        License Status                    : {status}\n"
    head = f"GPU {bus}\n        Virtualization Mode               : {mode}\n"
    return head + ("    vGPU Software Licensed Product\n" + product if status else "")


GOOD: dict[str, Output | str] = {
    "machine": machine(),
    "gpu_functions": function(),
    "nvidia_functions": FUNCTION,
    "loaded_driver": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\n",
    "driver_libraries": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05\n",
    "container": "none\n",
    "clock": f"{NOW}\n",
    "contents": "",
    "unit_reads": "@reads\n",
    "receipt": "",
    "gridd": gridd(),
    "vgpu_licences": licence(),
}

PROBES: dict[str, Output | str] = {
    "machine": machine("none"),
    "gpu_functions": function(address="0000:19:00.0"),
    "gridd": gridd(),
    "vgpu_licences": licence("Licensed (Expiry: N/A)", bus="00000000:19:00.0"),
}
"""What these probes print on a bare host, and, of its GPU and licence, on one with a vGPU: for the host that is good in
everything."""


def ask(check_id: str, fragment: Fragment, host: HostSpec | None = None, /, **changed: Output | str) -> Outcome:
    """What the check says of the good machine with these probes changed; a probe that it does not declare is not
    given."""
    check = CHECKS[check_id]
    declared = {probe.name for probe in check.probes}
    assert set(changed) <= declared, f"{check_id} does not declare {set(changed) - declared}"
    texts = {name: text for name, text in {**GOOD, **changed}.items() if name in declared}
    given = {name: text if isinstance(text, Output) else Output(text) for name, text in texts.items()}
    ctx = Context(host or HostSpec(name="vm1"), fragment, Facts(given))
    if "contents" in declared:
        wanted = contents_host.resources(BY_NAME["vgpu_guest"], ctx)
        given["contents"] = Output(contents_host.own(wanted, None, str(texts["contents"])))
    outcome = check.run(Context(ctx.host, fragment, Facts(given)))
    assert outcome.found, "an answer without words"
    if outcome.status == "fail":
        assert outcome.expected
        assert outcome.fix
    return outcome


def token_text(**claims: object) -> str:
    """A client configuration token: a JSON web token with these claims. Its signature is nobody's."""
    parts = ({"alg": "RS256", "typ": "JWT"}, {"iss": "NLS Service Instance", "aud": "NLS Licensed Client", **claims})
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*coded, "c2lnbmF0dXJl"])


def write_token(folder: Path, name: str = NAME, **claims: object) -> Path:
    path = folder / name
    path.write_text(token_text(**claims), encoding="utf-8")
    return path

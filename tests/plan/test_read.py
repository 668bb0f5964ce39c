"""How Ansible reaches a host that was read: by what was judged, unless the inventory says otherwise."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.base import Change
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.fleet.specs import build_spec
from gpuprov.plan.planning import plans_of
from gpuprov.plan.read import KEPT, Reading, for_ansible, read
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import Result
from tests.capabilities import mig_host
from tests.capabilities.asking import good


@pytest.fixture(autouse=True)
def _no_ansible_cfg(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    for name in ("ANSIBLE_PYTHON_INTERPRETER", "ANSIBLE_EXECUTABLE"):
        monkeypatch.delenv(name, raising=False)
    with open(f"{tmp_path}/ansible.cfg", "w", encoding="utf-8"):
        monkeypatch.setenv("ANSIBLE_CONFIG", f"{tmp_path}/ansible.cfg")


def handed(pythons: str, **connection: object) -> dict[str, object]:
    reading = Reading(Facts({"python": Output(pythons)} if pythons else {}), ())
    raw, _ = for_ansible((RawHost(name="gpu1", connection=connection), HostSpec(name="gpu1")), reading)
    return raw.connection


def test_the_python_that_was_judged_is_the_one_that_ansible_uses() -> None:
    own = "login python 3.11 /usr/bin/python3\n"
    found = {"ansible_python_interpreter": "/usr/bin/python3", "ansible_shell_executable": "sh"}
    assert handed(own) == found
    assert handed(own, ansible_python_interpreter="auto_silent", ansible_user="ops") == found | {"ansible_user": "ops"}
    given = {"ansible_python_interpreter": "/opt/python", "ansible_shell_executable": "/bin/bash"}
    assert handed(own, **given) == given
    assert handed("") == {"ansible_shell_executable": "sh"}
    assert handed("login python 3.12 /opt/{{ lookup('pipe', 'id') }}\n") == {"ansible_shell_executable": "sh"}


def test_ansible_cfg_has_its_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_PYTHON_INTERPRETER", "/opt/python")
    assert "ansible_python_interpreter" not in handed("login python 3.11 /usr/bin/python3\n")


def test_what_was_read_is_let_go_but_for_what_plans_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan made of what is kept is the plan made of everything that the host said."""
    texts = {**good(), "mig": mig_host.state(mig_host.gpu(on=False)), "container": "none\n"}
    outputs = {name: text if isinstance(text, Output) else Output(text) for name, text in texts.items()}
    whole = Facts(outputs)
    raw = RawHost(
        name="gpu01",
        connection={"ansible_connection": "local"},
        values={"nvidia_driver": {"version": "580"}, "mig": {"layout": [{"gpus": "all", "instances": {"3g.40gb": 2}}]}},
    )
    spec, _ = build_spec(raw)
    assert spec is not None
    pair = (raw, spec)
    monkeypatch.setattr("gpuprov.plan.read.gather_each", lambda asked, on_done, **_: on_done("gpu01", whole))
    kept = read([pair])["gpu01"]
    assert 0 < len(kept.facts.outputs()) <= len(KEPT) < len(outputs)
    other = Result(
        host="gpu01",
        capability="nvidia_driver",
        check="nvidia_driver.version",
        status="fail",
        changes=(Change(kind="package", name="nvidia-driver", before="570", after="580"),),
    )
    (plan,), (same,) = (plans_of([pair], {"gpu01": Reading(facts, (other,))}) for facts in (kept.facts, whole))
    assert plan == same
    assert plan.mig, "the GPUs are drawn"
    assert "is reloaded if nothing holds it" in str(plan.reboot_reasons), "the loaded driver was seen"
    assert for_ansible(pair, kept) == for_ansible(pair, Reading(whole, ()))

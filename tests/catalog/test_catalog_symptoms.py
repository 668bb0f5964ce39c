"""Symptoms are found by the words a user has."""

from __future__ import annotations

from gpuprov.catalog import find_symptom
from gpuprov.catalog.verdicts import judge_sxid
from gpuprov.catalog.xids import find_resolution, read_xids_file
from gpuprov.explain import explain, in_text
from tests.rows import run_each


@run_each(
    ("words", "key"),
    [
        ("802", "fabric-not-ready"),
        ("error 802", "fabric-not-ready"),
        ("CUDAERRORSYSTEMNOTREADY", "fabric-not-ready"),
        ("cudaErrorFabricNotReady", "fabric-not-ready"),
        (
            "CUDA error: GPU fabric is not ready within the probe wait budget; application may retry "
            "(see CUDA_FABRIC_INIT_TIMEOUT_MS)",
            "fabric-not-ready",
        ),
        ("Driver/library version mismatch", "library-version-mismatch"),
        ("driver/LIBRARY version mismatch", "library-version-mismatch"),
        ("unsatisfied condition: cuda", "container-cuda-requirement"),
        (
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.9, ...",
            "container-cuda-requirement",
        ),
        ("Xid 79", "xid-79"),
        ("xid-79", "xid-79"),
        ("79", "xid-79"),
        ("NVRM: Xid (PCI:0000:65:00): 79, pid=1234, GPU has fallen off the bus.", "xid-79"),
        ("147", "xid-144-150"),
        ("bound to nouveau", "nouveau-bound"),
        ("SXid", "nvswitch-sxid"),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress", "nvswitch-sxid"),
        ("ncclSystemError: System call failed", "nccl-system-error"),
        ("CUDA error: all CUDA-capable devices are busy or unavailable", "compute-mode-closed"),
        ("Setting applications clocks is not supported for GPU 00000000:81:00.0.", "application-clocks-unsupported"),
        (
            "Provided power limit 50.00 W is not a valid power limit which should be between 200.00 W and 700.00 W",
            "power-limit-refused",
        ),
        ("ECC features not supported for GPU 00000000:01:00.0.", "ecc-unsupported"),
        ("HW Power Brake Slowdown", "power-brake"),
        ("SW Power Cap", "power-capped"),
    ],
)
def test_find_symptom(words: str, key: str) -> None:
    found = find_symptom(words)
    assert found
    assert found[0].key == key
    assert found[0].cause
    assert found[0].fix


def test_find_symptom_finds_no_more_than_it_should() -> None:
    assert [symptom.key for symptom in find_symptom("79")] == ["xid-79"]
    assert [symptom.key for symptom in find_symptom("802")] == ["fabric-not-ready"]
    assert find_symptom("Xid 802") == []
    assert find_symptom("  ") == []
    assert find_symptom("a perfectly healthy host") == []
    assert find_symptom("not found") == [], "which a hundred messages hold"


def test_every_resolution_of_an_xid_is_known() -> None:
    """And every one of NVIDIA's numbers that has an action has it here: 161 of 172."""
    named = {number: one.nvidia for one in read_xids_file().xids for number in one.xids}
    assert sorted(named) == list(range(1, 200)), "those after 172 are newer than the catalogue"
    assert sum(bool(name) for name in named.values()) == 161
    assert all(find_resolution(name) for name in named.values() if name)
    assert len(named) == sum(len(one.xids) for one in read_xids_file().xids), "an Xid stands twice"


@run_each(
    ("words", "cause", "fix"),
    [
        ("SXid 12028", "SXid 12028, egress nonposted PRIV error.", "Restart the virtual machine"),
        ("12020", "It is always fatal to the whole fabric.", "restart the host"),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "SXid 20034, LTSSM Fault Up.",
            "Fatal: reset all GPUs and NVSwitches together",
        ),
        ("SXid 11012", "The NVSwitch corrects it by itself.", "Nothing is to be done."),
        ("SXid 99999", "An NVSwitch reported an error.", "Fatal: see the Fabric Manager log"),
    ],
)
def test_an_sxid_is_explained_by_its_number(words: str, cause: str, fix: str) -> None:
    for lines in (dict(explain(words)[0].lines), dict(in_text(words.replace("12020", "SXid 12020"), "log")[0].lines)):
        assert cause in lines["cause"]
        assert lines["fix"].startswith(fix)


def test_each_sxid_has_one_row() -> None:
    known = read_xids_file().sxids
    numbers = [*known.names, *(number for row in known.quiet for number in row.numbers)]
    assert len(numbers) == len({*numbers})
    assert {*known.always_fatal} <= known.names.keys()


@run_each(
    ("number", "text", "action", "words"),
    [
        (11004, "Non-fatal, Link 3 ingress invalid ACL", "reboot", "Check the routes"),
        (12028, "Non-fatal, Link 32 egress nonposted PRIV error", "reboot", "Restart the virtual machine"),
        (19084, "Non-fatal, Link 29 AN1 Heartbeat Timeout Error", "reset", "Reset all GPUs and NVSwitches together"),
        (19084, "Fatal, Link 29 AN1 Heartbeat Timeout Error", "reset", "reset all GPUs and NVSwitches together"),
        (20012, "Non-fatal, Link 3 Broken/inconsistent connection", "none", "nothing is to be done"),
        (22013, "Non-fatal, Link 57 Minion Link DLREQ interrupt", "none", "nothing is to be done"),
        (23001, "Non-fatal, Link 3 ingress SRC-VC buffer overflow", "reboot", "restart the host"),
    ],
)
def test_an_sxid_that_stops_traffic_counts_though_its_line_says_non_fatal(
    number: int, text: str, action: str, words: str
) -> None:
    verdict = judge_sxid(number, text)
    assert (verdict.action, verdict.standing) == (action, "reported" if action == "none" else "unfit")
    assert verdict.words.startswith(words)

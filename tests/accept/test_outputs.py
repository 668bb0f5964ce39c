"""What the programs print. perftest, ibv_rc_pingpong and rping: Debian 12's, between two machines with rdma_rxe."""

from __future__ import annotations

import json

import pytest

from gpuprov.facts.probes.acceptance import outputs
from gpuprov.facts.probes.acceptance.outputs import Unreadable
from tests.accept.fleet import data, latency
from tests.rows import run_each

# nccl-tests on 8 H100, and NCCL's log between two hosts, in the form of https://github.com/NVIDIA/nccl/issues/1453
NCCL = """# nThread 1 nGpus 8 minBytes 17179869184 maxBytes 17179869184 step: 1048576(bytes) warmup iters: 5 iters: 20
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
 17179869184    4294967296     float     sum      -1    63110  272.22  476.39      0    63116  272.20  476.34      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 476.366
#
"""
NETWORK = """gpu1:4978:4980 [0] NCCL INFO Channel 00/0 : 16[0] -> 0[0] [receive] via NET/{net}/7{gdr}
gpu1:4978:4980 [0] NCCL INFO Channel 08/0 : 0[0] -> 8[0] [send] via NET/{net}/7{sent}
"""
# https://github.com/NVIDIA/nvbandwidth/blob/main/json_output.cpp
COPIES = {
    "nvbandwidth": {
        "CUDA Runtime Version": 12080,
        "Driver Version": "570.133.20",
        "testcases": [
            {
                "name": "host_to_device_memcpy_ce",
                "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
                "bandwidth_matrix": [["55.2", "55.3", "41.7", "55.1"]],
                "status": "Passed",
                "sum": 207.3,
            },
            {
                "name": "device_to_device_memcpy_read_ce",
                "bandwidth_matrix": [["N/A", "394.9"], ["395.2", "N/A"]],
                "status": "Passed",
            },
            {"name": "multinode_device_to_device_memcpy_read_ce", "status": "Waived"},
            {
                "name": "host_to_device_memcpy_sm",
                "status": "Error",
                "error": "[CUDA_ERROR_NOT_PERMITTED] operation not permitted",
            },
        ],
        "version": "v0.8",
    }
}
# DCGM 4: https://github.com/NVIDIA/DCGM/blob/master/testing/python3/test_utils.py; 3: nvvs/include/NvvsCommon.h
DIAG_4 = {
    "DCGM Diagnostic": {
        "test_categories": [
            {
                "category": "Deployment",
                "tests": [
                    {
                        "name": "software",
                        "results": [{"entity_group": "GPU", "entity_id": n, "status": "Pass"} for n in range(2)],
                        "test_summary": {"status": "Pass"},
                    }
                ],
            },
            {
                "category": "Hardware",
                "tests": [
                    {
                        "name": "memory",
                        "results": [
                            {"entity_group": "GPU", "entity_id": 0, "status": "Pass"},
                            {
                                "entity_group": "GPU",
                                "entity_id": 1,
                                "status": "Fail",
                                "warnings": [{"error_id": 17, "warning": "Uncorrectable ECC error"}],
                            },
                        ],
                    },
                    {"name": "pcie", "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Skip"}]},
                ],
            },
        ]
    },
    "metadata": {"version": "4.2.3"},
}
DIAG_3 = {
    "DCGM GPU Diagnostic": {
        "test_categories": [
            {
                "category": "Deployment",
                "tests": [{"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "PASS"}]}, None],
            }
        ],
        "version": "3.3.9",
    }
}


def test_real_outputs() -> None:
    assert outputs.bandwidth(data("write_bw"), 65536) == 0.029357
    assert outputs.latency(data("send_lat"), 2) == 8625.54
    assert outputs.pingpong(data("pingpong")) == 16221.66 / 2
    assert outputs.rping(data("rping")) == 5
    assert outputs.ibping(data("ibping"), 5) == 5


def test_a_warning_between_head_and_figures_is_no_figure() -> None:
    """perftest says it of a CPU whose frequency changes."""
    head, row = (
        "BW average[Gb/sec]   MsgRate[Mpps]\n",
        "Conflicting CPU frequency values detected: 1500.000000 != 3300.016000. CPU Frequency is not max.\n",
    )
    assert outputs.bandwidth(data("write_bw").replace(head, head + row), 65536) == 0.029357


@run_each(
    "text",
    [
        "",
        data("refused"),
        data("no_device"),
        data("write_bw").replace("BW average[Gb/sec]", "BW average[MB/sec]"),
        data("write_bw").replace("0.029357", "-nan"),
        data("write_bw").replace("0.029357", "0.00"),
        data("write_bw").replace(" 65536 ", " 65537 "),
        data("write_bw").rpartition(" 65536 ")[0],
        data("write_bw")[: data("write_bw").index("0.029357") + 3],
    ],
)
def test_what_is_not_there_whole_is_no_bandwidth(text: str) -> None:
    with pytest.raises(Unreadable) as caught:
        outputs.bandwidth(text, 65536)
    assert str(caught.value)


def test_the_complaint_is_the_line_that_tells_why() -> None:
    assert outputs.complaint(data("refused")).startswith("Unable to open file descriptor")
    assert outputs.complaint(data("no_device")) == "Unable to find the Infiniband/RoCE device"
    assert outputs.complaint(data("rping_refused")) == "connect error -1"
    assert outputs.complaint("") == "it ended without a figure"
    assert outputs.complaint("\x1b[31mCouldn't connect\x1b[0m") == "[31mCouldn't connect[0m"


def test_pings_that_are_lost() -> None:
    assert outputs.ibping(data("ibping").replace("5 received, 0%", "3 received, 40%"), 5) == 3
    assert outputs.rping("client DISCONNECT EVENT...\n") == 0
    for text in (
        "ibping: iberror: failed: Failed to open 'rxe_ens4' port '0'\n",
        data("ibping").replace("5 packets", "2 packets"),
    ):
        with pytest.raises(Unreadable):
            outputs.ibping(text, 5)


@run_each(
    "cells", ["2       1000          1.80          9.70          2.10  ", "2       1000          0.85           0.05"]
)
def test_a_latency_row_that_is_cut_or_has_no_median(cells: str) -> None:
    with pytest.raises(Unreadable):
        outputs.latency(latency(2.1).replace(latency(2.1).splitlines()[-2], f" {cells}"), 2)


def test_a_document_that_nests_too_deep_is_no_figure() -> None:
    with pytest.raises(Unreadable):
        outputs.copies('{"a":' * 5000, "host_to_device_memcpy_ce")


STREAM = "stress-ng: info:  [7] dispatching hogs: 2 stream\n" + "".join(
    f"stress-ng: info:  [8] stream: memory rate: {rate}, 1.5 Mflop/sec (instance {n})\n"
    for n, rate in enumerate(("1000.00 MB read/sec, 500.00 MB write/sec", "1500.00 MB/sec"))
)
"""A line as stress-ng 0.15 has it, and one of 0.11 (Ubuntu 20.04), which has one rate."""


def test_memory_bandwidth_is_that_of_all_instances() -> None:
    assert outputs.stream(STREAM) == (3.15, 2)
    value, count = outputs.stream(data("stress_ng"))
    assert count == 2
    assert 0 < value < 100


@run_each(
    "text",
    [
        STREAM.rpartition("stress-ng")[0],
        STREAM.replace("instance 1", "instance 0"),
        STREAM.replace("instance 1", "instance 2"),
        STREAM.replace("1500.00", "1.5.0"),
        STREAM.replace("dispatching", "x"),
        "stress-ng: info:  [7] dispatching hogs: 2 stream\nstress-ng: info: stream: run duration too short to "
        "determine memory rate\n",
        "",
    ],
)
def test_memory_bandwidth_of_some_instances_is_no_figure(text: str) -> None:
    with pytest.raises(Unreadable):
        outputs.stream(text)


def test_collectives() -> None:
    alone = outputs.collective(NCCL)
    assert (alone.busbw, alone.networks, alone.gdrdma) == (476.366, (), False)
    read = NETWORK.format(net="IBext_v8", gdr="/GDRDMA", sent="")
    assert outputs.collective(read + NCCL).gdrdma, "a host that does not read GPU memory sends without GDRDMA"
    assert outputs.collective(read + NCCL).networks == ("NET/IBext_v8",)
    socket = outputs.collective(NETWORK.format(net="Socket", gdr="", sent="") + NCCL)
    assert (socket.networks, socket.gdrdma) == (("NET/Socket",), False)
    spaced = outputs.collective(NETWORK.format(net="AWS Libfabric", gdr="/GDRDMA", sent="") + NCCL)
    assert (spaced.networks, spaced.gdrdma) == (("NET/AWS Libfabric",), True)
    assert not outputs.collective(read + NETWORK.format(net="IB", gdr="", sent="") + NCCL).gdrdma


@run_each(
    ("text", "told"),
    [
        (NCCL.replace(": 0 OK", ": 3 FAILED"), "3 values are wrong"),
        (NCCL.replace("476.366", "0"), "the bus bandwidth is 0"),
        (NCCL.replace("476.366", "-nan"), "Avg bus bandwidth    : -nan"),
        (
            "#\n# Reducing maxBytes to 14316557653 due to memory limitation\n" + NCCL.replace("476.366", "-nan"),
            "room for messages of 14316557653 bytes",
        ),
        (
            "gpu1:7:7 [0] NCCL INFO NET/Plugin: libnccl-net.so: cannot open shared object\nSegmentation fault (core "
            "dumped)\n",
            "^Segmentation fault",
        ),
        (NCCL.partition("# Out of")[0], "."),
        (
            "gpu1: Test NCCL failure common.cu:1005 'unhandled cuda error'\n .. gpu1 pid 11: Test failure "
            "common.cu:891\n",
            "NCCL failure",
        ),
    ],
)
def test_collectives_that_are_no_figure(text: str, told: str) -> None:
    with pytest.raises(Unreadable, match=told):
        outputs.collective(text)


def test_copies() -> None:
    text = "nvbandwidth Version: v0.8\n" + json.dumps(COPIES, indent=3)
    assert outputs.copies(text, "host_to_device_memcpy_ce") == 41.7
    assert outputs.copies(text, "device_to_device_memcpy_read_ce") == 394.9
    assert outputs.copies(text, "multinode_device_to_device_memcpy_read_ce") is None
    for case, told in (("host_to_device_memcpy_sm", "operation not permitted"), ("no_such_case", "no test case")):
        with pytest.raises(Unreadable, match=told):
            outputs.copies(text, case)
    with pytest.raises(Unreadable):
        outputs.copies(text[:-40], "host_to_device_memcpy_ce")
    with pytest.raises(Unreadable, match="No CUDA"):
        outputs.copies(json.dumps({"nvbandwidth": {"error": "No CUDA device"}}), "host_to_device_memcpy_ce")


def test_diagnostics() -> None:
    four, three = (
        outputs.diagnostics(json.dumps(DIAG_4)),
        outputs.diagnostics("Successfully ran diagnostic.\n" + json.dumps(DIAG_3, indent=1)),
    )
    assert (four.passed, four.skipped) == (1, ("pcie",))
    assert four.failed == ("memory: Fail on GPU 1 (Uncorrectable ECC error)",)
    assert (three.passed, three.failed) == (1, ())


@run_each(
    ("text", "told"),
    [
        ("Error: unable to establish a connection to the specified host: localhost\n", "unable to establish"),
        (json.dumps(DIAG_4)[:-60], "."),
        (
            json.dumps({"DCGM Diagnostic": {"runtime_error": "Detected unsupported Cuda version: 13.0"}}),
            "unsupported Cuda",
        ),
        (json.dumps({"DCGM Diagnostic": {"test_categories": []}}), "ran no test"),
    ],
)
def test_diagnostics_that_did_not_run(text: str, told: str) -> None:
    with pytest.raises(Unreadable, match=told):
        outputs.diagnostics(text)


def test_a_status_that_is_not_known_is_a_failure() -> None:
    odd = json.dumps(DIAG_3).replace('"PASS"', '"INCOMPLETE"')
    assert outputs.diagnostics(odd).failed


def test_a_warning_of_dcgm_in_plain_words_and_a_test_without_a_name() -> None:
    result = {"gpu_ids": "0", "status": "WARN", "warnings": "Persistence mode is off"}
    text = json.dumps(
        {"DCGM GPU Diagnostic": {"test_categories": [{"category": "x", "tests": [{"results": [result]}]}]}}
    )
    assert outputs.diagnostics(text).failed == ("a test: WARN on GPU 0 (Persistence mode is off)",)

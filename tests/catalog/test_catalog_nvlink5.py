"""NVIDIA's decode table of Xids 144 to 150: its rows leave nothing open, and a line gets the answer of the one that
knows it."""

from __future__ import annotations

from itertools import combinations_with_replacement

from gpuprov.catalog.xids import Nvlink5, find_action, find_investigation, find_resolution, read_xids_file
from tests.rows import run_each

ROWS = read_xids_file().nvlink5


def meet(one: str, other: str) -> bool:
    """Whether there is a number with both patterns of bits."""
    return all("-" in (a, b) or a == b for a, b in zip(one, other, strict=True))


def same(one: Nvlink5, other: Nvlink5) -> bool:
    """Whether one line could be of both rows, whichever driver wrote it."""
    status = not one.status or not other.status or set(one.status) & set(other.status)
    forms = any(meet(a, b) for a in (one.before, one.since) for b in (other.before, other.since))
    return bool(
        one.xid == other.xid
        and set(one.units) & set(other.units)
        and one.severity == other.severity
        and status
        and forms
    )


def test_no_line_has_two_answers() -> None:
    assert {len(bits) for row in ROWS for bits in (row.before, row.since)} == {32}
    told = [
        (one, other)
        for one, other in combinations_with_replacement(ROWS, 2)
        if same(one, other) and (one.nvidia, one.look) != (other.nvidia, other.look)
    ]
    assert told == []


@run_each("form", ["before", "since"])
def test_a_line_of_each_row_gets_its_answer(form: str) -> None:
    for row in ROWS:
        info = int(getattr(row, form).replace("-", "0"), 2)
        for unit in row.units:
            for status in row.status or (0,):
                text = f"{unit} {row.severity} XC0 i0 Link 00 (0x{info:08x} 0x{status:08x} 0x00000000)"
                assert find_action(row.xid, text) == row.nvidia, text
                assert find_resolution(row.nvidia) is not None


@run_each(
    ("number", "text", "answer"),
    [
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x0)", "WORKFLOW_NVLINK5_ERR"),
        (149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03", "IGNORE"),
        (145, "RLW_RXPIPE Fatal XC0 i0 Link 00 (0x0409a0c2 0x00000002)", "WORKFLOW_NVLINK5_ERR"),
        (145, "RLW_RXPIPE Nonfatal XC0 i0 Link 00 (0x000004c2 0x00000002)", "RESET_GPU"),
        (145, "RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008 0x00000000)", "XID_154_EVAL"),
        (145, "RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x0000000c 0x00000000)", "IGNORE"),
        (79, "GPU has fallen off the bus.", ""),
    ],
)
def test_lines_of_hosts_and_those_that_no_row_knows(number: int, text: str, answer: str) -> None:
    assert find_action(number, text) == answer


@run_each(
    ("text", "look"),
    [
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x025025c6 0x0 0x0 0x0 0x0 0x0)", "INVESTIGATE_PEER_DEVICE"),
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 16 (0x004505c6 0x00000000)", "INVESTIGATE_LINK_SI"),
        ("NETIR_LINK_DOWN Fatal XC0 i0 Link 16 (0x02a00011 0x00000000)", "INVESTIGATE_LINK_SI_AND_CABLES"),
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 16 (0x000005c6 0x00000000)", "SYMPATHETIC_REPORT_SOLO"),
        ("NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00000226 0x00000002)", "INVESTIGATE_LINK_SI_AND_CABLES"),
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x0)", ""),
    ],
)
def test_a_line_says_where_nvidia_looks_for_its_cause(text: str, look: str) -> None:
    """The peer, the cable, software: by the bits of the line (leptonai/gpud, matcher_test.go)."""
    found = find_investigation(149, text)
    assert (found.key if found else "") == look
    known = {entry.key for entry in read_xids_file().investigations}
    assert {row.look for row in ROWS} - {""} == known

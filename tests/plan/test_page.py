"""The plan as a page: what an operator must not miss is on top, texts of hosts are texts, and a thousand hosts are one
page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

from msgspec.structs import replace

from gpuprov.capabilities.mig.partitions import Part, Partition
from gpuprov.plan import HostPlan, page, sentence
from gpuprov.plan.model import Item
from gpuprov.plan.saved import masked
from gpuprov.report.page import About
from gpuprov.spec.model import HostSpec, RawHost
from tests.plan.test_summary import DOWN, IDLE, JOB, ROOT, many
from tests.rows import run_each

DIFF = "--- before\n+++ after\n@@ -1 +1,2 @@\n-old\n+new\n+more"
CUT = Partition(
    index=0,
    gpu="GPU 0 (19:00.0)",
    model="H100",
    grid=8,
    enabled_before=True,
    enabled_after=True,
    before=(Part(start=6, size=1, name="1g.10gb", fate="destroyed"),),
    after=(Part(start=0, size=4, name="3g.40gb", fate="created"),),
)
FULL = replace(
    DOWN,
    mig=(CUT,),
    diffs=(Item(kind="file", name="/etc/x", after="kernel: Write", diff=DIFF),),
    changes=(*DOWN.changes, Item(kind="client", name="dcgm (nvidia-dcgm.service 7)", after="stopped")),
    reboot_reasons=("the kernel command line changes",),
)


class Reader(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def test_the_sentence_is_the_verdict_and_what_is_blocked_comes_first() -> None:
    plans = [
        *many(FULL, 2),
        replace(FULL, host="busy", blocked=(JOB,)),
        replace(FULL, host="root", blocked=(ROOT,)),
        IDLE,
    ]
    text = page.render(plans, About(inventory="inventory.yaml"), "gpuprov apply friday.plan")
    assert f"<h1>{sentence(plans).replace('->', chr(0x2192))}</h1>" in text
    places = [text.index(f'id="{name}"') for name in ("blocked", "reboots", "clients", "changes", "hosts")]
    assert places == sorted(places)
    told = Reader(text).text
    assert "Jobs run here, and are left alone: python3 pid 7" in told
    assert "gpuprov apply friday.plan" in told


def test_a_host_that_is_out_of_service_is_told_apart() -> None:
    """As the text of a plan does: it gets no jobs, and nobody else says so."""
    out = "drained by gpuprov since 2026-11-20 UTC (Slurm, run fri): it gets no jobs; gpuprov undrain ... --run fri"
    text = page.render([replace(IDLE, host="idle", out=out), replace(FULL, host="full", out="another <b>note"), IDLE])
    section = text.partition('<section id="out">')[2].partition("</section>")[0]
    told = Reader(section).text
    assert out in told
    assert "another <b>note" in told
    assert section.count("<article") == 2
    assert text.count(out) > 1, "with the host, too"
    assert 'id="out"' not in page.render([IDLE, FULL])


def test_copy_buttons_give_a_limit_that_a_shell_takes() -> None:
    plans = [replace(FULL, host=name) for name in ("gpu001", "gpu002", "gpu003", "a;reboot")]
    copies = [more.get("data-copy") for tag, more in Reader(page.render(plans)).tags if tag == "button"]
    assert "--limit 'gpu[001:003],a;reboot'" in copies


def test_a_command_to_apply_is_offered_where_there_is_something_to_apply() -> None:
    assert "<h2>Apply it</h2>" in page.render([FULL], None, "gpuprov apply friday.plan")
    assert "<h2>Apply it</h2>" not in page.render([replace(FULL, blocked=(ROOT,))], None, "gpuprov apply friday.plan")
    assert "<h2>Apply it</h2>" not in page.render([IDLE], None, "gpuprov apply friday.plan")


def test_pictures_and_diffs_have_their_signs_beside_their_colours() -> None:
    text = page.render([FULL])
    assert re.search(r'<li class="s1 destroyed" title="1g.10gb"><span><b>-</b> 1g\.<wbr>10gb', text)
    assert re.search(r'<li class="s4 created" title="3g.40gb"><span><b>\+</b> 3g\.<wbr>40gb', text)
    assert '<span class="remove">-old\n</span>' in text
    assert '<span class="add">+new\n</span>' in text
    assert '<span class="soft">@@ -1 +1,2 @@\n</span>' in text
    assert "--- before" not in text, "which says nothing"


def test_a_refused_host_without_changes_has_no_empty_plan() -> None:
    text = page.render([HostPlan(host="twin", blocked=(ROOT,))])
    assert 'id="blocked"' in text
    assert 'id="changes"' not in text
    assert 'id="changes"' in page.render([replace(FULL, blocked=(ROOT,))])


EVIL = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "{{ 7 * 7 }}",
    '"><b onclick=x>',
    "\x1b[2J\u202egpu",
]


@run_each("evil", EVIL)
def test_texts_of_hosts_are_texts(evil: str) -> None:
    job = replace(JOB, found=evil, fix=evil, expected=evil, evidence=evil)
    cut = replace(CUT, gpu=evil, model=evil, after=(Part(start=0, size=4, name=evil),))
    diff = Item(kind="file", name=evil, diff=f"+{evil}")
    change = Item(kind="package", name=evil, before=evil, after=evil)
    plan = replace(
        FULL, host=evil, run={evil: evil}, blocked=(job,), places={job.check: evil}, mig=(cut,), diffs=(diff,),
        changes=(change,),
        reboot_reasons=(evil,), last_apply=evil, unpredicted=(evil,), versions={evil: evil},
    )  # fmt: skip
    away = HostPlan(host=f"{evil}2", unreachable=evil)
    text = page.render([plan, away, replace(IDLE, unmended=(job,))], About(inventory=evil, command=evil), evil)
    plain = Reader(page.render([replace(FULL, host="a", blocked=(JOB,)), replace(away, host="b"), IDLE]))
    found = Reader(text)
    assert {tag for tag, _ in found.tags} <= {tag for tag, _ in plain.tags} | {
        "p",
        "dl",
        "dt",
        "dd",
        "a",
        "ul",
        "details",
    }
    assert not [name for _, more in found.tags for name in more if name.startswith("on") or name == "style"]
    assert "49" not in found.text
    assert not re.search("[\x1b\u202e]", text)


def test_a_thousand_hosts_are_a_page_of_a_megabyte() -> None:
    plans = [replace(FULL, host=f"gpu{number:04}", last_apply=f"{number} days ago") for number in range(1000)]
    text = page.render(plans)
    assert len(text) < 1_500_000
    assert text.count('class="card group') == 1, "they have one plan"
    data = json.loads(text[text.index('id="data">') + 10 :].partition("</script>")[0])
    assert len(data["hosts"]) == 1000
    assert len({host[0] for host in data["hosts"]}) == 1000


def test_scattered_hosts_of_one_plan_are_named_whole_once_for_each_button() -> None:
    """Their names are long, as nothing of them folds: they stand where they are copied, not beside each host."""
    plans = [replace(FULL if number % 2 else IDLE, host=f"gpu{number:04}") for number in range(2000)]
    text = page.render(plans)
    assert len(text) < 1_000_000
    shown = re.findall(r'<span class="who">([^<]*)<', text)
    assert shown
    assert max(map(len, shown)) < 200


def test_secrets_of_the_inventory_are_in_no_page() -> None:
    raw = RawHost(name="gpu1", connection={"ansible_become_password": "swordfish"})
    plan = replace(FULL, diffs=(Item(kind="file", name="/etc/x", diff="+password swordfish"),))
    (clean,) = masked([plan], [(raw, HostSpec(name="gpu1"))])
    text = page.render([clean])
    assert "swordfish" not in text
    assert "+password ********" in text

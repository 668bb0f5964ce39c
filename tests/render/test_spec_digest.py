"""What is asked of a capability, as a word that a receipt keeps."""

from __future__ import annotations

from gpuprov.capabilities.persistence.fragment import Persistence
from gpuprov.render import digests
from gpuprov.render.spec_digest import is_changed, is_comparable
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, HostSpec


def of(block: Fragment, name: str = "kernel", **site: object) -> str:
    return digests(HostSpec(name="gpu1", capabilities={name: block}, site=site))[name]


def test_what_is_said_at_its_default_says_nothing() -> None:
    assert of(Kernel()) == of(Kernel(blacklist=()))
    assert of(Persistence(), "persistence") == of(Persistence(mode="auto"), "persistence")


def test_each_field_counts_and_the_order_of_keys_does_not() -> None:
    assert len({of(Kernel()), of(Kernel(blacklist=("nouveau",))), of(Kernel(modules_load=("ib_umad",)))}) == 3
    assert of(Kernel(sysctl={"a": 1, "b": 2})) == of(Kernel(sysctl={"b": 2, "a": 1}))


def test_what_the_site_set_for_it_counts_and_for_others_does_not() -> None:
    assert of(Kernel(), kernel_initramfs=False) != of(Kernel())
    assert of(Kernel(), host_reboot_timeout=60) == of(Kernel())


def test_only_what_was_made_in_this_way_is_compared() -> None:
    now, other = of(Kernel()), of(Kernel(blacklist=("nouveau",)))
    assert is_comparable(now)
    assert (is_changed(now, now), is_changed(other, now), is_changed("2:a:b:c", now)) == (False, True, False)

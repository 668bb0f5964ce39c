"""Further packages that simulated hosts' repositories offer."""

from __future__ import annotations

from gpuprov.simulate.distributions import Distribution, Repository
from gpuprov.simulate.standins import extras_cuda, extras_dcgm, extras_fabric, extras_gds
from gpuprov.simulate.standins.extra import LIBDIR, Extra, Form, Packaged
from gpuprov.simulate.standins.model import Standin

EXTRAS: tuple[Extra, ...] = (*extras_cuda.EXTRAS, *extras_dcgm.EXTRAS, *extras_fabric.EXTRAS, *extras_gds.EXTRAS)


def extras(distribution: Distribution, repository: Repository) -> list[Standin]:
    """Return those that a repository of a distribution offers."""
    form: Form = "rpm" if distribution.rpms else "deb"
    made = []
    for extra in EXTRAS:
        packaged = extra.rpm if form == "rpm" else extra.deb
        if packaged is None or extra.repository != repository:
            continue
        if extra.distributions and distribution.key not in extra.distributions:
            continue
        made.append(_standin(extra, packaged, form, distribution))
    return made


def _standin(extra: Extra, packaged: Packaged, form: Form, distribution: Distribution) -> Standin:
    version = packaged.version.replace("{tag}", distribution.tag)
    places = {"version": version, "libdir": LIBDIR[form]}
    files = extra.files(form) if callable(extra.files) else extra.files

    def filled(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(value.format(**places) for value in values)

    return Standin(
        name=packaged.name or extra.name,
        version=version,
        summary=extra.summary,
        epoch=extra.epoch,
        files={path.format(**places): file for path, file in files.items()},
        requires=filled(packaged.requires),
        provides=filled(packaged.provides),
        conflicts=filled(packaged.conflicts),
        scripts=packaged.scripts,
    )

"""The page of `gpuprov health`: whether hosts are fit for work, the action to take, and the findings."""

from collections.abc import Mapping, Sequence

from gpuprov.inventory.names import fold_names as names
from gpuprov.report import html
from gpuprov.report.health import count_fits, order
from gpuprov.report.page import About, Headline, State
from gpuprov.report.states import WORDS
from gpuprov.verify.evaluate import Result
from gpuprov.verify.fitness import Fitness, fitness

# Tooltip of a host's square, by its state.
HOSTS: Mapping[State, str] = {
    **WORDS,
    "fail": "not fit for work",
    "unproven": "not proven to be fit",
    "right": "fit for work",
}


def state(fitness: Fitness) -> State:
    """Return the state of one host, from its fitness, in line with the headline."""
    if fitness.fit == "not proven":
        statuses = {result.status for result in fitness.unproven}
        return "gone" if "unreachable" in statuses else "error" if "error" in statuses else "unproven"
    return "right" if fitness.fit == "yes" else "fail"


def render(results: Sequence[Result], about: About | None = None, *, verbose: bool = False) -> str:
    """Return the page, from results of health checks. The same results give the same text."""
    judged = sorted(fitness(results), key=order)
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Fitness]] = {}
    for entry in judged:
        if entry.fit != "yes":
            causes = tuple((cause.check, cause.fix) for cause in entry.causes)
            groups.setdefault((entry.sentence, causes), []).append(entry)
    return html.render(
        results,
        "gpuprov health",
        verbose=verbose,
        about=about,
        template="health.html.j2",
        page_headline=headline(judged),
        words=HOSTS,
        fixed={entry.host: state(entry) for entry in judged},
        boots=False,
        unfit=[
            (sentence, names([entry.host for entry in alike]), alike, state(alike[0]))
            for (sentence, _), alike in groups.items()
        ],
    )


def headline(judged: Sequence[Fitness]) -> Headline:
    """Return the answer as a sentence about hosts, then how many have each answer."""
    many, fit, kinds = len(judged), sum(entry.fit == "yes" for entry in judged), count_fits(judged)
    more = f"{'; '.join(kinds)}." if len(kinds) > 1 else ""
    if not many:
        return Headline(state="unproven", sentence="No host was judged.")
    bad = sum(entry.fit in ("until", "no") for entry in judged)
    state: State = "fail" if bad else "right" if fit == many else "unproven"
    if many == 1:
        return Headline(state=state, sentence=f"{judged[0].host} is {judged[0].sentence}")
    if fit == many:
        return Headline(state=state, sentence=f"All {many:,} hosts are fit for work")
    open_ = bad or many - fit
    what = "not fit for work" if bad else "not proven to be fit for work"
    return Headline(
        state=state, sentence=f"{open_:,} of {many:,} hosts {'is' if open_ == 1 else 'are'} {what}", more=more
    )

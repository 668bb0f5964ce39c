"""The group `gpuprov fleet`: a fleet as files, cut into jobs for any machine."""

import click

from gpuprov.cli.sections import Ordered
from gpuprov.cli.slices import fold, freeze, slice_, work
from gpuprov.cli.worker import worker


@click.group(cls=Ordered, short_help="Split a large fleet into jobs, work on them anywhere, fold the results.")
def fleet() -> None:
    """Split a large fleet into jobs, work on them anywhere, and fold the results into one report.

    \b
    Example: gpuprov fleet freeze inventory.yaml --out fleet.json
             gpuprov fleet slice fleet.json --size 50 --by rack --out jobs
             gpuprov fleet work jobs/job-0001.json --results results --act apply
             gpuprov fleet fold results --fleet fleet.json
    """


for command in (freeze, slice_, work, fold, worker):
    fleet.add_command(command)

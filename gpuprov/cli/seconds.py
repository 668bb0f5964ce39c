"""A time on the command line."""

import math
from typing import Any

import click

WEEK = 7 * 24 * 3600


class Seconds(click.FloatRange):
    """A time that ends: no infinity, no NaN, and no more than a week."""

    name = "number of seconds"

    def __init__(self, least: float) -> None:
        super().__init__(min=least, max=WEEK)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is no number of seconds", param, ctx)
        return number

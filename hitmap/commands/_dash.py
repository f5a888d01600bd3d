"""Arguments that begin with a dash, as the window `-1h/now` does, told from options."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

_AGO = re.compile(r"-\d")


class WindowCommand(click.Command):
    """Takes what begins with a dash and a digit as an argument: no option of hitmap's does. Others that it does not
    know are refused as ever."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _windows_last(args, _valued(self)))


class IdCommand(click.Command):
    """Says how an argument that begins with a dash is written, where it was taken for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            told = f"{error.message} For an id that begins with a dash write {ctx.command_path} -- ID."
            raise click.NoSuchOption(error.option_name, told, error.possibilities, error.ctx) from None


def _valued(command: click.Command) -> set[str]:
    """The options that take the next word as their value."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {name for option in options if not option.is_flag for name in option.opts}


def _windows_last(args: Sequence[str], valued: set[str]) -> list[str]:
    """The words with such arguments behind a `--`, which ends the options."""
    end = args.index("--") if "--" in args else len(args)
    options: list[str] = []
    windows: list[str] = []
    for word in args[:end]:
        is_value = bool(options) and options[-1] in valued
        (windows if _AGO.match(word) and not is_value else options).append(word)
    return [*options, "--", *windows, *args[end + 1 :]] if windows else list(args)

"""The one exception a person is meant to read."""

from __future__ import annotations


class UserError(Exception):
    """Something the person running hitmap can put right.

    The message is one line that says what is wrong and what to do. The command line prints it without a
    traceback and exits with `exit_code`.
    """

    exit_code = 1


class UsageError(UserError):
    """The call itself is wrong: an unknown column, a malformed time, two options that exclude each other."""

    exit_code = 2

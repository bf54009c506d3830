"""The one exception that a user is meant to read."""

from __future__ import annotations


class UserError(Exception):
    """Wrong use, told in one line: the thing at fault, what was expected, what came, how to mend it.

    The command line prints it without a traceback (unless `--debug`) and exits with code 2.
    """

    def __init__(self, problem: str, *, mend: str | None = None) -> None:
        self.problem = problem
        self.mend = mend
        super().__init__(problem if mend is None else f"{problem}; {mend}")


class ProofError(Exception):
    """A compiled model does not equal its eager self. Nothing was written. Exit code 1."""


class CheckError(UserError):
    """A package's files are not those that its manifest describes. Exit code 1: a check failed, the use is right."""

"""Errors that are the user's to mend, and how a program ends with them."""

import sys

from absl import app, logging


class UserError(Exception):
    """A mistake in a file, flag or configuration. The message is one line: the culprit, the remedy."""


def run_program(main) -> None:
    """Runs `main(argv)` under absl; a UserError ends in one line on stderr and exit code 2.

    Args:
        main: function of the positional command-line arguments, as for `absl.app.run`.
    """

    def guarded(argv):
        try:
            return main(argv)
        except UserError as error:
            # gin adds in which call an error came up: of no use to the user.
            text = str(error).split("\n  In call to configurable")[0]
            print(f"error: {' '.join(text.split())}", file=sys.stderr)
            sys.exit(2)

    logging.set_verbosity(logging.WARNING)
    app.run(guarded)

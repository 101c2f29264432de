"""Errors that are the user's to mend, and how a program ends with them."""

import sys

from absl import app, flags, logging


class UserError(Exception):
    """A mistake in a file, flag or configuration. The message is one line: the culprit, the remedy."""


def run_program(main) -> None:
    """Runs `main(argv)` under absl; a UserError ends in one line on stderr and exit code 2.

    So do flags that don't exist or have impossible values, and files that can't be read or written.

    Args:
        main: function of the positional command-line arguments, as for `absl.app.run`.
    """

    def guarded(argv):
        try:
            return main(argv)
        except UserError as error:
            # gin adds in which call an error came up: of no use to the user.
            _end(str(error).split("\n  In call to configurable")[0])
        except OSError as error:
            _end(
                f"{error.filename or 'a file'}: {error.strerror or error}; free or change it, or name another"
            )
        except KeyboardInterrupt:
            _end("interrupted", 130)

    def parse(argv):
        try:
            return flags.FLAGS(argv)
        except flags.Error as error:
            _end(f"{error}; --help lists the flags")

    logging.set_verbosity(logging.WARNING)
    app.run(guarded, flags_parser=parse)


def _end(text: str, code: int = 2) -> None:
    print(f"error: {' '.join(text.split())}", file=sys.stderr)
    sys.exit(code)

#!/usr/bin/env bash
# Sets up the environment, then checks the code's style and runs the tests, the files of tests in two processes.
# Arguments go to pytest (-n 0: one process).
set -euo pipefail
root="$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
python="$("$root/scripts/environment.sh")"
cd "$root"
status=0
"$python" -m ruff check . || status=1
"$python" -m ruff format --check . || status=1
"$python" -m pytest -n 2 --dist loadfile "$@" || status=$? # pytest fails when it finds no test to run
exit "$status"

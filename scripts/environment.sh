#!/usr/bin/env bash
# Makes or reuses the project's virtual environment and prints the path of its Python; messages go to stderr.
#
#   python="$(scripts/environment.sh)"        .venv with requirements.txt, or what the variables below say
#   scripts/environment.sh --find python3.12  only prints a usable interpreter of that name, or fails
#
# HYPERTRANSFORMER_VENV          folder of the environment (default: .venv in the project)
# HYPERTRANSFORMER_PYTHON        interpreter, a name or a path (default: the first usable of the list below)
# HYPERTRANSFORMER_REQUIREMENTS  requirements file (default: requirements.txt on Python 3.9 to 3.11, else
#                                requirements-latest.txt)
# HYPERTRANSFORMER_TENSORFLOW    distribution in the place of tensorflow-cpu, e.g. tensorflow[and-cuda]
set -euo pipefail

names=(python3.11 python3.10 python3.9 python3 python3.12 python3.13 python)
pip_version=26.0.1 # the last for Python 3.9; those that come with old Pythons don't know today's wheels
root="$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
venv="${HYPERTRANSFORMER_VENV:-$root/.venv}"
case "$venv" in /*) ;; *) venv="$PWD/$venv" ;; esac
python="$venv/bin/python"
made="$venv/.made-by-hypertransformer"       # this script made the folder, so it may make it anew
stamp="$venv/.hypertransformer-requirements" # what is installed; written last of all
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONNOUSERSITE=1
unset PYTHONHOME

say() { printf 'environment: %s\n' "$*" >&2; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

# Prints an interpreter's path; a reason and status 3 when it runs but can't serve.
probe='
import os
import sys
version = "%d.%d" % sys.version_info[:2]
if not (3, 9) <= sys.version_info[:2] <= (3, 13):
    print("is Python " + version + ", not 3.9 to 3.13")
    sys.exit(3)
if sys.maxsize < 2**32:
    print("is a 32-bit Python, for which there is no TensorFlow")
    sys.exit(3)
try:
    import ensurepip
    import venv
except ImportError:
    print("lacks the venv module (on Debian and Ubuntu: apt install python" + version + "-venv)")
    sys.exit(3)
# From an activated environment, its parent: this script may be about to make that environment anew.
active = sys.prefix != sys.base_prefix
print(os.path.join(sys.base_prefix, "bin", "python" + version) if active else sys.executable)
'

# Programs of a name on PATH, then beside the Pythons on PATH: version managers keep them in sibling folders.
candidates() {
  local other prefix
  case "$1" in
    */*) printf '%s\n' "$1" ;;
    *)
      type -aP "$1" || true
      for other in $(type -aP python3 python); do
        prefix="$("$other" -E -c 'import sys; print(sys.base_prefix)' 2>/dev/null)" || continue
        ls -d "${prefix%/*}"/*/bin/"$1" 2>/dev/null || true
      done
      ;;
  esac
}

# Sets `found` to the first interpreter that runs and can make environments; `rejected` says why others can't.
found=""
rejected=""
find_python() {
  local name candidate answer status
  for name in "$@"; do
    while IFS= read -r candidate; do
      status=0
      answer="$("$candidate" -E -c "$probe" 2>/dev/null)" || status=$?
      if [ "$status" = 0 ]; then
        found="$answer"
        return 0
      fi
      if [ "$status" = 3 ]; then rejected="$rejected; $candidate $answer"; fi
    done < <(candidates "$name" | awk '!seen[$0]++')
  done
  return 1
}

version_of() { # "3.11" for a Python that the project runs on, else nothing and a failure
  "$1" -E -c '
import sys
version = sys.version_info[:2]
print("%d.%d" % version) if (3, 9) <= version <= (3, 13) else sys.exit(1)
' 2>/dev/null
}

requirements_file() { # of a Python version
  case "$1" in
    3.9 | 3.10 | 3.11) printf '%s\n' "${HYPERTRANSFORMER_REQUIREMENTS:-$root/requirements.txt}" ;;
    *) printf '%s\n' "${HYPERTRANSFORMER_REQUIREMENTS:-$root/requirements-latest.txt}" ;;
  esac
}

requirements() { # of a Python version: what shall be installed, as text
  printf '# Python %s\n' "$1"
  sed -E "s#^tensorflow(-cpu)?==#${HYPERTRANSFORMER_TENSORFLOW:-tensorflow\1}==#" "$(requirements_file "$1")"
}

install() {
  local started=$SECONDS
  if [ -e "$made" ] || [ ! -e "$venv" ] || [ -z "$(ls -A "$venv")" ]; then
    if [ -z "$found" ]; then
      find_python "${names[@]}" || fail "no usable Python 3.9 to 3.13 on PATH$rejected." \
        "Install Python 3.11, or name an interpreter with HYPERTRANSFORMER_PYTHON=/path/to/python"
    fi
    version="$(version_of "$found")"
    say "Python $version ($found) -> $venv"
    rm -rf -- "$venv"
    mkdir -p -- "$venv"
    : >"$made"
    "$found" -m venv "$venv"
    "$python" -m pip install -qq "pip==$pip_version" ||
      fail "pip could not be installed: its message is above (no network? see BUILD.md)"
  elif [ -z "$version" ]; then
    fail "$venv is no environment of ${HYPERTRANSFORMER_PYTHON:-a working Python 3.9 to 3.13}" \
      "and was not made by this script: remove it, or name another folder with HYPERTRANSFORMER_VENV"
  fi
  say "installing $(basename "$(requirements_file "$version")") (one to four minutes the first time)"
  rm -f -- "$stamp"
  requirements "$version" >"$stamp.partial"
  "$python" -m pip install -qq -r "$stamp.partial" ||
    fail "the requirements could not be installed: pip's message is above (no network? see BUILD.md)"
  mv -f -- "$stamp.partial" "$stamp"
  say "ready after $((SECONDS - started)) s"
}

# Sets `version`, of the environment there is (empty: none, broken, or another Python than the one asked for).
ready() {
  version="$(version_of "$python" || true)"
  if [ -n "$found" ] && [ "$version" != "$(version_of "$found")" ]; then version=""; fi
  [ -n "$version" ] && [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$(requirements "$version")" ]
}

lock() { # two scripts started at once: the second waits; the lock goes with this process
  command -v flock >/dev/null || return 0
  mkdir -p -- "$(dirname -- "$venv")"
  exec 9>"$venv.lock"
  flock -n 9 && return
  say "waiting for another installation into $venv"
  flock 9
}

main() {
  if [ "${1:-}" = --find ]; then
    find_python "$2" || fail "no usable $2$rejected"
    printf '%s\n' "$found"
    return
  fi
  local file="${HYPERTRANSFORMER_REQUIREMENTS:-$root/requirements.txt}" wanted="${HYPERTRANSFORMER_PYTHON:-}"
  [ -r "$file" ] || fail "there is no requirements file $file: mend HYPERTRANSFORMER_REQUIREMENTS"
  if [ -n "$wanted" ]; then
    find_python "$wanted" || fail "HYPERTRANSFORMER_PYTHON=$wanted is no usable Python 3.9 to 3.13$rejected"
  fi
  if ! ready; then
    lock
    ready || install
  fi
  printf '%s\n' "$python"
}

main "$@"

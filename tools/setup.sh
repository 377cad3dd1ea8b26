#!/bin/sh
# Finds the newest fitting Python and hands over to setup.py, which does the work.
# PYTHON=/path/to/python overrides the search.
set -eu
cd "$(dirname "$0")/.."

# A Python fits when it really runs (a version manager's shim may not), is new enough and can
# make virtual environments, which Debian packages apart.
fits() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

for candidate in ${PYTHON:-python3.14 python3.13 python3.12 python3.11 python3 python}; do
    if fits "$candidate"; then
        exec "$candidate" tools/setup.py
    fi
done
echo "Spindown needs Python 3.11 or newer with its venv module, and found none" \
    "(looked for: ${PYTHON:-python3.14, python3.13, python3.12, python3.11, python3, python});" \
    "install one, for example the packages python3.12 and python3.12-venv, or set PYTHON=/path/to/python3." >&2
exit 1

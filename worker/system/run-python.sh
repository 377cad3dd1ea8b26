#!/bin/sh
# The Python of the user's code; see run-code.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
exec "$here/bin/run-code" "$here/run/bin/python" "$@"


# Nothing is left to install on an image that was baked with just this.
if [ "$(cat @stamp_file@ 2>/dev/null)" != @stamp@ ]; then

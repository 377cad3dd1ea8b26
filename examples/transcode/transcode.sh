#!/bin/sh
# Make an MP4 of one video. Spindown names the files in the environment. Exit status 65 says that the
# video is bad, so that it fails alone; any other but 0 that the attempt failed, and is made again.
set -u
out="$SPINDOWN_ITEM_OUTPUT/video.mp4"

command -v ffmpeg >/dev/null || exit 69

ffmpeg -nostdin -hide_banner -loglevel error -y -i "$SPINDOWN_INPUT" \
    -map 0:v:0 -map '0:a:0?' -c:v libx264 -preset medium -crf 23 -pix_fmt yuv420p \
    -c:a aac -movflags +faststart -f mp4 "$out.part"
status=$?
if [ "$status" -ne 0 ]; then
    rm -f "$out.part"
    # ffmpeg ends with 255 after a signal, a shell says 128 and more: the machine goes, not the video.
    [ "$status" -ge 128 ] && exit "$status"
    exit 65
fi
# Under its name only once it is whole: the files of an item are read after the program.
mv "$out.part" "$out"


metadata=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
read_metadata() {
    token=$(curl -fsS --retry 5 --retry-connrefused -X PUT "$metadata/latest/api/token" \
        -H 'X-aws-ec2-metadata-token-ttl-seconds: 300')
    curl -fsS --retry 5 "$metadata/latest/meta-data/$1" -H "X-aws-ec2-metadata-token: $token"
}

# The role's credentials may be some seconds behind the instance.
fetch() {
    for pause in 2 4 8 16 32; do
        if aws s3 cp --only-show-errors "$1" "$3"; then
            printf '%s  %s\n' "$2" "$3" | sha256sum --check --quiet
            return
        fi
        sleep "$pause"
    done
    echo "spindown: cannot fetch $1" >&2
    return 1
}
# begin_fetch URI SHA256 FILE: side by side, since starting the aws CLI takes longer than the bytes.
begun=''
begin_fetch() {
    fetch "$@" &
    begun="$begun $!"
}

AWS_DEFAULT_REGION=$(read_metadata placement/region)
export AWS_DEFAULT_REGION
code=@code@
work=$(mktemp -d)
begin_fetch @kit_uri@ @kit_sha256@ "$work/kit.zip"
set --
uv='' uv_sha256=''
case $(uname -m) in
@uv@    *) ;;
esac
if [ -n "$uv" ]; then
    begin_fetch "$uv" "$uv_sha256" "$work/uv"
    set -- --uv "$work/uv"
fi
if [ -n "$code" ]; then
    begin_fetch "$code" "$(basename "$code" .zip)" "$work/code.zip"
    set -- "$@" --code "$work/code.zip"
fi
for one in $begun; do wait "$one"; done
[ -z "$uv" ] || chmod +x "$work/uv"
python3 -m zipfile -e "$work/kit.zip" "$work/kit"
sh "$work/kit/system/install.sh" "$@"
rm -rf "$work"

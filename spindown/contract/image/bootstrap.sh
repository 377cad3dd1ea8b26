
metadata=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
read_metadata() {
    token=$(curl -fsS --retry 5 --retry-connrefused -X PUT "$metadata/latest/api/token" \
        -H 'X-aws-ec2-metadata-token-ttl-seconds: 300')
    curl -fsS --retry 5 "$metadata/latest/meta-data/$1" -H "X-aws-ec2-metadata-token: $token"
}

# The role's credentials may be some seconds behind the instance.
fetch() {
    for pause in 2 4 8 16 32; do
        if aws s3 cp --only-show-errors "$1" "$2"; then return; fi
        sleep "$pause"
    done
    echo "spindown: cannot fetch $1" >&2
    return 1
}

AWS_DEFAULT_REGION=$(read_metadata placement/region)
export AWS_DEFAULT_REGION
code=@code@
work=$(mktemp -d)
fetch @kit_uri@ "$work/kit.zip"
printf '%s  %s\n' @kit_sha256@ "$work/kit.zip" | sha256sum --check --quiet
set --
if [ -n "$code" ]; then
    fetch "$code" "$work/code.zip"
    digest=$(basename "$code" .zip)
    printf '%s  %s\n' "$digest" "$work/code.zip" | sha256sum --check --quiet
    set -- --code "$work/code.zip"
fi
python3 -m zipfile -e "$work/kit.zip" "$work/kit"
sh "$work/kit/system/install.sh" "$@"@options@
rm -rf "$work"

# Makes a copy of the tree with all bugs, in $dir/tree. The scripts beside it source it.
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dir=${DIR:-$root/target/planted}

rm -rf "$dir/tree"
mkdir -p "$dir/tree"
(cd "$root" && git ls-files -z --cached --others --exclude-standard | tar --null -T - -c) | tar -x -C "$dir/tree"
for patch in "$here"/switch.diff "$here"/*.patch; do
    patch --quiet --batch --forward --no-backup-if-mismatch -p1 -d "$dir/tree" < "$patch" || {
        echo "$(basename "$patch") does not fit any more" >&2
        exit 2
    }
done

#!/bin/sh
# Breaks the mind's rules on purpose, one at a time, and demands that the stories or the simulator
# notice: a test that finds nothing here proves little. Each patch in tests/sim/mutants is one
# mutant, named after the rule that it breaks.
#
# When: after a change to src/agent or to the tests that guard it. Takes a minute or two for each.
#
#   scripts/mutants.sh [--seeds N] [NAME…]     N seeds of the simulator for each (400)
set -eu

top=$(dirname "$(dirname "$(realpath "$0")")")
cd "$top"
seeds=400
case ${1:-} in
    --seeds)
        seeds=$2
        shift 2
        ;;
esac
[ "$#" -gt 0 ] || set -- tests/sim/mutants/*.patch

work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# A tree of its own, one build folder for all mutants.
git ls-files -z --cached --others --exclude-standard |
    xargs -0 cp --parents --target-directory "$work"
export CARGO_TARGET_DIR="$top/target/mutants"

# tests LEVEL CARGO-ARGUMENT... : runs one level on the mutant; its output is in $work/out.
tests() {
    (cd "$work" && scripts/cargo test --quiet --locked "$@") >"$work/out" 2>&1
}

builds() {
    (cd "$work" && scripts/cargo build --quiet --locked --lib) >"$work/out" 2>&1
}

survived=0
for patch in "$@"; do
    name=$(basename "$patch" .patch)
    patch="$top/tests/sim/mutants/$name.patch"
    if ! git -C "$work" apply "$patch" 2>/dev/null; then
        echo "$name: the patch does not apply: make it anew"
        exit 1
    fi
    if ! builds; then
        cat "$work/out"
        echo "$name: does not build: that catches nothing"
        exit 1
    fi
    if ! tests --test stories; then
        echo "$name: caught by $(grep -c '^test .* FAILED$' "$work/out" || true) stories"
    elif ! tests --profile sim --test sim -- 1 "$seeds"; then
        echo "$name: caught by the simulator: $(grep '^violated:' "$work/out" || true)"
    else
        echo "$name: SURVIVED $seeds seeds"
        survived=$((survived + 1))
    fi
    git -C "$work" apply --reverse "$patch"
done
echo "$survived of $# survived"
[ "$survived" -eq 0 ]

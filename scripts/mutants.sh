#!/bin/sh
# Breaks the mind's rules on purpose, one at a time, and demands that the simulator or the stories
# notice: a test that finds nothing here proves little. Each patch in tests/sim/mutants is one
# mutant, named after the rule that it breaks; lines before its first `---` say what is special.
# Those in tests/controller/mutants are of the cloud side, and tests/controller has to notice.
#
# When: after a change to src/agent or to the tests that guard it. An hour for all: most of it is
# building, so it keeps a tree and a build folder of its own in target/mutants, builds in pieces
# that can be used again, and asks the stories first, which are built and run in half a minute; the
# simulator is asked about what they let pass.
#
#   scripts/mutants.sh [--seeds N] [NAME…]     at most N seeds of the simulator for each (2000)
set -eu

top=$(dirname "$(dirname "$(realpath "$0")")")
cd "$top"
seeds=2000
case ${1:-} in
    --seeds)
        seeds=$2
        shift 2
        ;;
esac
[ "$#" -gt 0 ] || set -- tests/sim/mutants/*.patch tests/controller/mutants/*.patch

work="$top/target/mutants/tree"
out="$top/target/mutants/out"
export CARGO_TARGET_DIR="$top/target/mutants"
export CARGO_PROFILE_SIM_LTO=off CARGO_PROFILE_SIM_INCREMENTAL=true
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0
# One failing seed is enough.
export SIM_FAILURES=1
rm -rf "$work"
mkdir -p "$work"
git ls-files -z --cached --others --exclude-standard |
    xargs -0 cp --parents --preserve=timestamps --target-directory "$work"
# A run that was cut off may have left a mutant built, newer than the source that it was made of.
find "$work/src" -name '*.rs' -exec touch {} +

# tests SECONDS CARGO-ARGUMENT... : runs one level on the mutant; its output is in $out. One that
# comes to no end is noticed too.
tests() {
    seconds=$1
    shift
    if (cd "$work" && timeout "$seconds" scripts/cargo test --locked "$@") >"$out" 2>&1; then
        return 0
    fi
    if grep -q '^error: could not compile' "$out"; then
        cat "$out"
        echo "$name: does not build: that catches nothing"
        exit 1
    fi
    return 1
}

# A test that fails without a mutant catches everything.
name='without a mutant'
tests 900 --test stories || { cat "$out" && exit 1; }
tests 7200 --profile sim --test sim -- 1 "$seeds" || { cat "$out" && exit 1; }
tests 900 --features controller --test controller || { cat "$out" && exit 1; }

survived=0
for patch in "$@"; do
    name=$(basename "$patch" .patch)
    patch="$top/tests/sim/mutants/$name.patch"
    of_controller="$top/tests/controller/mutants/$name.patch"
    [ ! -f "$of_controller" ] || patch=$of_controller
    if ! git -C "$work" apply -C1 "$patch" 2>"$out"; then
        cat "$out"
        echo "$name: the patch does not apply: make it anew"
        exit 1
    fi
    at=$(date +%s)
    if [ "$patch" = "$of_controller" ]; then
        if tests 900 --features controller --test controller; then
            caught=
            survived=$((survived + 1))
        else
            caught='the tests of the controller'
        fi
    elif ! tests 900 --test stories; then
        # The summary is there however much cargo was told to be quiet.
        count=$(sed -n 's/^test result: FAILED\..* \([0-9]*\) failed;.*/\1/p' "$out")
        caught="${count:-endless} stories"
    elif ! tests 7200 --profile sim --test sim -- 1 "$seeds"; then
        caught="the simulator: $(sed -n 's/^violated: \(.*\) [0-9]* times, first/\1/p' "$out")"
    else
        caught=
        survived=$((survived + 1))
    fi
    echo "$name: ${caught:+caught by }${caught:-SURVIVED $seeds seeds} ($(($(date +%s) - at)) s)"
    git -C "$work" apply -C1 --reverse "$patch"
done
echo "$survived of $# survived"
[ "$survived" -eq 0 ]

#!/bin/sh
# Breaks the cores on purpose, in thousands of places, and demands that a test notices each: a test
# that finds nothing here proves little. tests/mutation does it: all mutants are compiled into one
# copy of the tree, and each is shown to the tests that come by its place: units, stories, and for
# what these let pass some seeds of the simulator; of the cloud side tests/controller and cloudsim,
# of the built-in runtime rtsim.
#
# When: after a change to a core or to the tests that guard it. --rules takes minutes: only what
# breaks the rules of tests/mutation/rules.txt. All take hours; --again asks only about those that
# nothing caught last time, --new about those that the last run did not come to. Survivors that are
# right stand in tests/mutation/accepted.txt, each with its reason; the others are written to
# target/mutants/survivors.txt, by file.
#
#   scripts/mutants.sh [--rules] [--again|--new] [--list] [--seeds N]
#                      [--core agent|controller|devices|runtime]
#                      [--levels stories,units,controller,simulator,cloudsim,rtsim] [TEXT...]
#
# TEXT: only mutants that contain it, as --list shows them. What is built lies in target/mutants, or
# in MUTANTS_TARGET_DIR. Needs the packages that tests/mutation/Cargo.toml names, from the registry.
set -eu

top=$(dirname "$(dirname "$(realpath "$0")")")
cd "$top"
work="$top/target/mutants"
mkdir -p "$work"
# Folders of its own: elsewhere it would replace what was built of the tree itself.
export CARGO_TARGET_DIR="${MUTANTS_TARGET_DIR:-$work/build}"
(
    export CARGO_TARGET_DIR="$work/tool"
    scripts/cargo build --quiet --manifest-path tests/mutation/Cargo.toml
)
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0
export CARGO_PROFILE_SIM_INCREMENTAL=true CARGO_PROFILE_SIM_DEBUG=0
exec "$work/tool/debug/edged-mutation" "$top" "$work" "$@"

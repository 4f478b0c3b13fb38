#!/usr/bin/env bash
# instrument.sh COMMAND…: runs the compiler for cargo (RUSTC_WRAPPER). It compiles our crates with the counters that
# libFuzzer reads, and with the checks of a debug build. Build scripts stay as they are, because no fuzz test runs them.
compiler=$1
shift
case " $* " in
*" build_script_build "*) exec "$compiler" "$@" ;;
esac
exec "$compiler" "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions=on -Coverflow-checks=on

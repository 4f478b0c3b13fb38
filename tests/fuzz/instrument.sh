#!/usr/bin/env bash
# The compiler for what is ours, with the counters that libFuzzer follows, and with the checks of a debug build. Build scripts are left as
# they are: no test follows those.
compiler=$1
shift
case " $* " in
*" build_script_build "*) exec "$compiler" "$@" ;;
esac
exec "$compiler" "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions=on -Coverflow-checks=on

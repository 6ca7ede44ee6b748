#!/bin/sh
# Makes this machine fit to build and run Bailey, or says what it lacks. Does nothing where nothing is missing.
# Arguments: what else is needed, as COMMAND:DEBIAN-PACKAGE.
set -eu

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# Whether version $1 is at least $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

kernel=$(uname -r)
at_least "$kernel" 6.1 || fail "Linux 6.1 or newer is needed, this is $kernel"

command -v cargo >/dev/null || fail "Rust is missing: install it from https://rustup.rs"
rust=$(rustc --version | cut -d' ' -f2)
at_least "$rust" 1.89 || fail "Rust 1.89 or newer is needed, this is $rust: run \`rustup update stable\`"
for component in rustfmt clippy; do
    if ! cargo "${component#rust}" --version >/dev/null 2>&1; then
        say "installing the Rust component $component"
        rustup component add "$component"
    fi
done

if [ "$(id -u)" = 0 ]; then
    sudo=
else
    command -v sudo >/dev/null || fail "root is needed, and there is no sudo"
    sudo=sudo
fi

missing=
for need in cvc5:cvc5 gcc:gcc git:git make:make mmdebstrap:mmdebstrap mkfs.erofs:erofs-utils "$@"; do
    [ -n "$(PATH="$PATH:/usr/sbin:/sbin" command -v "${need%%:*}")" ] || missing="$missing ${need#*:}"
done
# Tests build a root file system from it; one that needs libraries will not do.
if ! busybox=$(command -v busybox) || ldd "$busybox" >/dev/null 2>&1; then missing="$missing busybox-static"; fi
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
if [ -n "$missing" ]; then
    command -v apt-get >/dev/null || fail "these Debian packages are missing, and there is no apt-get:$missing"
    say "installing Debian packages:$missing"
    $sudo apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing </dev/null >&2
fi

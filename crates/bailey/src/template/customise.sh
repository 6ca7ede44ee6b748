# Turns a fresh Debian root ($1) into the `base` template. Run with `sh -eu` after all packages are in it.
root=$1
export LC_ALL=C.UTF-8
umask 022

# The user that code runs as. No password and no group that means anything: root is the agent's to give.
chroot "$root" useradd --uid 1000 --user-group --create-home --shell /bin/bash --comment "" user

# The agent is bind-mounted over this file in every cage; `sudo` is its other name.
mkdir -p "$root/run/bailey" "$root/data"
: > "$root/run/bailey/agent"
chmod 0755 "$root/run/bailey" "$root/run/bailey/agent" "$root/data"
ln -sf /run/bailey/agent "$root/usr/bin/sudo"
ln -sf python3 "$root/usr/bin/python"

# All times in the image are equal, so bytecode must not be checked against the time of its source.
chroot "$root" sh -c 'python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.*'

# Nothing of the machine that built it, and nothing that a run does not need.
printf 'sandbox\n' > "$root/etc/hostname"
printf '127.0.0.1 localhost sandbox\n::1 localhost\n' > "$root/etc/hosts"
printf 'nameserver 127.0.0.1\n' > "$root/etc/resolv.conf"
: > "$root/etc/machine-id"
rm -rf "$root/var/lib/dbus/machine-id" "$root/var/lib/systemd/random-seed" "$root/etc/"*- "$root/etc/ssh"
rm -rf "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d" "$root/etc/apt/auth.conf" "$root/etc/apt/auth.conf.d" \
    "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root/var/lib/apt/lists" "$root/var/cache/apt" "$root/var/cache/ldconfig"
mkdir -p "$root/etc/apt/sources.list.d" "$root/var/lib/apt/lists/partial" "$root/var/cache/apt/archives/partial"
for folder in doc man info lintian locale; do
    rm -rf "$root/usr/share/$folder"
done
find "$root/var/log" -xdev -type f -delete
find "$root/tmp" "$root/var/tmp" "$root/dev" "$root/run" -xdev -mindepth 1 -not -path "$root/run/bailey*" -delete

# Nobody gains rights by running a file; only regular files, folders and links are in the image.
find "$root" -xdev '(' -type f -o -type d ')' -perm /6000 -exec chmod ug-s {} +
find "$root" -xdev '(' -type b -o -type c -o -type p -o -type s ')' -delete

# shellcheck shell=sh
# shellcheck disable=SC2154 # dev sets root, deps, keyring and newer_suite
# commands.sh: the commands of ./dev that build what people deploy. dev reads this file; its functions are at hand here.

# bare FOLDER SUITE [PACKAGE...]: a minimal system of SUITE, once. It installs from the archive that this system installs from.
bare() {
    [ ! -e "$1.ready" ] || return 0
    [ "$(id -u)" = 0 ] || die "only root can make a system of $2"
    packages debootstrap
    log "making a bare system of $2 in ${1#"$root"/}"
    folder=$1
    suite=$2
    shift 2
    rm -rf "$folder"
    mkdir -p "$folder"
    address=$(archive "$(codename)")
    [ -n "$address" ] || { apt_update "$suite"; address=$(archive "$(codename)"); }
    {
        debootstrap --variant=minbase --include="$(echo ca-certificates "$@" | tr ' ' ',')" "$suite" "$folder" "$address" &&
            cp -L /etc/resolv.conf "$folder/etc/" && cp -L /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/" &&
            apt-config dump | grep '^Acquire::https\{0,1\}::' >"$folder/etc/apt/apt.conf.d/90system" || [ $? = 1 ]
    } >"$folder.log" 2>&1 || { tail -20 "$folder.log" >&2; die "debootstrap failed"; }
    touch "$folder.ready"
}

# within FOLDER COMMAND...: in that system, with a /proc of its own.
within() {
    folder=$1
    shift
    unshare --mount --pid --fork --mount-proc="$folder/proc" env -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$folder" "$@"
}

# The second upstream tarball, which Debian 12 needs; nothing on a system that has a newer hiredis. packaging/versions has its
# digest.
hiredis_tarball() {
    [ "$1" = bookworm ] || return 0
    tarball=$deps/tarballs/$(sed -n 's/^static hiredis .* //p' packaging/versions)
    if [ ! -e "$tarball" ]; then
        address=$(archive "$(codename)")
        [ -n "$address" ] || { apt_update hiredis; address=$(archive "$(codename)"); }
        rm -rf "$deps/tarballs"
        mkdir -p "$deps/tarballs"
        packages dpkg-dev >&2
        (
            cd "$deps/tarballs" && line="deb-src [signed-by=$keyring] $address $newer_suite main" &&
                private_apt "$line" update && private_apt "$line" source --download-only hiredis
        ) >"$deps/hiredis.log" 2>&1 </dev/null || { tail -20 "$deps/hiredis.log" >&2; die "hiredis' source is not there"; }
    fi
    echo "$tarball"
}

# package [SUITE]: this system's own suite is built here, which an ordinary container allows; another one in a bare system.
package() {
    suite=${1:-$(codename)}
    built=$root/build/package/$suite
    command -v apt-get >/dev/null || die "Debian packages are built on Debian or Ubuntu"
    mkdir -p "$deps" build
    tarball=$(hiredis_tarball "$suite")
    tools="dpkg-dev lintian build-essential git"
    profile=${tarball:+pkg.ratelimitd.bundled}
    system=
    if [ "$suite" = "$(codename)" ]; then
        # shellcheck disable=SC2086 # a list of words
        packages $tools
        if ! dpkg-checkbuilddeps ${profile:+-P"$profile"} debian/control 2>/dev/null; then
            apt_update "what debian/control names"
            log "installing what debian/control names"
            DEBIAN_FRONTEND=noninteractive apt-get -qq build-dep -y --no-install-recommends ${profile:+-P"$profile"} "$root" \
                >"$deps/apt.log" 2>&1 </dev/null || { tail -20 "$deps/apt.log" >&2; die "apt-get build-dep failed"; }
        fi
    else
        system=$deps/builder-$suite
        # shellcheck disable=SC2086
        bare "$system" "$suite" $tools
        mkdir -p "$system/tmp/control/debian"
        cp debian/control debian/changelog "$system/tmp/control/debian/"
        # shellcheck disable=SC2016 # the inner shell expands it
        within "$system" sh -c 'apt-get -qq update && apt-get -qq build-dep -y --no-install-recommends ${1:+-P"$1"} /tmp/control' \
            sh "$profile" >"$deps/apt.log" 2>&1 </dev/null || { tail -20 "$deps/apt.log" >&2; die "apt-get build-dep failed"; }
    fi
    log "building the packages for $suite (build/package-$suite.log)"
    python3 packaging/debs.py ${tarball:+--hiredis "$tarball"} ${system:+--root "$system"} "$built" >"build/package-$suite.log" 2>&1 ||
        { tail -40 "build/package-$suite.log" >&2; die "the packages for $suite were not built"; }
    log "built; as root: apt install ./build/package/$suite/*.deb"
}

# test_package [SUITE]: those of this commit, built now if they are not there.
test_package() {
    suite=${1:-$(codename)}
    need test
    [ -e "build/package/$suite/ratelimitd_$(python3 packaging/version.py deb).orig.tar.gz" ] || package "$suite"
    bare "$deps/bare-$suite" "$suite" systemd gcc libc6-dev pkgconf
    exec "$deps/venv/bin/python" tests/package/run "$suite"
}

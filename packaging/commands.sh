# shellcheck shell=sh
# shellcheck disable=SC2154 # dev sets root, deps, keyring and newer_suite
# commands.sh: the commands of ./dev that build what people deploy. dev reads this file; its functions are at hand here.
#
# Most functions call each other, and run in a subshell, `()`, so that each has its variables to itself.

# bare FOLDER SUITE [PACKAGE...]: a minimal system of SUITE, once. It installs from the archive that this system installs from.
bare() (
    [ ! -e "$1.ready" ] || exit 0
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
        debootstrap --variant=minbase --include=ca-certificates "$suite" "$folder" "$address" &&
            cp -L /etc/resolv.conf "$folder/etc/" && cp -L /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/" &&
            { apt-config dump | grep '^Acquire::https\{0,1\}::' >"$folder/etc/apt/apt.conf.d/90system" || [ $? = 1 ]; } &&
            within "$folder" apt-get -qq update && within "$folder" apt-get -qq install -y --no-install-recommends "$@"
    } >"$folder.log" 2>&1 </dev/null || { tail -20 "$folder.log" >&2; die "the system of $suite was not made"; }
    touch "$folder.ready"
)

# within FOLDER COMMAND...: in that system, with a /proc of its own.
within() (
    folder=$1
    shift
    unshare --mount --pid --fork --mount-proc="$folder/proc" env -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$folder" "$@"
)

# The folder with the upstream tarballs of what Debian 12 lacks; nothing on a system that has it. packaging/versions has their
# digests.
bundled_tarballs() (
    [ "$1" = bookworm ] || exit 0
    names=$(sed -n 's/^static .* \([^ ]*\.orig\.tar\.[^ :]*\).*/\1/p' packaging/versions)
    for tarball in $names; do
        [ ! -e "$deps/tarballs/$tarball" ] || continue
        address=$(archive "$(codename)")
        [ -n "$address" ] || { apt_update hiredis; address=$(archive "$(codename)"); }
        rm -rf "$deps/tarballs"
        mkdir -p "$deps/tarballs"
        packages dpkg-dev >&2
        (
            cd "$deps/tarballs" && line="deb-src [signed-by=$keyring] $address $newer_suite main" &&
                private_apt "$line" update && private_apt "$line" source --download-only --tar-only hiredis nghttp2
        ) >"$deps/sources.log" 2>&1 </dev/null || { tail -20 "$deps/sources.log" >&2; die "the sources of hiredis and llhttp are not there"; }
        break
    done
    echo "$deps/tarballs"
)

# builder FOLDER SUITE ARCH PROFILES: a bare system with what debian/control names, for another suite or another architecture.
builder() (
    bare "$1" "$2" dpkg-dev lintian build-essential
    mkdir -p "$1/tmp/control/debian"
    cp debian/control debian/changelog "$1/tmp/control/debian/"
    # shellcheck disable=SC2016 # the inner shell expands it
    within "$1" sh -ec '
        [ "$1" = "$(dpkg --print-architecture)" ] || { dpkg --add-architecture "$1"; cross="crossbuild-essential-$1 libc6-dev:$1"; }
        apt-get -qq update
        [ -z "${cross-}" ] || apt-get -qq install -y --no-install-recommends $cross
        apt-get -qq build-dep -y --no-install-recommends -a "$1" ${2:+-P"$2"} /tmp/control
    ' sh "$3" "$4" >"$deps/apt.log" 2>&1 </dev/null || { tail -20 "$deps/apt.log" >&2; die "what debian/control names was not installed"; }
)

# package [SUITE [ARCH]]: this system's own suite is built here, which an ordinary container allows; all others in a bare system.
package() (
    command -v apt-get >/dev/null || die "Debian packages are built on Debian or Ubuntu"
    native=$(dpkg --print-architecture)
    suite=${1:-$(codename)}
    arch=${2:-$native}
    name=$suite
    [ "$arch" = "$native" ] || name=$suite-$arch
    mkdir -p "$deps" build
    tarballs=$(bundled_tarballs "$suite")
    profile=${tarballs:+pkg.ratelimitd.bundled}
    system=
    if [ "$name" = "$(codename)" ]; then
        packages dpkg-dev lintian build-essential git python3
        if ! dpkg-checkbuilddeps ${profile:+-P"$profile"} debian/control 2>/dev/null; then
            apt_update "what debian/control names"
            log "installing what debian/control names"
            DEBIAN_FRONTEND=noninteractive apt-get -qq build-dep -y --no-install-recommends ${profile:+-P"$profile"} "$root" \
                >"$deps/apt.log" 2>&1 </dev/null || { tail -20 "$deps/apt.log" >&2; die "apt-get build-dep failed"; }
        fi
    else
        [ "$arch" = "$native" ] || profile=${profile:+$profile,}cross
        system=$deps/builder-$suite-$arch
        builder "$system" "$suite" "$arch" "$profile"
    fi
    log "building the packages for $name (build/package-$name.log)"
    [ "$arch" != "$native" ] || arch=
    python3 packaging/debs.py ${tarballs:+--bundled "$tarballs"} ${system:+--root "$system"} ${arch:+--host "$arch"} \
        "build/package/$name" >"build/package-$name.log" 2>&1 ||
        { tail -40 "build/package-$name.log" >&2; die "the packages for $name were not built"; }
    log "built; as root: apt install ./build/package/$name/*.deb"
)

# packaged SUITE [ARCH]: the packages of this commit, built now if they are not there.
packaged() (
    ready=build/package/$1${2:+-$2}
    if [ -z "$(find "$ready" -name "ratelimitd_$(python3 packaging/version.py deb)-*.deb" 2>/dev/null)" ]; then package "$@"; fi
)

# image [--arch ARCH]: from the packages of this system's suite, and from those of Debian that they need.
image() (
    native=$(dpkg --print-architecture)
    arch=$native
    case ${1-} in
    --arch) arch=${2-} ;;
    '') ;;
    *) die "image knows only --arch amd64 and --arch arm64" ;;
    esac
    case $arch in amd64 | arm64) ;; *) die "image --arch: amd64 or arm64" ;; esac
    suite=$(codename)
    other=
    [ "$arch" = "$native" ] || other=$arch
    packages binutils dpkg-dev python3
    packaged "$suite" "$other"
    cache=$deps/image-$arch
    log "downloading what they depend on"
    if [ -z "$other" ]; then
        apt_update "what ratelimitd depends on"
    else
        system=$deps/builder-$suite-$arch
        rm -rf "$system/tmp/image" "$cache"
        mkdir -p "$system/tmp/image/partial"
        : >"$system/tmp/image/status"    # as if nothing were installed: apt then fetches all that they depend on
        cp "build/package/$suite-$arch"/ratelimitd_*.deb "build/package/$suite-$arch"/ratelimitctl_*.deb "$system/tmp/image/"
        # shellcheck disable=SC2016
        within "$system" sh -c 'exec apt-get -qq -y --download-only --no-install-recommends -o APT::Sandbox::User=root \
            -o APT::Architecture="$1" -o Dir::State::status=/tmp/image/status -o Dir::Cache::archives=/tmp/image \
            install /tmp/image/ratelimitd_*.deb /tmp/image/ratelimitctl_*.deb' sh "$arch" >"$deps/image.log" 2>&1 </dev/null ||
            { tail -20 "$deps/image.log" >&2; die "what the image contains was not downloaded"; }
        rm "$system"/tmp/image/ratelimit*.deb
        cp -r "$system/tmp/image" "$cache"
    fi
    result=build/image${other:+-$other}
    # shellcheck disable=SC2046 # an option, or nothing
    size=$(python3 packaging/image.py --arch "$arch" --packages "build/package/$suite${other:+-$other}" --debian "$cache" \
        $([ -n "$other" ] || echo --fetch) "$result") ||
        die "the image was not written"
    log "wrote $result, an OCI layout: $size"
    log "push it with: skopeo copy oci:$result docker://YOUR.REGISTRY/ratelimitd:TAG"
)

# test_package [SUITE]: the packages; and where this system's image is made of them, the image in a pod.
test_package() {
    suite=${1:-$(codename)}
    need test
    packaged "$suite"
    bare "$deps/bare-$suite" "$suite" systemd gcc libc6-dev pkgconf
    if [ "$suite" = "$(codename)" ]; then
        packages skopeo umoci crun
        image --arch "$(dpkg --print-architecture)"
    fi
    exec "$deps/venv/bin/python" tests/package/run "$suite"
}

# release [VERSION] [--check]: refuses a bad tree first; --check without VERSION takes the table's.
release() {
    wanted=
    check=
    for word; do
        case $word in
        --check) check=1 ;;
        [0-9]*.[0-9]*.[0-9]*) wanted=$word ;;
        *) die "release [VERSION] [--check]" ;;
        esac
    done
    [ -n "$wanted$check" ] || wanted=$(sed -n 's/^version //p' packaging/versions)
    mkdir -p "$deps"
    packages python3 git
    python3 packaging/release.py --conditions ${wanted:+"$wanted"} || die "nothing was built"
    suite=$(codename)
    need test
    packages skopeo umoci crun binutils lintian luarocks
    for language in go node java php lua; do tools_of "$language"; done
    bare "$deps/bare-$suite" "$suite" systemd gcc libc6-dev pkgconf
    apt_update "what ratelimitd depends on"
    tools=$deps/release-venv
    if ! "$tools/bin/python" -c 'import build, hatchling, spdx_tools, twine' 2>/dev/null; then
        rm -rf "$tools"
        python3 -m venv "$tools"
        "$tools/bin/python" -m pip --quiet --disable-pip-version-check install -r packaging/requirements.txt
    fi
    tarballs=$(bundled_tarballs "$suite")
    DEPS=$deps exec "$deps/venv/bin/python" packaging/release.py --suite "$suite" ${tarballs:+--bundled "$tarballs"} build/release-files
}

#!/bin/sh
# llhttp.sh FOLDER PREFIX: compiles llhttp's C files, in FOLDER, into a static library below PREFIX with its file for pkg-config.
# For Debian 12, which has no package of it. CC, AR and CFLAGS count.
set -eu
folder=$(cd "$1" && pwd)
mkdir -p "$2/include" "$2/lib/pkgconfig" "$2/llhttp"
prefix=$(cd "$2" && pwd)
header=$folder/include/llhttp.h
part() { sed -n "s/^#define LLHTTP_VERSION_$1 //p" "$header"; }

cd "$prefix/llhttp"
# shellcheck disable=SC2086 # a list of options
${CC:-cc} ${CFLAGS:--O2 -g} -fPIC -I"$folder/include" -c "$folder"/src/*.c
rm -f "$prefix/lib/libllhttp.a"
${AR:-ar} rcD "$prefix/lib/libllhttp.a" ./*.o
cd "$prefix" && rm -r llhttp
cp "$header" "$prefix/include/"
cat >"$prefix/lib/pkgconfig/libllhttp.pc" <<END
prefix=\${pcfiledir}/../..
Name: libllhttp
Description: parser of HTTP
Version: $(part MAJOR).$(part MINOR).$(part PATCH)
Libs: -L\${prefix}/lib -lllhttp
Cflags: -I\${prefix}/include
END

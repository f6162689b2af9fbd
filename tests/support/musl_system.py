"""Makes a system whose only C library is musl, with a Python and without a compiler.

Debian has no Python for musl. One is built in a system of its own, by Debian's
compiler for musl from Debian's source packages, with all that numpy and pip need but ssl.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import bare_systems
from glibc_suites import UnavailableError, archive_address

SUITE, PYTHON = "trixie", "3.13"
TAGS = ("musllinux_1_2_x86_64", "musllinux_1_1_x86_64")
"""Of the wheels that it takes: the suite's musl is 1.2.5."""
TOOLS = (
    *("autoconf", "automake", "busybox-static", "gcc", "libc6-dev", "libltdl-dev", "libtool"),
    *("make", "musl-tools", "xz-utils"),
)

# Each is a bounded step.
STEPS = (
    # The kernel's headers, without those of the other C library beside them.
    """
mkdir -p /opt/headers /opt/musl/lib /opt/musl/include
for name in linux asm-generic x86_64-linux-gnu/asm; do
  ln -sfn /usr/include/$name /opt/headers/${name##*/}
done
echo "deb-src $MIRROR $SUITE main" >/etc/apt/sources.list.d/source.list
cd /opt; apt-get -q update; apt-get -q source --tar-only --download-only zlib libffi python$PYTHON
for name in zlib libffi python; do
  mkdir -p $name; tar -xf $(ls $name*.orig.tar.* | grep -v asc) -C $name --strip-components=1
done
""",
    """
cd /opt/zlib; CC=musl-gcc CFLAGS="-O2 -fPIC" ./configure --static; make libz.a
cp libz.a /opt/musl/lib; cp zlib.h zconf.h /opt/musl/include
cd /opt/libffi; autoreconf -i
./configure CC=musl-gcc CFLAGS="-O2 -fPIC" CPPFLAGS="-idirafter /opt/headers" --prefix=/opt/musl \
  --disable-shared --disable-builddir --disable-docs --disable-multi-os-directory
make -j2; make install
""",
    # Asked for its platform, musl-gcc names glibc's. A thread's stack of 128 KiB, musl's default,
    # is too small for Python.
    """
cat >/usr/local/bin/musl-cc <<'END'
#!/bin/sh
case "$*" in *--print-multiarch*) echo x86_64-linux-musl ;; *) exec musl-gcc "$@" ;; esac
END
chmod +x /usr/local/bin/musl-cc
cd /opt/python; ./configure CC=musl-cc CPPFLAGS="-I/opt/musl/include -idirafter /opt/headers" \
  LDFLAGS="-L/opt/musl/lib -Wl,-z,stack-size=0x100000" --disable-test-modules \
  ZLIB_CFLAGS=-I/opt/musl/include ZLIB_LIBS=-lz LIBFFI_CFLAGS=-I/opt/musl/include LIBFFI_LIBS=-lffi
""",
    'cd /opt/python; make -s -j2 OPT="-O1 -DNDEBUG"',
    'cd /opt/python; make -s install OPT="-O1 -DNDEBUG" DESTDIR=/mnt/root',
    """
cd /mnt/root; mkdir -p bin lib usr/bin etc proc dev tmp mnt
cp /usr/lib/x86_64-linux-musl/libc.so lib/ld-musl-x86_64.so.1
cp /bin/busybox bin
for name in $(bin/busybox --list | grep -vx busybox); do ln -s busybox bin/$name; done
ln -s /bin/env usr/bin/env
PATH=/usr/local/bin:/usr/sbin chroot . python3 -c 'import ctypes, zlib'
""",
)


def system() -> Path:
    """Return the root of the system, made unless it was before. Nobody may change what is in it.

    Raises:
        UnavailableError: it is not here and cannot be made; the text says why.
    """
    return bare_systems.kept("musl", repr((SUITE, PYTHON, TOOLS, STEPS)), _make)


def _make(root: Path) -> None:
    workshop = bare_systems.kept(
        "workshop", " ".join(TOOLS), lambda made: bare_systems.debootstrap(SUITE, TOOLS, made)
    )
    with TemporaryDirectory(dir=root.parent) as shared:
        begun = f"MIRROR={archive_address()} SUITE={SUITE} PYTHON={PYTHON}; mkdir -p /mnt/root"
        for step in STEPS:
            done = bare_systems.run_in(workshop, Path(shared), f"{begun}\n{step}")
            if done.returncode != 0:
                raise UnavailableError(f"no Python for musl: {done.stderr.strip()[-300:]}")
        shutil.move(f"{shared}/root", root)
    bare_systems.forget("workshop")

# What runs on the other machine, in the shell that is there. It uses what POSIX has, and `head -c`;
# gzip where there is one. Commands come in lines on stdin, words parted by single spaces. Each is
# answered by its output, then a line of the mark and an exit status. At the end of stdin, however
# it comes, nothing is left: no file, and no helper, for whom stdin is the lifeline.
umask 077
set -f
folder=

clean() {
  if [ -n "$folder" ]; then rm -rf "$folder"; fi
  folder=
}

answered() { printf '\n%s %s\n' "$mark" "$1"; }

pack() { case $1 in gzip) gzip -1c ;; *) cat ;; esac; }
unpack() { case $1 in gzip) gzip -dc ;; *) cat ;; esac; }

# Status 1: what this needs is not there. Login scripts may have left a line open (a terminal's title).
facts() {
  echo
  [ "$(echo ab | head -c 1)" = a ] && [ -c /dev/null ] && [ -d /proc/self ] || return 1
  uname -m && printf '%s\n' "${TMPDIR:-}" "${HOME:-}" &&
    if gzip -1c </dev/null >/dev/null 2>&1; then echo gzip; else echo plain; fi
}

# $1: a name that nobody can guess. $2: a folder. mkdir fails where anything has that name.
make() {
  clean
  mkdir "$2/$1" 2>/dev/null && folder=$2/$1
}

# Takes the helper from stdin, opens it, and removes it: an open file needs no name to be run.
# $1: bytes that come. $2: their packing. All of them are taken, or the next command would be lost
# among them. Status 1: there is no room. 2: programs do not run from there.
put() {
  head -c "$1" | { unpack "$2" >"$folder/helper" || { cat >/dev/null; false; }; } || return 1
  chmod 700 "$folder/helper" && exec 9<"$folder/helper" || return 1
  clean
  /proc/self/fd/9 --help >/dev/null 2>&1 || return 2
}

# Takes from stdin what earlier scans found, as the helper reads it, under a name like the helper's.
# $1: bytes that come, whole; they may be none.
tell() {
  head -c "$1" | { cat >"$folder/before" || { cat >/dev/null; false; }; } || return 1
  exec 8<"$folder/before" || return 1
  clean
}

# $1: the packing of the result. The rest: the helper's arguments. The status is the helper's. Some
# shells pass only descriptors on that a command names.
run() {
  packing=$1
  shift
  exec 5>&1
  status=$({ { /proc/self/fd/9 --lifeline 0 "$@" 3>&- 8<&8; echo "$?" >&3; } | pack "$packing" >&5; } 3>&1)
  return "$status"
}

# Files that tell of processes that may have this name; any spaces part words in them, too.
named() {
  set +f
  grep -lsF -e "$1" /proc/[0-9]*/comm /proc/[0-9]*/cmdline
  ls -l /proc/[0-9]*/exe 2>/dev/null | grep -F -e "$1"
  set -f
}

# What is known of a process, each part ended by a zero byte.
about() {
  [ -d "/proc/$1" ] || return 1
  cat "/proc/$1/stat" && printf '\0'
  cat "/proc/$1/comm" && printf '\0'
  readlink "/proc/$1/exe"
  printf '\0'
  head -c 65536 "/proc/$1/cmdline"
}

# How long each thread of a process has run, and how often.
ran() {
  set +f
  cat "/proc/$1"/task/*/schedstat
  status=$?
  set -f
  return "$status"
}

# A file that a process has mapped. $1: packing. $2: its id. $3: where it is mapped. $4: its path.
fetch() {
  for file in "/proc/$2/map_files/$3" "/proc/$2/root$4" "$4"; do
    if [ -f "$file" ] && [ -r "$file" ]; then
      pack "$1" <"$file"
      return
    fi
  done
  return 1
}

main() {
  mark=$1$2
  trap clean EXIT
  trap 'exit 1' HUP INT TERM PIPE
  exec 8</dev/null
  facts
  answered "$?"
  while read -r command one two three rest; do
    case $command in
      make) make "$one" "$two" ;;
      put) put "$one" "$two" ;;
      tell) tell "$one" ;;
      ran) ran "$one" ;;
      run) run "$one" "$two" "$three" $rest ;;
      named) named "$one" ;;
      about) about "$one" ;;
      fetch) fetch "$one" "$two" "$three" "$rest" ;;
      *) false ;;
    esac
    answered "$?"
  done
  exit 0
}

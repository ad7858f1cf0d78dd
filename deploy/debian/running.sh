# shellcheck shell=sh
# Prints "PID COMMAND" of each Loam server of this package that runs on this host, with or without systemd.
running_servers() {
  [ -z "${DPKG_ROOT:-}" ] || return 0
  for folder in /proc/[0-9]*; do
    # After an upgrade the path of a running program ends in " (deleted)".
    program=$(readlink "$folder/exe" 2>/dev/null) || continue
    [ "${program%/*}" = /usr/bin ] || continue
    case "${program##*/}" in
      loam-storage-node | loam-storage-node[.\ ]* | loam-commit-manager | loam-commit-manager[.\ ]*) ;;
      *) continue ;;
    esac
    # The processes of a container, or of the host of a chroot, have another root.
    if [ "$(stat -Lc %d:%i "$folder/root" 2>/dev/null)" = "$(stat -Lc %d:%i /)" ]; then
      echo "${folder#/proc/} $(tr '\0' ' ' < "$folder/cmdline" 2>/dev/null || true)"
    fi
  done
}

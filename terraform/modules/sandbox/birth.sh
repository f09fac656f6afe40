# Read by the other scripts.

# birth PID: when that process began, in no particular unit; nothing when there is none. A pid is used again, a birth is not.
birth() {
    if [ -r "/proc/$1/stat" ]; then
        sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 20
    else
        ps -o lstart= -p "$1" 2>/dev/null || :
    fi
}

# runs PID BIRTH: whether that very process still runs. Zombies, which nobody reaps in some containers, do not.
runs() {
    if [ -d /proc/self ]; then
        # No other program is started: this is asked of many processes at once.
        { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
        # shellcheck disable=SC2086
        set -- "$2" ${stat##*) }
        [ "$2" != Z ] && [ "${21:-}" = "$1" ]
    else
        [ "$(ps -o lstart= -p "$1" 2>/dev/null | tr -d ' ')" = "$(printf '%s' "$2" | tr -d ' ')" ] || return 1
        case $(ps -o stat= -p "$1" 2>/dev/null) in
        '' | Z*) return 1 ;;
        esac
    fi
}

# alive GROUP: whether anything of that process group runs.
alive() {
    kill -s 0 -- "-$1" 2>/dev/null || return 1
    command -v ps >/dev/null 2>&1 || return 0
    ps -A -o pgid= -o stat= | awk -v group="$1" '$1 == group && $2 !~ /^Z/ { found = 1 } END { exit !found }'
}

# ours FOLDER PID: whether that number is still the one of the node of FOLDER, and not somebody else's by now. The leader may
# have ended before its children.
ours() {
    began=$(birth "$2")
    [ -z "$began" ] || [ "$began" = "$(cat "$1/born" 2>/dev/null)" ]
}

# Read by node.sh and stop.sh.

# birth PID: when that process began, in no particular unit; nothing when there is none. A pid is used again, a birth is not.
birth() {
    if [ -r "/proc/$1/stat" ]; then
        sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 20
    else
        ps -o lstart= -p "$1" 2>/dev/null || :
    fi
}

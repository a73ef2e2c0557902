# What the suites of the guest share. Lines that the host looks for:
#   ok CASE | FAILED CASE | WHY | note TEXT | reached WORD
S=/mnt/share
dure=$S/dure

# case_of NAME COMMAND...: one case; ends the suite if it fails.
case_of() {
    local name=$1
    shift
    if "$@" >/tmp/case.log 2>&1; then
        echo "ok $name"
    else
        echo "FAILED $name | $* said $?: $(tail -n 8 /tmp/case.log | tr '\n' ' ')"
        exit 1
    fi
}

# Modules of the guest's kernel; the host's /etc/modprobe.d is not for it.
modules() { modprobe -C /dev/null -d /mnt -a "$@"; }

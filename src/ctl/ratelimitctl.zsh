#compdef ratelimitctl
# Completion of ratelimitctl for zsh.

_ratelimitctl_policies()
{
    local -a socket policies
    [[ -z ${opt_args[-s]:-${opt_args[--socket]}} ]] || socket=(-s "${opt_args[-s]:-${opt_args[--socket]}}")
    policies=(${(f)"$(ratelimitctl $socket --timeout 200ms policies 2>/dev/null | sed -n '2,$s/^\([^ ][^ ]*\).*/\1/p')"})
    compadd -a policies
}

_ratelimitctl()
{
    local context state line
    typeset -A opt_args
    local -a commands=(
        'check:charge COST (1) if it may be'
        'check-all:charge several as one\: all, or none'
        'check-many:charge several, each on its own'
        'refund:give back UNITS that were charged'
        'reset:forget what POLICY knows of KEY'
        'reserve:charge an estimate; prints the reservation'
        'settle:so many UNITS of a reservation were used'
        'cancel:nothing of a reservation was used'
        'acquire:hold a slot while COMMAND runs'
        'peek:what a check would answer'
        'explain:why a check would be answered as it would'
        'policies:the policies, with their limits and counts'
        'ping:is the daemon there?'
        'stats:how the daemon is doing'
        'version:the version of the daemon'
        'test-clock:set the time of the daemon, under --test-clock'
    )
    _arguments \
        '(-s --socket)'{-s,--socket}'[the socket of the daemon]:socket:_files' \
        '--json[print the answer as one JSON object]' \
        '--timeout[give up after this long]:duration:' \
        '--wait=-[where it is denied, wait and ask again]::duration:' \
        '--deadline[the daemon answers by then]:duration:' \
        '--max-wait[the longest delay that will do]:duration:' \
        '--at-most[charge as many units as there are, up to N]:units:' \
        '--request-id[asked again with the same ID, it is charged once]:id:' \
        '--ttl[settled within this time, or given back]:duration:' \
        '--all[every counter and gauge]' \
        '(-h --help)'{-h,--help}'[list commands and options]' \
        '--version[the version of ratelimitctl]' \
        '1:command:->command' '2:policy:->policy' '*::argument:'
    case $state in
    command) _describe command commands ;;
    policy)
        case ${line[1]} in
        check|check-all|check-many|peek|explain|reset|refund|reserve|acquire) _ratelimitctl_policies ;;
        esac
        ;;
    esac
}

_ratelimitctl "$@"

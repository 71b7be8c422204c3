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
        'check:charge COST (1) if the policy allows it'
        'check-all:charge all of several, or none'
        'check-many:charge several, each by itself'
        'refund:give back UNITS that were charged'
        'reset:forget what KEY has used under POLICY'
        'reserve:charge an estimate; prints the reservation'
        'settle:UNITS of a reservation were used'
        'cancel:nothing of a reservation was used'
        'acquire:hold a slot while COMMAND runs'
        'peek:show what a check would answer'
        'explain:explain the answer to a check'
        'policies:the policies, with their limits and counts'
        'ping:test that the daemon answers'
        'stats:the main counts of the daemon'
        'metrics:all numbers of the daemon, for Prometheus'
        'top:who is limited now: policies, keys and clients'
        'denials:the last denied checks'
        'slowlog:the last slow checks'
        'clients:the connections, and what each asks for'
        'hash:how a key is written in the log'
        'version:the version of the daemon'
        'reload:read the configuration again; print what this changes'
        'config:the configuration in force'
        'help:show what a command takes'
        'test:run tests of limits, each on a private daemon'
        'test-clock:set the time of the daemon, under --test-clock'
        'test-store:take the store of the daemon away, under --test-clock'
    )
    _arguments \
        '(-s --socket)'{-s,--socket}'[the socket of the daemon]:socket:_files' \
        '--json[print the answer as one JSON object]' \
        '--timeout[give up after this time]:duration:' \
        '--wait=-[after a denial, wait and try again]::duration:' \
        '--deadline[the daemon answers within this time]:duration:' \
        '--max-wait[the longest acceptable delay]:duration:' \
        '--taken-exit[exit with this status if no slot is available]:status:' \
        '--at-most[charge as many units as are available, up to N]:units:' \
        '--request-id[sent again with the same ID, it is done once]:id:' \
        '--ttl[give the units back if not settled within this time]:duration:' \
        '--all[every counter and gauge]' \
        '--output[replace this file by the metrics]:file:_files' \
        '--run[only the tests whose names match]:regular expression:' \
        '--junit[write the results into this file]:file:_files' \
        '--dry-run[print what a reload would change, and change nothing]' \
        '(-n --turns)'{-n,--turns}'[look so many times, then end]:number:' \
        '--by[these alone]:kind:(policy key client)' \
        '(-f --follow)'{-f,--follow}'[go on with those that come]' \
        '--policy[of this policy alone]:policy:' \
        '--key[of this key alone]:key:' \
        '--uid[of connections of this user alone]:number:' \
        '--match[all keys that match]:pattern:' \
        '--reset[forget the slow checks]' \
        '(-h --help)'{-h,--help}'[list commands and options]' \
        '--version[the version of ratelimitctl]' \
        '1:command:->command' '2:policy:->policy' '*:argument:->argument'
    case $state in
    command) _describe command commands ;;
    policy)
        case ${line[1]} in
        check|check-all|check-many|peek|explain|reset|refund|reserve|acquire|policies) _ratelimitctl_policies ;;
        help) _describe command commands ;;
        test) _files ;;
        test-store) compadd down up clear ;;
        esac
        ;;
    argument) [[ ${line[1]} != test ]] || _files ;;
    esac
}

_ratelimitctl "$@"

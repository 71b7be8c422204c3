# Completion of ratelimitctl for bash.
_ratelimitctl()
{
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command="" word words i
    local commands="check check-all check-many peek explain reset refund reserve settle cancel acquire policies stats metrics top denials slowlog clients hash ping version reload config test test-clock test-store help"
    local options="-s --socket --json --timeout --wait --deadline --max-wait --at-most --request-id --ttl --taken-exit --all --dry-run --output --run --junit --turns --by --follow --policy --key --uid --match --reset --help --version"
    local -a socket=()
    case $previous in
    -s | --socket | --output | --junit)
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    --timeout | --deadline | --max-wait | --at-most | --request-id | --ttl | --taken-exit | --run | -n | --turns | --policy | --key | --uid | --match) return ;;
    --by)
        mapfile -t COMPREPLY < <(compgen -W "policy key client" -- "$current")
        return
        ;;
    esac
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        case $word in
        -s | --socket)
            socket=(-s "${COMP_WORDS[i + 1]}")
            i=$((i + 1))
            ;;
        --timeout | --deadline | --max-wait | --at-most | --request-id | --ttl | --taken-exit | --output | --run | --junit | -n | --turns | --by | --policy | --key | --uid | --match) i=$((i + 1)) ;;
        -*) ;;
        *)
            [[ -z $command || $command == test ]] || return # behind POLICY
            [[ -n $command ]] || command=$word
            ;;
        esac
    done
    words=
    case $command in
    "" | help) words=$commands ;;
    test-store) words="down up clear" ;;
    test)
        if [[ $current != -* ]]; then
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            return
        fi
        ;;
    check | check-all | check-many | peek | explain | reset | refund | reserve | acquire | policies)
        [[ $current == -* ]] ||
            words=$(ratelimitctl "${socket[@]}" --timeout 200ms policies 2>/dev/null | sed -n '2,$s/^\([^ ][^ ]*\).*/\1/p')
        ;;
    esac
    [[ $current != -* ]] || words=$options
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _ratelimitctl ratelimitctl

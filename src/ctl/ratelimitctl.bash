# Completion of ratelimitctl for bash.
_ratelimitctl()
{
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local commands="check check-all check-many peek explain reset refund reserve settle cancel acquire policies stats ping version test-clock" word i
    local -a socket=()
    case $previous in
    -s | --socket)
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    --timeout | --deadline | --max-wait | --at-most | --request-id | --ttl) return ;;
    check | check-all | check-many | peek | explain | reset | refund | reserve | acquire)
        for ((i = 1; i < COMP_CWORD - 1; i++)); do
            word=${COMP_WORDS[i]}
            case $word in -s | --socket) socket=(-s "${COMP_WORDS[i + 1]}") ;; esac
        done
        word=$(ratelimitctl "${socket[@]}" --timeout 200ms policies 2>/dev/null | cut -d' ' -f1)
        mapfile -t COMPREPLY < <(compgen -W "$word" -- "$current")
        return
        ;;
    esac
    for ((i = 1; i < COMP_CWORD; i++)); do
        case " $commands " in *" ${COMP_WORDS[i]} "*) return ;; esac
    done
    word="-s --socket --json --timeout --deadline --max-wait --at-most --request-id --ttl --help --version $commands"
    mapfile -t COMPREPLY < <(compgen -W "$word" -- "$current")
}
complete -F _ratelimitctl ratelimitctl

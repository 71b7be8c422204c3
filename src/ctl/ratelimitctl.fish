# Completion of ratelimitctl for fish.
function __ratelimitctl_policies
    set -l words (commandline -opc)
    set -l socket
    for i in (seq (count $words))
        if contains -- $words[$i] -s --socket; and test (count $words) -gt $i
            set socket -s $words[(math $i + 1)]
        end
    end
    ratelimitctl $socket --timeout 200ms policies 2>/dev/null | sed -n '2,$s/^\([^ ][^ ]*\).*/\1/p'
end

# Is the word at the cursor the one behind one of these commands, whatever options stand between?
function __ratelimitctl_follows
    set -l words (commandline -opc)
    set -l plain
    set -l is_value no
    for word in $words[2..]
        if test $is_value = yes
            set is_value no
        else if contains -- $word -s --socket --timeout --deadline --max-wait --at-most --request-id --ttl --taken-exit --output --run --junit -n --turns --by --policy --key --uid --match
            set is_value yes
        else if not string match -q -- '-*' $word
            set -a plain $word
        end
    end
    test (count $plain) -eq 1; and contains -- $plain[1] $argv
end

set -l with_policy check check-all check-many peek explain reset refund reserve acquire policies
set -l commands $with_policy settle cancel stats metrics top denials slowlog clients hash ping version reload config test test-clock test-store help

complete -c ratelimitctl -f
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a check -d 'charge COST (1) if the policy allows it'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a check-all -d 'charge all of several, or none'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a check-many -d 'charge several, each by itself'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a refund -d 'give back UNITS that were charged'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a reset -d 'forget what KEY has used under POLICY'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a reserve -d 'charge an estimate'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a settle -d 'UNITS of a reservation were used'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a cancel -d 'nothing of a reservation was used'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a acquire -d 'hold a slot while COMMAND runs'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a peek -d 'show what a check would answer'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a explain -d 'explain the answer to a check'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a policies -d 'the policies, with their limits and counts'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a help -d 'show what a command takes'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a ping -d 'test that the daemon answers'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a stats -d 'the main counts of the daemon'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a metrics -d 'all numbers of the daemon, for Prometheus'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a top -d 'who is limited now: policies, keys and clients'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a denials -d 'the last denied checks'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a slowlog -d 'the last slow checks'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a clients -d 'the connections, and what each asks for'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a hash -d 'how a key is written in the log'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a version -d 'the version of the daemon'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a reload -d 'read the configuration again; print what this changes'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a config -d 'the configuration in force'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a test -d 'run tests of limits, each on a private daemon'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a test-clock -d 'set the time of the daemon'
complete -c ratelimitctl -n "not __fish_seen_subcommand_from $commands" -a test-store -d 'take the store of the daemon away'
complete -c ratelimitctl -n "__fish_seen_subcommand_from test" -F
complete -c ratelimitctl -n "__ratelimitctl_follows test-store" -a 'down up clear'
complete -c ratelimitctl -n "__ratelimitctl_follows $with_policy" -a '(__ratelimitctl_policies)'
complete -c ratelimitctl -n "__ratelimitctl_follows help" -a "$commands"
complete -c ratelimitctl -s s -l socket -r -F -d 'the socket of the daemon'
complete -c ratelimitctl -l json -d 'print the answer as one JSON object'
complete -c ratelimitctl -l timeout -x -d 'give up after this time'
complete -c ratelimitctl -l wait -d 'after a denial, wait and try again'
complete -c ratelimitctl -l deadline -x -d 'the daemon answers within this time'
complete -c ratelimitctl -l max-wait -x -d 'the longest acceptable delay'
complete -c ratelimitctl -l at-most -x -d 'charge as many units as are available, up to N'
complete -c ratelimitctl -l request-id -x -d 'sent again with the same ID, it is done once'
complete -c ratelimitctl -l ttl -x -d 'give the units back if not settled within this time'
complete -c ratelimitctl -l all -d 'every counter and gauge'
complete -c ratelimitctl -l taken-exit -x -d 'exit with this status if no slot is available'
complete -c ratelimitctl -l output -r -F -d 'replace this file by the metrics'
complete -c ratelimitctl -l run -x -d 'only the tests whose names match'
complete -c ratelimitctl -l junit -r -F -d 'write the results into this file'
complete -c ratelimitctl -l dry-run -d 'print what a reload would change, and change nothing'
complete -c ratelimitctl -s n -l turns -x -d 'look so many times, then end'
complete -c ratelimitctl -l by -x -a 'policy key client' -d 'these alone'
complete -c ratelimitctl -s f -l follow -d 'go on with those that come'
complete -c ratelimitctl -l policy -x -d 'of this policy alone'
complete -c ratelimitctl -l key -x -d 'of this key alone'
complete -c ratelimitctl -l uid -x -d 'of connections of this user alone'
complete -c ratelimitctl -l match -x -d 'all keys that match'
complete -c ratelimitctl -l reset -d 'forget the slow checks'
complete -c ratelimitctl -s h -l help -d 'list commands and options'
complete -c ratelimitctl -l version -d 'the version of ratelimitctl'

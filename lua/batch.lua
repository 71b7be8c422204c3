--
-- batch.lua: a batch of ops in one call. lua/stitch.py puts the fragments of every algorithm (lua/NAME.lua) into the places
-- marked --@@; src/redis/batch.c gathers a batch, src/redis/batch_pack.c packs it, src/redis/batch_reply.c reads the reply.
--
-- The script decides what is charged; it returns the states that it saw, and `now`, from which the daemon derives every
-- answer with the same integer arithmetic. For every algorithm:
--   available   floor((capacity - used) / step)
--   charge      used = used + units * step
--   give back   what was charged since the state began: at most ceil(used / step) units; used stays at 0 or above
--
-- KEYS     each key once: first those read by MGET, of which the first are the pauses of penalties, then the others. Keys of one
--          limit are consecutive, and so are their pauses. Keys of several hash slots, two at least, are not declared: KEYS is
--          empty, and they stand in ARGV before ARGV[1], which is the last then
-- ARGV[1]  <I4 nonce> <I7 latest: a script that begins later does nothing; us, 0 = never too late> <B flags: 1 = keys are loaded>
--          <H keys read by MGET> <B limits> <H ops>, then the limits, then the ops
--   limit  <B algorithm> <I7 a> <I7 b> <I7 c> <I7 d>
--   op     <B kind> <B limit> <H first key> <H n> <I5 count> <I7 cost>, and by kind
--     a span, the same on n consecutive keys of one limit (limits and keys count from 1; 0 means none):
--       CHECK    count checks of `cost` on a key that nothing else in the batch asks for; 0 checks = a peek
--       LOAD     read the state, for the ops below; count > 0: some of them may charge it
--       SAVE     write it, where it changed
--       RESET    delete it; cost > 0: also a value of a foreign type, because the key belongs to the policy
--     of one key, followed by <c32 slot>; count > 0: later ops ask for the key, too:
--       RELEASE  give the slot back
--       RENEW    begin its lease anew
--     on loaded states, n alike, all limits or none, followed by <B limits> <H key of the idempotency record>
--     <H key of the list of reservations> and per limit <H key> <B how far it moves from one op to the next; of RESERVE and
--     what follows, which go alone, 1: a check takes one of it, so no units of a reservation; 2: a slot, likewise> <I7 step>
--     <I7 cost; SETTLE: debt>; with a record (whose key moves by 1) <I6 ms to keep it> <I4 version>; then
--       CHECK_ALL  nothing more: `count` times the costs, or as often as they fit; 0 = a peek
--       ACQUIRE    <c32 slot>: the slot that is charged to the concurrency limits among them
--       RESERVE    <c8 id> <I7 units> <I7 0> <I7 ms until it ends>: CHECK_ALL, and a reservation
--       SETTLE     <c8 id> <I7 units> <I7 when charged, us> <I7 end, ms>: end a reservation; `cost` was used
--       REFUND     <c8> <I7 level> <I7 when charged, us; 0 = now> <I7 0>: give back each limit's `cost`. With `cost` 0 of the
--                  op behind this <I7 what drains from its `used` in a us>: take back a charge as if it had
--                  not been, so not what has drained since then; with a level, that of then: whole units, and only if
--                  nothing but what drains has changed it
--       SWEEP      <c8> <I7 0> <I7 0> <I7 0>: give back what has ended
--     CHECK_ALL has a `cost` of 1 if its `count` is of one check that takes as many units as fit
--     of n consecutive keys, before all that asks for them, the pauses of their limit's penalty, from the key `count` on:
--       PAUSE      <I7 time> <I7 factor> <I7 max> <I7 forget>, in ms: read them, for the ops on loaded states; cost > 0: reset
-- ARGV[2]  the time in us; only tests send it
-- Reply    integers, for each op in the order of ARGV[1]:
--   CHECK    of each key: used, the state's second integer where the algorithm has one, a wait in us where it is a log
--            (0 where nothing waits)
--   RESET, RELEASE, RENEW  of each key 1: it existed, 0: it did not, -1: it has a foreign type and is unchanged
--   PAUSE    with cost > 0 of each key what RESET says
--   on loaded states  used and second integer of each limit, as seen before it is charged and after what the op gave
--            back; of each limit with a penalty the level and the end in ms of its pause, before the op begins one (level
--            0: none); with a record 0, or 1 (these are the states of the first admission) or 2 (it was admitted under
--            other policies: these are the states of now), when, and how many units each limit was charged then (REFUND:
--            gave back), RESERVE: the low and the high half of the first one's id and its ms; without an admission 0;
--            SETTLE: 0 it was held, 1 it was settled before, 2 it has ended, 3 this is no longer known; and the
--            largest number that a limit gave back; REFUND: what each limit gave back; of a check: a wait of each log
--   used -1  the key holds a foreign type: the ops on it do nothing. Of keys that are not declared also -2: some key of the op
--            is not here, and -3: the user has no right to it; that counts for each of the op's keys
--   then now in us | malformed values met, which count as fresh | nonce
--   a script that begins too late returns -2, now, nonce
--
-- The fragments of an algorithm read and set these locals, nothing else:
--   @prepare   now, now_ms, a, b, c, d -> step, and what is the same for all keys of the limit: edge, base, px (an expiry)
--              as it likes; second: 0, where it has a second integer; start: what that becomes with the first charge, and
--              where renews is true with every one that raises it;
--              since, fresh: charges before are of a state that is over (of this state, of one that begins now);
--              window: us, of logs; counted: denials are charged too, up to so much
--   @view      key, raw (MGET's), count -> used, extra (second integer), capacity, more (for save; 1: it stands as it is),
--              since, stale: it must be written even if nothing is charged (the clock stepped back). used -1: foreign type;
--              refused: the error of its first command
--   @save      key, raw, used, extra, more, stale, charge (units since it was read) -> done: false where the key has a foreign
--              type. Always sets an absolute expiry
--   @check     the whole of CHECK where count > 0, for a shorter way than view and save
--   @wait      key, place (of a time, from the newest: -1) -> wait until that has left the window   (logs)
--   @recount   key, a -> used, extra, as view, which has been there before   (slots)
--   @refund    key, used, extra, more, units, charged_at -> gives, extra; takes them out   (logs; nothing is charged yet)
-- Anything that is not exactly an algorithm's own format counts as fresh, so that one broken value cannot fail a batch.
--
-- While a hash slot moves, its old node refuses a command on a key that it does not have, and so on one that this script has
-- emptied: the rest of the batch would not be done. So no key is emptied that a later command may name: what replaces
-- something is written first. Where nothing does, a list or set keeps one that counts as ended until the end of the batch.
--
-- Keys that are not declared may have moved away, or need a right: a server finds that with the first command on each. An op
-- on such a key does nothing, nor do later ops on the other keys of an op that is away, for they may not overtake it. What is
-- read and written at once (CHECK, RESET) finds it by its own first command; if keys are loaded, each key is read before
-- anything is written. Any other error ends the call: with nothing done it is returned, else raised. No command names keys of
-- two hash slots: Valkey 9 would refuse every later script.
--
-- The pause of a penalty: <I4 level> <I6 end ms>, 10 bytes; src/limit/penalty.c explains it. It is written when a check begins
-- it, or when it is longer than one that begins now, and never else; the limit's own state does not show it.
-- An idempotency record: <I7 time> <I4 version>, per limit <I7 used> <I7 second integer> <I7 units>; RESERVE: <c8 id> <I7 ms
-- until it ends>.
-- The reservations of a policy and key: a ZSET by their ends in ms, <c8 id> <I7 units> <I7 when charged, us>; what was
-- settled is a tombstone, <c8 id>, for a minute longer. It expires a minute after the last of them. A day is the longest:
-- a later end keeps neither a tombstone nor the list for longer than that.
--
local K, S, call, try = KEYS, ARGV[1], redis.call, redis.pcall
local unp, pack, fmt, find, floor, type = struct.unpack, struct.pack, string.format, string.find, math.floor, type
local odd, why, n_reply = nil, nil, 0
if #K == 0 and #ARGV > 2 then
    K, S, odd = ARGV, ARGV[#ARGV], {} -- by the place of a key: -1, -2 or -3 in place of a state
    why = function(refusal) -- which of them; none: another error
        if find(refusal.err, 'WRONGTYPE', 1, true) then return -1 end
        for _, words in ipairs({'non local key', 'slot not served', 'READONLY'}) do -- the last: of a replica that was a master
            if find(refusal.err, words, 1, true) then return -2 end
        end
        if find(refusal.err, 'access at least one of the keys', 1, true) or find(refusal.err, 'permissions to access', 1, true) then
            return -3
        end
        if n_reply > 0 then error(refusal) end
    end
end
local nonce, latest, flags, n_mget, n_limits, n_ops, pos = unp('<I4I7BHBH', S)
local now = not odd and ARGV[2]
if now then
    now = tonumber(now)
else
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
if latest > 0 and now > latest then return {-2, now, nonce} end
local now_ms = floor(now / 1000)
local raws = n_mget > 0 and not odd and call('MGET', unpack(K, 1, n_mget)) or {}
local is_read = not odd or flags == 1 or n_ops == 0 -- else each op reads its own keys
if odd and is_read then
    for i = 1, #K - 1 do
        local raw = try(i <= n_mget and 'GET' or 'EXISTS', K[i])
        if type(raw) == 'table' then
            odd[i] = why(raw)
            if not odd[i] then return raw end
        elseif i <= n_mget then
            raws[i] = raw
        end
    end
    -- Redis from 7.4 looks for a key of a moving hash slot in the slot of the command before, and for the first key in its own:
    -- what was here in the first place may be away later. So the first keys once more, until one is still here.
    for i = 1, #K - 1 do
        local found = (odd[i] or -1) == -1 and try('EXISTS', K[i])
        if type(found) == 'table' then
            raws[i], odd[i] = false, -2
        elseif found then
            break
        end
    end
end
local reply, n_bad, n_added, n_stale = {}, 0, 0, 0
local refused -- the error of a view's first command
-- loaded states, by the place of their key; of some limits only: starts to windows
local useds, extras, mores, capacities, charges, dirty, sinces, stales, starts, renewals, freshes, counts, logs, windows
-- the limits of an op: place of the key and how far it moves, cost of a unit, units, units given back
local at, strides, steps, costs, backs
local is_special = false -- some loaded limit is a log, counts denials, or notes when it began
local CHANGED, GONE = 1, 2 -- in dirty; GONE: given back, down to nothing
local pauses -- of loaded states with a penalty, by the place of their key
local slot -- what is charged to a limit of slots
local late -- by key: a command that takes out what may go only at the end
-- the limit at hand, and what follows from it and now
local bound, algo, a, b, c, d, step, edge, px, base, second, start, renews, since, fresh, window, counted
pos = 18 + 29 * n_limits
for _ = 1, n_ops do
    local kind, limit, first, n, count, cost
    kind, limit, first, n, count, cost, pos = unp('<BBHHI5I7', S, pos)
    if limit > 0 and limit ~= bound then
        bound = limit
        algo, a, b, c, d = unp('<BI7I7I7I7', S, 29 * limit - 11)
        step, second, start, renews, since, fresh, window, counted = 1, nil, nil, nil, 0, 0, nil, nil
        --@@prepare
    end
    if kind == CHECK and count > 0 and algo == FIXED_WINDOW then
        --@@check
    elseif kind <= RESET then
        local all = count * cost
        local need = (count > 0 and all or cost) * step
        if kind == LOAD and not useds then
            useds, extras, mores, capacities, charges, dirty, sinces = {}, {}, {}, {}, {}, {}, {}
            stales, starts, renewals, freshes, counts, logs, windows = {}, {}, {}, {}, {}, {}, {}
            at, strides, steps, costs, backs = {}, {}, {}, {}, {}
            late = late or {}
        end
        for i = first, first + n - 1 do
            local key, raw = K[i], raws[i]
            local used, extra, more, charge, capacity, stale, save = 0, second, 0, 0, a, false, false
            local tuple = n_reply + 1 -- where it begins
            if not is_read and i <= n_mget then
                raw = try('GET', key)
                if type(raw) == 'table' then
                    odd[i] = why(raw)
                    if not odd[i] then return raw end
                end
            end
            if kind == SAVE then
                used, extra, more, charge, stale, save = useds[i], extras[i], mores[i], charges[i], stales[i], dirty[i]
                if save == GONE and used == 0 and (not extra or extra == 0) then -- as good as none
                    save = false
                    if raw then call('DEL', key) end
                end
            elseif odd and odd[i] then
                used = odd[i]
            --@@view
            end
            if refused then
                used = why and why(refused) or find(refused.err, 'WRONGTYPE', 1, true) and -1
                if not used then return refused end
                refused = nil
            end
            if kind == CHECK then
                if all == 0 and not raw and i <= n_mget and not odd and call('EXISTS', key) == 1 then used = -1 end
                local wait = 0
                charge = all
                if used < 0 then
                    charge = 0
                elseif used + need > capacity and cost > 0 then
                    if not counted then
                        charge = count > 0 and used < capacity and floor((capacity - used) / (cost * step)) * cost or 0
                        if charge == 0 and not raw and i <= n_mget and not odd and call('EXISTS', key) == 1 then used = -1 end
                    end
                    if window then -- until the nth of the units that count, oldest first, has left it
                        local nth = used + charge + (count == 0 and counted and cost or 0) + cost - capacity
                        wait = window
                        if nth >= 1 and nth <= used then
                            local place = fmt('%d', nth - used - 1)
                            --@@wait
                            if not (wait >= 1) then wait = 1 end -- a value of somebody else's amid the times
                            if wait > window then wait = window end
                        end
                    end
                end
                n_reply = tuple
                reply[tuple] = used
                if extra then
                    n_reply = n_reply + 1
                    reply[n_reply] = extra
                end
                if window then
                    n_reply = n_reply + 1
                    reply[n_reply] = wait
                end
                used, save = used + charge * step, stale or charge > 0
            elseif kind == LOAD then
                if not raw and i <= n_mget and not odd and call('EXISTS', key) == 1 then used = -1 end
                useds[i], mores[i], capacities[i] = used, more, capacity
                if extra then extras[i] = extra end
                charges[i], dirty[i], sinces[i] = 0, false, since
                if stale then
                    stales[i], n_stale = true, n_stale + 1
                elseif n_stale > 0 then
                    stales[i] = nil
                end
                if start or counted or window then
                    is_special = true
                    starts[i], renewals[i], freshes[i], counts[i] = start, renews, fresh, counted
                    if window then logs[i], windows[i] = algo, window end
                end
            elseif kind == RESET then
                if not raw and i <= n_mget and not odd and call('EXISTS', key) == 1 then used = -1 end
                local stands = extra and extra > 0 or not extra and more == 1
                local found = (used > 0 or stale or stands and not window) and 1 or 0
                if used < -1 then
                    found = used
                elseif used < 0 and cost > 0 then
                    found, n_bad = 1, n_bad + 1
                elseif used < 0 then
                    found = -1
                end
                n_reply = tuple
                reply[tuple] = found
                if found >= 0 then call('DEL', key) end
            end
            if save then
                local done = true
                --@@save
                if not done and kind == CHECK then
                    reply[tuple] = -1
                    if window then reply[n_reply] = 0 end
                end
            end
        end
    elseif kind <= RENEW then
        slot, pos = unp('<c32', S, pos)
        local key, found = K[first], odd and odd[first]
        late = late or {}
        local is_last = not found and kind == RELEASE and (late[key] or count > 0 and try('ZCOUNT', key, '-inf', '+inf') == 1)
        if is_last then -- its lease ends now; it is taken out at the end
            found = try('ZADD', key, 'XX', 'CH', '0', slot)
            late[key] = {'ZREMRANGEBYSCORE', key, '0', '0'}
        elseif not found then
            found = try(kind == RELEASE and 'ZREM' or 'ZSCORE', key, slot)
        end
        if type(found) == 'table' then
            if not find(found.err, 'WRONGTYPE', 1, true) then error(found) end
            found = -1
        elseif found == '0' then -- given back by an op before
            found = 0
        elseif kind == RENEW and type(found) == 'string' then
            call('ZADD', key, fmt('%.0f', edge), slot)
            call('PEXPIREAT', key, fmt('%.0f', edge + b))
            found = 1
        end
        n_reply = n_reply + 1
        reply[n_reply] = found or 0
    elseif kind == PAUSE then
        local time, factor, most, forget
        time, factor, most, forget, pos = unp('<I7I7I7I7', S, pos)
        pauses = pauses or {}
        for i = first, first + n - 1 do
            local at = count + i - first
            local raw, level, ends, found = raws[at], 0, 0, 0
            if odd and (odd[at] or -1) < (odd[i] or -1) then odd[i] = odd[at] end
            if raw and #raw == 10 then level, ends = unp('<I4I6', raw) end
            if level == 0 then
                if raw then n_bad = n_bad + 1 end
                ends = 0
            end
            local length, next_level, next_length = time, 1, time
            for _ = 2, level do
                if length >= most then break end
                length = length * factor
            end
            if length > most then length = most end
            if level > 0 and now_ms < ends + forget then
                found, next_level, next_length = 1, level < 4294967295 and level + 1 or level, length * factor
                if next_length > most then next_length = most end
            end
            if cost > 0 then
                if odd and odd[i] and odd[i] < -1 then found = odd[i] end
                n_reply = n_reply + 1
                reply[n_reply] = found
                if found >= 0 then call('DEL', K[at]) end
            else
                local stale = ends > now_ms + length -- the clock stepped back, or the penalty was made shorter
                pauses[i] = {
                    key = K[at], raw = raw, level = level, ends = stale and now_ms + length or ends, stale = stale,
                    forget = forget, next_level = next_level, next_ends = now_ms + next_length,
                }
            end
        end
    else
        local members, record, list, keep_ms, version, id, held, made, ends, has_slots, drains
        members, record, list, pos = unp('<BHH', S, pos)
        for j = 1, members do
            at[j], strides[j], steps[j], costs[j], pos = unp('<HBI7I7', S, pos)
        end
        if record > 0 then keep_ms, version, pos = unp('<I6I4', S, pos) end
        if kind == ACQUIRE then
            slot, pos = unp('<c32', S, pos)
        elseif kind >= RESERVE then
            id, held, made, ends, pos = unp('<c8I7I7I7', S, pos)
            for j = 1, members do has_slots = has_slots or strides[j] == 2 end
            if kind == REFUND and cost == 0 then
                drains = {}
                for j = 1, members do drains[j], pos = unp('<I7', S, pos) end
            end
        end
        for _ = 1, n do
            local intact = true -- no key of the op has a foreign type
            for j = 1, members do
                if useds[at[j]] < 0 then intact = false end
            end
            local absent = nil -- -2: some key of it is not here, -3: or needs a right
            for j = 1, odd and members + 2 or 0 do
                local what = odd[j <= members and at[j] or j == members + 1 and record or list]
                if what and what < (absent or -1) then absent = what end
            end
            if absent then
                intact = false
                for j = 1, absent == -2 and members or 0 do odd[at[j]] = -2 end
            end

            -- was it admitted before?
            local known, again, n_recorded = nil, 0, 0
            if record > 0 and not absent then known = raws[record] end
            if known then
                n_recorded = (#known - (kind == RESERVE and 26 or 11)) / 21
                if n_recorded < 1 or n_recorded > 16 or n_recorded % 1 > 0 then
                    n_bad = n_bad + 1
                else
                    local largest, of = unp('<I7I4', known)
                    local begins = largest
                    for j = 1, n_recorded do
                        local was, was_extra, units = unp('<I7I7I7', known, 21 * j - 9)
                        if was > largest then largest = was end
                        if was_extra > largest then largest = was_extra end
                        if units > largest then largest = units end
                    end
                    if kind == RESERVE then
                        local first_ends = unp('<I7', known, #known - 6)
                        if first_ends < 1 or first_ends > 86400000 then largest = 1e300 end
                    end
                    if largest > 9007199254740991 then -- no script writes such numbers, and no daemon takes them
                        n_bad = n_bad + 1
                    elseif begins + keep_ms * 1000 > now then
                        again = of == version and n_recorded == members and 1 or 2
                    end
                end
            end

            -- give back what has ended, and what the op itself says
            local settled, foreign, ended, taken = 2, false, nil, nil
            if kind == REFUND and record > 0 and not known and not absent and call('EXISTS', K[record]) == 1 then
                intact, foreign = false, true -- before anything is given back
            end
            if kind >= RESERVE and again == 0 then
                local own, own_made = 0, made
                ended = {}
                if list > 0 and intact then
                    ended = try('ZRANGEBYSCORE', K[list], '(0', fmt('%.0f', now_ms), 'LIMIT', '0', '64')
                    if ended.err then
                        if not find(ended.err, 'WRONGTYPE', 1, true) then error(ended) end
                        ended, intact, foreign = {}, false, true
                    end
                end
                if kind == SETTLE and intact then
                    local entry = id .. pack('<I7I7', held, made)
                    local is_settled, is_held = call('ZSCORE', K[list], id), call('ZSCORE', K[list], entry)
                    for e = 1, #ended do
                        if ended[e] == id then is_settled = false end
                        if ended[e] == entry then is_held = false end
                    end
                    if is_settled then
                        settled = 1
                    elseif ends + 60000 <= now_ms then
                        settled = 3
                    elseif is_held then
                        settled, taken = 0, entry
                        own = held - cost
                    elseif ends > now_ms + 86400000 then -- no reservation ends so late, but where the clock stepped back
                        settled = 3
                    end
                elseif kind == REFUND then
                    own, own_made = 1, (drains or made > 0) and made or now
                end
                for j = 1, members do backs[j] = 0 end
                for e = 1, intact and #ended + 1 or 0 do
                    local from, charged_at = own, own_made
                    if e <= #ended then
                        from = 0 -- a tombstone
                        if #ended[e] == 22 then from, charged_at = unp('<I7I7', ended[e], 9) end
                    end
                    for j = 1, from > 0 and members or 0 do
                        local i, gives, level = at[j], 0, 0
                        local used, units = useds[i], strides[j] == 0 and from or 0
                        local drain = drains and e > #ended and drains[j]
                        if kind == REFUND and e > #ended then units = costs[j] end
                        if logs[i] then
                            local algo, key, extra, more = logs[i], K[i], extras[i], mores[i]
                            if not counts[i] or used <= capacities[i] then -- else denied units are among those that count
                                --@@refund
                            end
                            if gives > 0 then
                                useds[i], extras[i], mores[i], dirty[i] = used - gives, extra, more, CHANGED
                            end
                        else
                            if charged_at >= sinces[i] then
                                gives = -floor(-used / steps[j]) -- rounded up: a unit that is partly back counts as one
                                if units < gives then gives = units end
                                level = gives * steps[j]
                            end
                            if drain and drain > 0 and held > 0 then
                                gives = used == held + (charged_at - now) * drain and floor(used / steps[j]) or 0
                                if units < gives then gives = units end
                                level = gives * steps[j]
                            elseif drain and drain > 0 then
                                level = units * steps[j] - (now > charged_at and (now - charged_at) * drain or 0)
                                level = level < 0 and 0 or level < used and level or used
                                gives = -floor(-level / steps[j])
                            end
                            if gives > 0 or stales[i] and not dirty[i] then
                                used = used > level and used - level or 0
                                useds[i], charges[i], dirty[i] = used, charges[i] - gives, used == 0 and GONE or CHANGED
                                if used == 0 and starts[i] then -- without a unit no window runs
                                    extras[i], mores[i], sinces[i] = 0, 0, freshes[i]
                                end
                            end
                        end
                        if e > #ended then backs[j] = gives end
                    end
                end
            end

            -- a reservation's slot goes by its id; it ends with that, and is taken out at the end of the batch
            for e = 1, has_slots and intact and again == 0 and #ended + 1 or 0 do
                local entry = ended[e] or id
                local is_over = #entry == 22 or not ended[e] -- no tombstone, and nothing foreign
                if is_over then
                    local low, high = unp('<I4I4', entry)
                    slot = fmt('%08x%08x%08x%08x', high, low, high, low)
                end
                for j = 1, is_over and (ended[e] or kind == SETTLE) and members or 0 do
                    local i = at[j]
                    local key, a = K[i], capacities[i]
                    if strides[j] == 2 and call('ZADD', key, 'XX', 'CH', '0', slot) == 1 then
                        local algo, used, extra = CONCURRENCY, 0, 0
                        late[key] = {'ZREMRANGEBYSCORE', key, '0', '0'}
                        --@@recount
                        useds[i], extras[i] = used, extra
                    end
                end
            end

            -- an op that reads a state ahead of the clock has it written
            for j = 1, n_stale > 0 and again ~= 1 and not absent and members or 0 do
                local i = at[j]
                if stales[i] and not dirty[i] and (again == 0 or logs[i]) then
                    dirty[i] = CHANGED
                    if extras[i] == 0 and starts[i] and not logs[i] then extras[i] = starts[i] end
                end
            end

            -- the states, and how often the costs fit
            local fit, tuple = count > 0 and count or 1, n_reply + 1
            for j = 1, members do
                local i = at[j]
                local used, extra, need = useds[i], extras[i], costs[j] * steps[j]
                if need > 0 and used + need * fit > capacities[i] then
                    fit = used < capacities[i] and floor((capacities[i] - used) / need) or 0
                end
                if is_special and logs[i] == SLIDING_LOG and charges[i] > 0 then -- a log keeps no more times
                    local most = capacities[i] + (counts[i] and 1 or 0)
                    if used > most then used = most end
                end
                n_reply = n_reply + 1
                reply[n_reply] = absent or foreign and -1 or used
                if extra then
                    n_reply = n_reply + 1
                    reply[n_reply] = extra
                end
            end
            for j = 1, pauses and members or 0 do
                local pause = pauses[at[j]]
                if pause then
                    reply[n_reply + 1], reply[n_reply + 2] = pause.level, pause.ends
                    n_reply = n_reply + 2
                    if costs[j] > 0 and now_ms < pause.ends then fit = 0 end
                    if pause.stale and again ~= 1 and not absent then
                        local expiry = fmt('%.0f', pause.ends + pause.forget)
                        call('SET', pause.key, pack('<I4I6', pause.level, pause.ends), 'PXAT', expiry)
                        pause.stale = false
                    end
                end
            end
            local asked = intact and again == 0 and kind <= RESERVE and count or 0
            local admitted = fit < asked and fit or asked

            -- the first answer again, or remember this one; before it is charged, for the key may have a foreign type
            if record > 0 then
                local text
                local filled = n_reply -- the integers before those of the record
                n_reply = filled + 2 + members
                reply[filled + 1], reply[filled + 2] = again, 0
                for j = 1, members do reply[filled + 2 + j] = 0 end
                if again > 0 then
                    reply[filled + 2] = (unp('<I7', known))
                    for j = 1, members do
                        reply[filled + 2 + j] = (unp('<I7', known, 21 * (j < n_recorded and j or n_recorded) + 5))
                    end
                    for j = 1, again == 1 and members or 0 do
                        local was, was_extra = unp('<I7I7', known, 21 * j - 9)
                        reply[tuple] = was
                        if extras[at[j]] then
                            tuple = tuple + 1
                            reply[tuple] = was_extra
                        end
                        tuple = tuple + 1
                    end
                else
                    local charged = kind == REFUND and intact and 1 or 0
                    for j = 1, members do charged = charged + admitted * costs[j] end
                    if charged > 0 then
                        text = pack('<I7I4', now, version)
                        for j = 1, members do
                            local i = at[j]
                            local used = useds[i]
                            if logs[i] == SLIDING_LOG and charges[i] > 0 then
                                local most = capacities[i] + (counts[i] and 1 or 0)
                                if used > most then used = most end
                            end
                            local units = kind == REFUND and backs[j] or admitted * costs[j]
                            text = text .. pack('<I7I7I7', used, extras[i] or 0, units)
                        end
                        if kind == RESERVE then text = text .. pack('<c8I7', id, ends) end
                    end
                    local expiry = fmt('%.0f', now_ms + keep_ms + 1)
                    if text and known then
                        call('SET', K[record], text, 'PXAT', expiry)
                    elseif text then
                        foreign = not call('SET', K[record], text, 'PXAT', expiry, 'NX')
                    elseif not known and not absent then
                        foreign = call('EXISTS', K[record]) == 1
                    end
                    if foreign then
                        intact, asked, admitted = false, 0, 0
                        for j = 1, members do
                            reply[tuple] = -1
                            tuple = tuple + (extras[at[j]] and 2 or 1)
                        end
                    elseif text then
                        raws[record] = text
                    end
                end
                if kind == RESERVE then
                    local low, high, first_ends = 0, 0, 0
                    if again > 0 then low, high, first_ends = unp('<I4I4I7', known, #known - 14) end
                    reply[n_reply + 1], reply[n_reply + 2], reply[n_reply + 3] = low, high, first_ends
                    n_reply = n_reply + 3
                end
                record = record + 1
            end

            if kind == SETTLE then
                local units, most = settled == 0 and cost - held or settled == 2 and cost or 0, 0
                for j = 1, members do -- costs: by how much each limit may be overdrawn
                    local i = at[j]
                    local fits = floor((capacities[i] - useds[i]) / steps[j]) + costs[j]
                    if units > fits then units = fits > 0 and fits or 0 end
                end
                admitted = intact and units > 0 and units or 0
                for j = 1, members do
                    costs[j] = strides[j] == 0 and 1 or 0
                    if backs[j] > most then most = backs[j] end
                end
                reply[n_reply + 1], reply[n_reply + 2] = settled, most
                n_reply = n_reply + 2
            elseif kind == REFUND then
                for j = 1, members do reply[n_reply + j] = again == 0 and backs[j] or 0 end
                n_reply = n_reply + members
            end

            -- make a reservation, or leave a tombstone
            if list > 0 then
                local entry, entry_ends
                local last_end = now_ms + 86400000 -- neither ends later
                if kind == RESERVE and admitted > 0 then
                    entry, entry_ends = id .. pack('<I7I7', held, now), now_ms + ends
                elseif kind == SETTLE and intact and (settled == 0 or settled == 2) then
                    entry, entry_ends = id, (ends < last_end and ends or last_end) + 60000
                end
                if entry then
                    call('ZADD', K[list], fmt('%.0f', entry_ends), entry)
                elseif ended and #ended > 0 and call('ZCOUNT', K[list], '-inf', '+inf') == #ended then
                    call('ZADD', K[list], '0', '') -- no op looks at it
                    late[K[list]] = {'ZREMRANGEBYSCORE', K[list], '0', '0'}
                end
                if taken then ended[#ended + 1] = taken end
                if ended and #ended > 0 then call('ZREM', K[list], unpack(ended)) end
                if entry then
                    local last = tonumber(call('ZREVRANGE', K[list], '0', '0', 'WITHSCORES')[2])
                    last_end = last_end + 60000
                    call('PEXPIREAT', K[list], fmt('%.0f', (last < last_end and last or last_end) + 60000))
                end
            end

            -- charge, and report how long a denied check has to wait
            for j = 1, members do
                local i = at[j]
                local used, charge = useds[i], admitted * costs[j]
                if is_special and admitted == 0 and asked > 0 and counts[i] then charge = costs[j] end
                if is_special and logs[i] and kind <= RESERVE then
                    local wait = 0
                    if intact and again == 0 and costs[j] > 0 and fit < (count > 0 and count or 1) then
                        local algo, key, window = logs[i], K[i], windows[i]
                        local stored = used - charges[i] -- the others are in no log yet
                        local nth = used + charge + (count == 0 and counts[i] and costs[j] or 0) + costs[j] - capacities[i]
                        wait = window
                        if nth >= 1 and nth <= stored then
                            local place = fmt('%d', nth - stored - 1)
                            --@@wait
                            if not (wait >= 1) then wait = 1 end
                            if wait > window then wait = window end
                        end
                    end
                    n_reply = n_reply + 1
                    reply[n_reply] = wait
                end
                if charge > 0 then
                    used = used + charge * steps[j]
                    if is_special then
                        if counts[i] and used > counts[i] then used = counts[i] end
                        if starts[i] and (extras[i] == 0 or renewals[i] and extras[i] < starts[i]) then extras[i] = starts[i] end
                    end
                    useds[i], charges[i], dirty[i] = used, charges[i] + charge, CHANGED
                end
                local pause = pauses and costs[j] > 0 and admitted < asked and (cost == 0 or admitted == 0) and pauses[i]
                if pause and now_ms >= pause.ends and used + steps[j] > capacities[i] then -- a breach
                    local text = pack('<I4I6', pause.next_level, pause.next_ends)
                    local expiry = fmt('%.0f', pause.next_ends + pause.forget)
                    if not call('SET', pause.key, text, 'PXAT', expiry, pause.raw and 'XX' or 'NX') then -- of a foreign type
                        n_bad = n_bad + 1
                        call('SET', pause.key, text, 'PXAT', expiry)
                    end
                    pause.level, pause.ends = pause.next_level, pause.next_ends
                end
                at[j] = i + strides[j]
            end
        end
    end
end
if late then
    for _, command in pairs(late) do call(unpack(command)) end
end
reply[n_reply + 1] = now
reply[n_reply + 2] = n_bad
reply[n_reply + 3] = nonce
return reply

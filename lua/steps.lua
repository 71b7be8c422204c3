--
-- steps.lua: the turn whose checks are handled one after the other, inlined into core.lua. For what charges, gives
-- back or remembers in ways that the fast path's arithmetic over whole turns does not know. Each step reads its
-- members' states itself, decides, and writes before the next one begins, so a key may occur in many steps.
-- src/store/turn_steps.c packs such a turn and reads the reply, and is this file's twin.
--
-- KEYS     each state's key once, then the keys that belong to one step alone (notes ...)
-- ARGV[1]  <I4 nonce> <I7 latest, us> <H 65535> <B runs> <H steps>, then the runs, then the steps
--   run    <B algorithm> <I7 a> <I7 b> <I7 c> <I7 d>
--   step   <B kind> <B members>, per member <B run, from 1> <H key, from 1> <I7 cost>, then the kind's own fields
-- Reply    per step: s1 and s2 of each member, as seen before it (and after what the step itself gave back first); -1, 0
--          for a foreign type, where nothing of the step is done and nothing more is said; then what its kind says.
--          | now in us | malformed values met, which count as fresh | nonce
--
-- The kinds are numbered by src/store/step.def, which says the file of each, lua/step_NAME.lua: what it does with
--   n, keys, runs_of, costs       the step's members: their number; by member the key, the run and the cost
--   pos                           where its own fields begin; it leaves it behind them
--   look(k)                       read(k) and say() in one, where nothing is given back before
--   read(k)                       read all members: fills s1s, s2s, rooms ...; k 0: only a look. False where one of them
--                                 has a foreign type, or failed: then the step is over
--   say()                         tell s1 and s2 of all members, as they stand
--   refund(j, units, made)        give back to member j what was charged at `made` (us), as far as its algorithm does, and
--                                 write it; s1s and s2s are as after it, all else is stale: read again to decide.
--                                 Returns how many units that gave back
--   decide(k, most)               charge `cost` to every member (k 1), or only look whether it fits (k 0); most: so
--                                 many times, or as often as it fits; denials are counted where they are. Fills
--                                 charged, and says the waits: one in us for each denied log with a cost.
--                                 Returns how often it fits
--   tell(integer)                 one more integer of the reply
--   take_ended(key)               give back what has ended of the holds in `key`; false: the step is over
--   keep_holds(key)               after one was added
-- The holds of a policy and key are a ZSET by their ends in ms: <c8 id> <I7 units> <I7 when charged, us>; what was settled
-- is a mark, <c8 id>, for a minute longer. It expires a minute after the last of them. A day is the longest hold: what seems
-- to end later than one from now keeps neither a mark nor the list for longer.
--
if n_mget == 65535 then
    local n_out, failed = 0, nil -- failed: the error that ends the turn
    local n, keys, runs_of, costs, charged = 0, {}, {}, {}, {}
    local s1s, s2s, mores, keeps, rooms, raws, counts, logs = {}, {}, {}, {}, {}, {}, {}, {}
    local runs = {}
    for r = 1, n_runs do
        local algo, a, b, c, d
        algo, a, b, c, d, pos = unp('<BI7I7I7I7', S, pos)
        runs[r] = {algo, a, b, c, d}
    end

    local function tell(integer)
        n_out = n_out + 1
        out[n_out] = integer
    end

    -- s1 (-1: foreign type; a table: an error), s2, more, keep, room, raw, denials count, it is a log
    local function see(key, run, k)
        local algo, a, b, c, d = run[1], run[2], run[3], run[4], run[5]
        --@@see
    end

    local function put(key, run, raw, s1, s2, more, units)
        local algo, a, b, c, d = run[1], run[2], run[3], run[4], run[5]
        --@@put
    end

    -- s1, s2 of what is left, and how many units that gave back
    local function give(key, run, raw, s1, s2, more, keep, units, made)
        local algo, a, b, c, d = run[1], run[2], run[3], run[4], run[5]
        --@@give
    end

    local function wait_of(key, run, s1, more, counting, cost)
        local algo, a, b = run[1], run[2], run[3]
        local wait
        --@@waits
        return wait
    end

    local function read(k)
        local intact = true
        for j = 1, n do
            local s1
            s1, s2s[j], mores[j], keeps[j], rooms[j], raws[j], counts[j], logs[j] = see(keys[j], runs_of[j], k)
            if type(s1) == 'table' then
                failed = s1
                return false
            end
            s1s[j] = s1
            if s1 < 0 then intact = false end
        end
        return intact
    end

    local function say()
        for j = 1, n do
            tell(s1s[j])
            tell(s1s[j] < 0 and 0 or s2s[j])
        end
    end

    local function look(k)
        local intact = read(k)
        if not failed then say() end
        return intact
    end

    local function refund(j, units, made)
        local back
        s1s[j], s2s[j], back = give(keys[j], runs_of[j], raws[j], s1s[j], s2s[j], mores[j], keeps[j], units, made)
        return back
    end

    local function decide(k, most)
        local fit = most
        for j = 1, n do
            local cost = costs[j]
            if cost > 0 and rooms[j] < fit * cost then fit = rooms[j] > 0 and floor(rooms[j] / cost) or 0 end
        end
        for j = 1, n do
            local cost, s1 = costs[j], s1s[j]
            local units = k * fit * cost
            if fit < 1 and counts[j] then units = k * cost end
            if fit < 1 and cost > 0 and logs[j] then
                local counting = s1 + units
                if counts[j] and k == 0 then counting = counting + cost end
                tell(wait_of(keys[j], runs_of[j], s1, mores[j], counting, cost))
            end
            charged[j] = units
            if units > 0 or keeps[j] < 0 then put(keys[j], runs_of[j], raws[j], s1, s2s[j], mores[j], units) end
        end
        return fit
    end

    -- Give back what has ended of the holds in `key`, 64 at a time. False where that has a foreign type: then the step is
    -- over.
    local function take_ended(key)
        local ended = try('ZRANGEBYSCORE', key, '-inf', fmt('%.0f', floor(now / 1000)), 'LIMIT', '0', '64')
        if ended.err then
            if not find(ended.err, 'WRONGTYPE', 1, true) then
                failed = ended
                return false
            end
            for j = 1, n do
                tell(-1)
                tell(0)
            end
            return false
        end
        for e = 1, #ended do
            if #ended[e] == 22 and read(1) then -- else a mark
                local units, made = unp('<I7I7', ended[e], 9)
                for j = 1, n do refund(j, units, made) end
            end
            if failed then return false end
        end
        if #ended > 0 then call('ZREM', key, unpack(ended)) end
        return true
    end

    local function keep_holds(key)
        local last = tonumber(call('ZREVRANGE', key, '0', '0', 'WITHSCORES')[2])
        local latest = floor(now / 1000) + 86460000 -- neither a hold of ours nor the mark of one ends later
        call('PEXPIREAT', key, fmt('%.0f', (last < latest and last or latest) + 60000))
    end

    for _ = 1, n_groups do
        local kind
        kind, n, pos = unp('<BB', S, pos)
        for j = 1, n do
            local r, i
            r, i, costs[j], pos = unp('<BHI7', S, pos)
            runs_of[j], keys[j] = runs[r], K[i]
        end
        --@@kinds
        if failed then return failed end
    end
    tell(now)
    tell(n_bad)
    tell(nonce)
    return out
end

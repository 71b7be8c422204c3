--
-- core.lua: a whole loop turn of checks in one call. lua/stitch.py puts the modules of lua/ into the
-- places marked @; src/store/turn.c packs the turn and reads the reply, and is this file's twin.
--
-- The script decides what is charged; it returns only what it saw (each key's state before the turn,
-- and `now`), from which the daemon derives every answer with the same integer arithmetic.
--
-- KEYS     each key once: those read by MGET first, then the others; in the order of the runs
-- ARGV[1]  <I4 nonce> <I7 latest, us> <H keys read by MGET> <B runs> <H groups>, then the runs, then the groups
--          latest, if not 0: a turn that begins later does nothing, and replies -2 | now in us | nonce
--   run    <B algorithm> <B form> <H keys> <I7 a> <I7 b> <I7 c> <I7 d>, and by form
--          0: one check of cost 1 on each key      1: + <I4 checks> <I7 cost> per key; 0 checks = a peek
--          2: the keys are charged by groups       3: the keys are forgotten
--   group  <B members> <I4 checks>, and per member <H key> <I7 cost>: all or nothing, in this order
--          65535 keys read by MGET: the turn goes in steps, see steps.lua
-- ARGV[2]  the time in us; only tests send it
-- Reply    s1 of each key (form 3: 1 there was a state, 0 not; -1: the key holds a foreign type, nothing was
--          done) | s2 of each key whose algorithm has one | now in us | a wait in us for each denied
--          check of a log, in order | malformed values met, which count as fresh | nonce
--
-- A module is a file of fragments, inlined here (a closure per call would cost more than the call):
--   @state    what it has: s1 [s2]; "own" where it reads its keys itself instead of by MGET; "counts" where d 1
--             says that denials are counted
--   @prepare  once per run: now, a, b, c, d -> its constants, as locals
--   @key      i -> key, where the real key is derived from the one in KEYS
--   @view     key, raw -> s1, s2, more, keep: the state as of now. keep 0: as good as none; 1: it stands; -1: it was
--             clamped and must be written even if nothing is charged. s1 -1: foreign type
--   @room     s1, s2 -> room: the units that may still be charged now
--   @wait     key, s1, more, counting, cost, a, b -> wait   (logs)
--   @store    key, raw, s1, s2, more, units -> s1 (-1: foreign type): charge; always sets an absolute expiry
--   @refund   key, raw, s1, s2, more, units, made -> s1, s2, back: what is left when as much as possible of `units`,
--             charged at `made` (us), is given back, and how much that is (0 before). Only in steps, which write it
--   @plain    key, k, cost -> s1: a shorter way for one item per key, in place of view, room and store
-- A fragment whose mark is followed by a module's name is that module's.
-- `more` is what only wait and store need. Anything that is not exactly a module's own format counts
-- as fresh, so that one broken value cannot fail a whole turn.
--
local K, S, call, try = KEYS, ARGV[1], redis.call, redis.pcall
local unp, pack, fmt, find, floor, type = struct.unpack, struct.pack, string.format, string.find, math.floor, type
local nonce, latest, n_mget, n_runs, n_groups, pos = unp('<I4I7HBH', S)
local now = ARGV[2]
if now then
    now = tonumber(now)
else
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
if latest > 0 and now > latest then return {-2, now, nonce} end

local out, twos, waits = {}, {}, {} -- the reply's parts
local n_twos, n_waits, n_bad, n_members = 0, 0, 0, 0
local slot -- the one that the present step is about
--@@steps
local raws = n_mget > 0 and call('MGET', unpack(K, 1, n_mget)) or {}
-- of keys charged by groups (form 2), by their place in KEYS:
local firsts, seconds, mores, keeps, rooms, used, denials_count, logs
local group_runs = {} -- where such runs begin

local at = 0
for _ = 1, n_runs do
    local run_pos = pos
    local algo, form, n, a, b, c, d
    algo, form, n, a, b, c, d, pos = unp('<BBHI7I7I7I7', S, pos)
    local first, last = at + 1, at + n
    at = last
    if form == 2 then
        if not firsts then
            firsts, seconds, mores, keeps, rooms, used, denials_count, logs = {}, {}, {}, {}, {}, {}, {}, {}
        end
        group_runs[#group_runs + 1] = run_pos
        group_runs[#group_runs + 1] = first
    end
    if form == 3 then
        --@@resets
    --@@runs
    end
end

for _ = 1, n_groups do
    local members, k
    members, k, pos = unp('<BI4', S, pos)
    local from, fit, intact = pos, k > 0 and k or 1, true
    for _ = 1, members do
        local i, cost
        i, cost, pos = unp('<HI7', S, pos)
        if firsts[i] < 0 then
            intact = false
        elseif cost > 0 and rooms[i] < fit * cost then
            fit = rooms[i] > 0 and floor(rooms[i] / cost) or 0
        end
    end
    if intact then
        local m = fit < k and fit or k
        local denied = fit < k or fit < 1
        for _ = 1, members do
            local i, cost
            i, cost, from = unp('<HI7', S, from)
            local units = m * cost
            if denials_count[i] then units = k * cost end
            if denied and cost > 0 and logs[i] then
                local key, s1, more = K[i], firsts[i], mores[i]
                local algo, a, b, counting = logs[i][1], logs[i][2], logs[i][3], s1 + used[i] + units
                if denials_count[i] and k == 0 then counting = counting + cost end
                local wait
                --@@waits
                n_waits = n_waits + 1
                waits[n_waits] = wait
            end
            used[i] = used[i] + units
            rooms[i] = rooms[i] - units
        end
    end
end

for r = 1, #group_runs, 2 do
    local algo, _, n, a, b, c, d = unp('<BBHI7I7I7I7', S, group_runs[r])
    local first, last = group_runs[r + 1], group_runs[r + 1] + n - 1
    --@@writes
end

local n = #K
for i = 1, n_twos do out[n + i] = twos[i] end
n = n + n_twos + 1
out[n] = now
for i = 1, n_waits do out[n + i] = waits[i] end
n = n + n_waits
out[n + 1] = n_bad
out[n + 2] = nonce
return out

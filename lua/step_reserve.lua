-- step_reserve.lua: charge all members or none, and hold what was charged. Twin of src/store/step_reserve.c.
--   fields   <H key of the holds> <c8 id> <I7 units> <I4 time limit ms>
local i, id, units, ttl
i, id, units, ttl, pos = unp('<Hc8I7I4', S, pos)
if take_ended(K[i]) and look(1) and decide(1, 1) > 0 then
    call('ZADD', K[i], fmt('%.0f', floor(now / 1000) + ttl), id .. pack('<I7I7', units, now))
    keep_holds(K[i])
end

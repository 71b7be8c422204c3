-- step_renew.lua: let a slot's lease begin anew, where it is still there. Twin of src/store/step_slots.c. Field:
-- <c32 slot>. Says of each member in place of s1: 1 it was there, 0 not.
slot, pos = unp('<c32', S, pos)
for j = 1, n do
    local found = try('ZSCORE', keys[j], slot)
    if type(found) == 'table' then
        if not find(found.err, 'WRONGTYPE', 1, true) then failed = found end
        found = -1
    elseif found then
        local ttl = runs_of[j][3]
        local ends = floor(now / 1000) + ttl
        call('ZADD', keys[j], fmt('%.0f', ends), slot)
        call('PEXPIREAT', keys[j], fmt('%.0f', ends + ttl))
        found = 1
    end
    tell(found or 0)
    tell(0)
end

-- step_release.lua: give a slot back. Twin of src/store/step_slots.c. Field: <c32 slot>. Says of each member in place
-- of s1: 1 its lease was there, 0 not.
slot, pos = unp('<c32', S, pos)
for j = 1, n do
    local found = try('ZREM', keys[j], slot)
    if type(found) == 'table' then
        if not find(found.err, 'WRONGTYPE', 1, true) then failed = found end
        found = -1
    end
    tell(found)
    tell(0)
end

-- step_refund.lua: give back to every member what is charged, up to `units`. Twin of src/store/step_refund.c.
-- Fields <H key of the holds, 0 = none> <I7 units> <I7 made in us, 0 = now>. Says the states after it, then how many units
-- each member gave back.
local holds, units, made
holds, units, made, pos = unp('<HI7I7', S, pos)
if holds == 0 or take_ended(K[holds]) then
    if read(0) then
        local given = {}
        for j = 1, n do given[j] = refund(j, units, made > 0 and made or now) end
        say()
        for j = 1, n do tell(given[j]) end
    elseif not failed then
        say()
    end
end

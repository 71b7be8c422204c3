-- step_settle.lua: end a hold: what was used beyond it is charged, what was not used is given back. Twin of
-- src/store/step_reserve.c.
--   fields   <H key of the holds> <c8 id> <I7 units> <I7 when charged, us> <I7 end ms> <I7 used>, per member <I7 debt>
--   says     0 it was held, 1 it is settled already, 2 it has ended, 3 nobody can know any more;
--            the most that any member gave back: its state is told as it is after that, but as it is before a charge
local i, id, held, made, ends, used
i, id, held, made, ends, used, pos = unp('<Hc8I7I7I7I7', S, pos)
local debts = {}
for j = 1, n do debts[j], pos = unp('<I7', S, pos) end
if take_ended(K[i]) then
    if read(1) then
        local found, units, most = 2, 0, 0
        local latest = floor(now / 1000) + 86400000 -- no hold ends later, but where the clock stepped back
        if call('ZSCORE', K[i], id) then
            found = 1
        elseif ends + 60000 <= floor(now / 1000) then
            found = 3
        elseif call('ZREM', K[i], id .. pack('<I7I7', held, made)) == 1 then
            found, units = 0, used - held
        elseif ends > latest then
            found = 3
        else
            units = used
        end
        for j = 1, n do
            if units < 0 then
                local back = refund(j, -units, made)
                if back > most then most = back end
            else
                local fits = rooms[j] + debts[j]
                if fits < 0 then fits = 0 end
                if units > fits then units = fits end
            end
        end
        say()
        tell(found)
        tell(most)
        for j = 1, n do
            if units > 0 or (units == 0 and keeps[j] < 0) then
                put(keys[j], runs_of[j], raws[j], s1s[j], s2s[j], mores[j], units)
            end
        end
        if found == 0 or found == 2 then
            call('ZADD', K[i], fmt('%.0f', (ends < latest and ends or latest) + 60000), id)
            keep_holds(K[i])
        end
    elseif not failed then
        say()
    end
end

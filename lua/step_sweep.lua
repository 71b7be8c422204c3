-- step_sweep.lua: give back what has ended; a clamp is written as by a peek. Twin of src/store/step_reserve.c.
--   fields   <H key of the holds>
local i
i, pos = unp('<H', S, pos)
if take_ended(K[i]) and look(0) then decide(0, 1) end

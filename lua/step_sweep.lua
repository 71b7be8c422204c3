-- step_sweep.lua: give back what has ended. Twin of src/store/step_reserve.c.
--   fields   <H key of the holds>
local i
i, pos = unp('<H', S, pos)
if take_ended(K[i]) then look(0) end

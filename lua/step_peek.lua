-- step_peek.lua: what a check would get; nothing is charged. Twin of src/store/step_check.c. No fields of its own.
if look(0) then decide(0, 1) end

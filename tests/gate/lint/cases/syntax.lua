-- === a bracket too few
local found = redis.call('GET', KEYS[1] --! syntax
return found
-- === an end too few
if redis.call('EXISTS', KEYS[1]) == 1 then --! syntax
  return 1
-- === an end too many
return 1
end --! syntax
-- === from another language
local count = 1
count += 1 --! syntax
-- === integer division
return 7 // 2 --! syntax
-- === goto
for i = 1, 3 do
  if i == 2 then goto next end --! syntax
  ::next:: --! syntax
end
-- === Lua 5.1
local text = 'a\tb' .. "\065" .. [[
two lines]]
for i = 1, 3 do
  if i == 2 then break end;
end
return #text % 2 ^ 1 ~= 0 and not nil

-- === at the end of the line
return redis.call('GET', 'counter') -- @allow undeclared-key: there is one server only
-- === on the line above
local a = 1
-- @allow undeclared-key: there is one server only
return a .. redis.call('GET', 'counter')
-- === above a statement of several lines
local a = 1
-- @allow undeclared-key: there is one server only
local b = redis.call(
  'GET',
  'counter'
)
return a .. b
-- === in the first comment
-- a counter for all
--
-- @allow undeclared-key: there is one server only
redis.call('INCR', 'counter')
return redis.call('GET', 'counter')
-- === behind the last line of a statement of several lines
local b = redis.call(
  'GET',
  'counter'
) -- @allow undeclared-key: there is one server only
return b
-- === two above one another
local a = 1
-- @allow undeclared-key: there is one server only
-- @allow random: any will do
return a .. redis.call('SRANDMEMBER', 'names')
-- === for the rest of a header only where it ends
-- a counter for all

-- @allow undeclared-key: there is one server only
redis.call('INCR', 'counter')
return redis.call('GET', 'counter') --! undeclared-key
-- === not for the line after
local a = redis.call('GET', 'a') -- @allow undeclared-key: there is one server only
return a .. redis.call('GET', 'b') --! undeclared-key
-- === not for what a block holds
local a = 1
-- @allow undeclared-key: there is one server only
if a == 1 then
--!^^ allow
  return redis.call('GET', 'a') --! undeclared-key
end
-- === another rule
local a = 1
-- @allow random: any will do
--!^ allow
return a + redis.call('GET', 'a') --! undeclared-key
-- === no reason
local a = 1
-- @allow undeclared-key
--!^ allow
return a .. redis.call('GET', 'a') --! undeclared-key
-- === no rule of that name
local a = 1
-- @allow undeclared-keys: there is one server only
--!^ allow
return a .. redis.call('GET', 'a') --! undeclared-key
-- === nothing to allow
local a = 1
-- @allow undeclared-key: there is one server only
--!^ allow
return a
-- === nothing at all
return 1 -- @allow
--!^ allow
-- === nothing but comments
-- @allow undeclared-key: there is nothing
--!^ allow

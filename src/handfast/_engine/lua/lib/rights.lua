-- rights: refusing an operator's act before its first write, where the user lacks a right.
--
-- USES
-- GIVES require_rights
--
-- A server refuses a command within a script when the script reaches it, and earlier writes stay: an act would be done, and
-- its caller would get an error. So an act asks first. Redis 6.2 cannot tell what a user may do: there the act is cut
-- off in the middle.

-- Raise an error unless the user may send all these commands: on `key`, and PUBLISH to `inbox` if there is one.
local function require_rights(key, inbox, commands)
  local ask = redis.acl_check_cmd -- @allow too-new: it is used where it is there
  for command in string.gmatch(ask and commands or '', '%S+') do
    local may
    if command == 'pubsub' then
      may = ask('PUBSUB', 'NUMSUB', 'x')
    elseif command == 'publish' then
      may = not inbox or ask('PUBLISH', inbox, 'x')
    else
      may = ask(command, key)
    end
    if not may then
      local name = command == 'pubsub' and 'pubsub|numsub' or command
      error({err = "NOPERM nothing was done: the user has no permissions to run the '" .. name .. "' command"})
    end
  end
end

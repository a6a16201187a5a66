-- state: what is stored of one name, and what this script makes of it.
--
-- USES
-- GIVES load_state
--
-- record       of the token that the script is called for; false where there is none
-- used         how many permits are out. Where the field is missing (an eviction) though there are holders, the name
--              counts as full until they are gone: never a permit too many.
-- stored_used  what the field `used` says. When the last holder gives up what it had, the field goes with it.
-- fence        the latest one
-- limit        the limit that an operator has set, if any: then it counts instead of those of the requests

local function load_state(holders, queue, tokens, token)
  local record, used, fence, limit = unpack(redis.call('HMGET', tokens, token, 'used', 'fence', 'limit'))
  used = tonumber(used)
  return {
    holders = holders,
    queue = queue,
    tokens = tokens,
    record = record,
    used = used or math.huge,
    stored_used = used,
    fence = tonumber(fence) or 0,
    limit = tonumber(limit),
  }
end

-- hold: an operator's hold on a name.
--
-- USES now tokens out
-- GIVES HOLD hold_end
--
-- A hold is a lease of 10^9 permits beyond the limit, so no request fits while it lasts. Its token is no client's. The
-- mark of its record is its end, above all fences until then: no script that takes leases up to a fence takes it.

local HOLD = '!hold'

-- The end of the hold that is in force; nothing without one.
local function hold_end()
  local its_end = out > 0 and tonumber(redis.call('ZSCORE', tokens, HOLD))
  return its_end and its_end > now and its_end
end

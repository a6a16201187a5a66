-- outcome: the record of a key of once, and sending the waiters to find it.
--
-- USES state tokens length changed inbox_of has_subscriber leave_queue save
-- GIVES read_outcome dismiss
--
-- The string `result` has two doubles, then three texts behind a byte for their length, and then the value:
--
--   at fence state token fingerprint value
--
-- at           when it was recorded, in microseconds
-- fence        of the run
-- state        `begun`, `done`, `failed`, or `unstored`: it is done, and its value could not be stored
-- token        of the run
-- fingerprint  of the request; empty if it has none
-- value        of what is done; of the other two the reason
--
-- In another layout the record begins with the text `layout N` and zeros up to 32 bytes. Read as a time, that is near 0.

local function read_outcome(text)
  local at, fence, its_state, token, fingerprint, start = struct.unpack('<ddBc0Bc0Bc0', text)
  if at < 1 then
    error('stored in ' .. string.match(text, '^[^%z]+'))
  end
  return {at = at, fence = fence, state = its_state, token = token, fingerprint = fingerprint, start = start}
end

-- Take waiters out of the queue, and wake them to ask again. Saves the state if it has changed: one that is gone stays
-- gone, and is not made anew without a TTL. Returns 1 if others are left, else 0.
-- One that was not woken asks by itself, and finds the record.
local function dismiss()
  local MAX_DISMISSED = 100 -- the next call goes on (invariant 13)
  if length > 0 then
    for _, token in ipairs(redis.call('ZRANGEBYSCORE', tokens, '-inf', '(0', 'LIMIT', 0, MAX_DISMISSED)) do
      local its_record = redis.call('HGET', state, token)
      leave_queue(token)
      local inbox = its_record and inbox_of(its_record)
      if inbox and has_subscriber(inbox) then
        publish(token, inbox, 0, 0)
      end
    end
    length, changed = redis.call('ZCOUNT', tokens, '-inf', '(0'), true
  end
  if changed then
    save()
  end
  return length > 0 and 1 or 0
end

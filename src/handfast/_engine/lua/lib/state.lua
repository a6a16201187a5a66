-- state: what is stored of the name that is at hand. A script of several names loads one after the other.
--
-- USES now
-- GIVES state tokens lease_end fence keep extra grants waited waiting length holder record out
--   soonest set_limit memory gives_back changed raised load_name save expire_new live_for put
--
-- The hash `state` has the field `s`, eight doubles and then a holder, which is all there is of a lock
-- without waiters:
--
--   lease_end  of this holder, in microseconds; 0 if it gave its lease up. Its token stays until the next one, to
--              answer a repeated release
--   fence      the latest one of the name
--   keep       until then, in microseconds, the keys live at least
--   extra      1 if the field `q` is there
--   grants     how many there were since the keys are there
--   waited     how long those tokens had waited, all together, in microseconds: from the ticket to the grant, less the
--              head start of those who seem to have waited for AHEAD_FROM_US
--   waiting    when the last waiter came, or one more than for the waiter before; 0 if the queue is empty
--   length     of the queue
--   holder     its token, behind a byte for the length
--   record     as lib/record.lua has it
--
-- Only where it is needed, the field `q` has four doubles:
--
--   out        permits of all other holders. Infinite if the state was evicted though there are holders: then the name
--              counts as full until they are gone, and there is never a permit too many
--   soonest    no lease of theirs ends before
--   set_limit  the limit that an operator has set, 0 if none: then it counts instead of those of the requests
--   memory     the time until which any tombstone lasts
--
-- And where an operator has used force or set the limit, the field `last`: the time of the last such action as a
-- double, then as text `force_release by reason`, `resize by limit`, `preempt by reason`, `hold by reason` or `unhold by
-- reason`.
--
-- Of a key of once, the field `pause`, as lib/pause.lua says. Where a request has overtaken others, the field `over`, as
-- lib/overtaken.lua says.
--
-- This is layout 1, which has no number. In any other layout the field `s` is the text `layout N`, which is shorter:
-- then a script raises the error `stored in layout N` before any write, and the client raises UnknownLayout.
-- docs/reference/keys.md lists the additions that need no new number.
--
-- Each waiter and each further holder has its record in a field of its own. The sorted set `tokens` has a score for
-- each of them, and for each tombstone: a waiter's is its ticket below zero, a holder's the end of its lease, and
-- that of a tombstone its end above all others. Its member '' at the very end tells an old sorted set from a new
-- one.

local state, tokens, record, holder
local lease_end, fence, keep, extra, grants, waited, waiting, length
local out, soonest, set_limit, memory
local gives_back = false -- whether this script passes at maxmemory
local changed = false -- whether the state has to be saved
local raised = false -- until when the keys are to live, where that is later than `keep`

-- `text` is the field `s`.
local function load_name(state_key, tokens_key, text)
  state, tokens, changed, raised = state_key, tokens_key, false, false
  out, soonest, set_limit, memory = 0, 0, 0, 0
  if text then
    if #text < HOLDER_AT then
      error('stored in ' .. text)
    end
    lease_end, fence, keep, extra, grants, waited, waiting, length, holder, record =
      struct.unpack('<ddddddddBc0', text)
    record = string.sub(text, record)
    local more = extra == 1 and redis.call('HGET', state, 'q')
    if more then
      out, soonest, set_limit, memory = struct.unpack('<dddd', more)
    end
  else
    lease_end, fence, keep, extra, grants, waited, waiting, length = 0, 0, 0, 0, 0, 0, 0, 0
    holder, record = '', ''
    local left_ms = redis.call('PTTL', tokens)
    if left_ms > 0 then
      raised = now + left_ms * 1000
      waiting, length, extra, out, memory = now, redis.call('ZCOUNT', tokens, '-inf', '(0'), 1, math.huge, now
    end
  end
end

-- Invariant 5: no key is ever without a TTL. Let the keys live for `ms` from now at least: they outlive what is in
-- them by an hour, so that they outlive every step that a clock may take back, or by 30 days where an operator has
-- set the limit. It is raised by an hour more than needed, so that most calls find one that is long enough.
local function live_for(ms)
  local MONTH_US = 720 * HOUR_US
  local least = now + ms * 1000 + (set_limit > 0 and MONTH_US or HOUR_US)
  if math.max(keep, raised or 0) < least then
    raised, changed = least + HOUR_US, true
  end
end

-- Write the state down, and a token's record with it. At maxmemory it is refused, unless the script gives something
-- back: then it is repeated behind a HDEL that removes nothing, which passes and lets the rest through.
local function save(token, its_record)
  local had_extra = extra
  extra = (out > 0 or set_limit > 0 or memory > 0) and 1 or 0
  local text = struct.pack('<dddddddd', lease_end, fence, keep, extra, grants, waited, waiting, length)
  text = text .. struct.pack('Bc0', #holder, holder) .. record
  local fields = {'s', text, token, its_record}
  if extra == 1 then
    fields[#fields + 1] = 'q'
    fields[#fields + 1] = struct.pack('<dddd', out, soonest, set_limit, memory)
  end
  if type(redis.pcall('HSET', state, unpack(fields))) == 'table' then
    if gives_back then
      redis.call('HDEL', state, '')
    end
    redis.call('HSET', state, unpack(fields))
  end
  if had_extra > extra then
    redis.call('HDEL', state, 'q')
  end
  changed = false
  if raised then
    -- The keys have their TTL before the state says so: should it be refused, the next call asks for it again.
    redis.call('PEXPIRE', state, math.floor((raised - now) / 1000))
    redis.call('PEXPIRE', tokens, math.floor((raised - now) / 1000))
    keep, raised = raised, false
    redis.call('HSET', state, 's', string.sub(text, 1, KEEP_AT - 1) .. struct.pack('<d', keep) .. string.sub(text, KEEP_AT + 8))
  end
end

-- Give the sorted set its TTL where it is new. If that is refused, so is the token: nothing stays without a TTL.
local function expire_new(added, token)
  if added == 2 and type(redis.pcall('PEXPIRE', tokens, math.floor((keep - now) / 1000))) == 'table' then
    redis.call('ZREM', tokens, token, '')
    redis.call('PEXPIRE', tokens, 1)
  end
end

-- Give a token its score, after the state was saved.
local function put(score, token)
  expire_new(redis.call('ZADD', tokens, score, token, '+inf', ''), token)
end

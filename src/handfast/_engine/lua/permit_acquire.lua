-- permit_acquire: ask for permits; be granted them now, or enter the queue.
--
-- KEYS state tokens
-- ARGV token request wants
-- PACK request <dddd ttl_ms wait_ms max_waiters ticket
-- PACK wants <ddd weight limit claim_ms
-- REPLY granted fence lease_us
-- REPLY - the fence, if it was granted for ttl_ms from now
-- REPLY queued now_us position retry_us ticket
-- REPLY busy retry_us
-- REPLY full length
-- REPLY exceeds_limit limit
-- REPLY finished
-- REPLY superseded
--
-- ttl_ms is the lease of a grant that this script gives, or that permit_confirm gives a waiter: the keys live for it.
-- wait_ms is the wait-lease, which every call renews; 0 asks without entering the queue.
-- ticket is 0 at first, or below that a head start in microseconds, and then that of the first reply `queued`. A
--   newcomer's is the time at which it came, or one more than that of the last waiter, less its head start. A token that
--   the queue has lost enters it by its ticket: before all that came later, and however many wait.
-- wants is all that a record has behind its mark, as lib/record.lua says: how many permits, and who requests them.
--   Its weight is at most its limit, which is in force unless an operator has set another one. A request above that
--   gets exceeds_limit.
-- retry_us is the time from now until the next lease ends; -1 if there is none.
--
-- TWICE the same answer: a holder finds its grant and fence, a waiter its place.
-- LATE after its cancel, or after a release that knows of copies, the token has a tombstone: `finished`, and
--   nothing changes. `superseded` if permit_overtake.lua has dismissed it, however long ago.
-- MEMORY the first write of every path is one that is refused at maxmemory; only a waiter that is
--   in the queue already goes on, since it takes up nothing new.

-- @include clock

local token, wants = ARGV[1], ARGV[3]
local ttl_ms, wait_ms, max_waiters, ticket = struct.unpack('<dddd', ARGV[2])
local text = redis.call('HGET', KEYS[1], 's')
if text and ticket == 0 and #text >= HOLDER_AT then
  -- Three short ways, for most requests: each is what the rest of the script would do, at less than half the cost.
  local lease_end, fence, keep, extra, grants, waited, waiting, length = struct.unpack('<dddddddd', text)
  local its_end, its_fence = now + ttl_ms * 1000, fence < now and now or fence + 1
  local out, soonest, set_limit, memory = 0, math.huge, 0, 0
  local known = false
  if extra == 1 then
    local more, its_record = unpack(redis.call('HMGET', KEYS[1], 'q', token))
    out, soonest, set_limit, memory = struct.unpack('<dddd', more)
    known = its_record
    soonest = out > 0 and soonest or math.huge
  end
  local is_plain = not known
    and keep > its_end + HOUR_US + WAIT_US + CLAIM_US -- also for a waiter that confirms at the last moment
    and set_limit == 0
    and soonest > now
    and (memory == 0 or memory > now and not redis.call('ZSCORE', KEYS[2], token))
  if is_plain and lease_end <= now and out == 0 and length == 0 then
    -- No holder and no waiters.
    text = struct.pack(
      '<ddddddddBc0d', its_end, its_fence, keep, extra, grants + 1, waited, waiting, 0, #token, token, its_fence
    )
    redis.call('HSET', KEYS[1], 's', text .. wants)
    return its_fence
  elseif is_plain and lease_end > now then
    local holder, _, its_weight = struct.unpack('<Bc0dd', text, HOLDER_AT)
    local used, weight, limit = out + its_weight, struct.unpack('<dd', wants)
    is_plain = holder ~= token
    if is_plain and used >= limit and wait_ms > 0 and length < max_waiters then
      -- Others have all of it.
      local its_ticket = waiting < now and now or waiting + 1
      local its_record = struct.pack('<d', now + wait_ms * 1000) .. wants
      local queued = struct.pack('<dddddddd', lease_end, fence, keep, extra, grants, waited, its_ticket, length + 1)
      queued = queued .. string.sub(text, HOLDER_AT)
      if redis.pcall('HSET', KEYS[1], 's', queued, token, its_record) == 1 then
        local added = redis.call('ZADD', KEYS[2], its_ticket - FINISHED, token, '+inf', '')
        if added == 2 and type(redis.pcall('PEXPIRE', KEYS[2], math.floor((keep - now) / 1000))) == 'table' then
          redis.call('ZREM', KEYS[2], token, '') -- the sorted set is new, and may not stay without a TTL
          redis.call('PEXPIRE', KEYS[2], 1) -- is refused again
        end
        local first_end = soonest < lease_end and soonest or lease_end
        return 'queued ' .. struct.pack('<dddd', now, length, first_end - now, its_ticket)
      end
    elseif is_plain and used + weight <= limit and length == 0 and out > 0 then
      -- It has permits left, beside several holders, and no waiters.
      local granted = struct.pack('<dddddddd', lease_end, its_fence, keep, extra, grants + 1, waited, waiting, 0)
      granted = granted .. string.sub(text, HOLDER_AT)
      local more = struct.pack('<dddd', out + weight, math.min(soonest, its_end), 0, memory)
      redis.call('HSET', KEYS[1], 's', granted, 'q', more, token, struct.pack('<d', its_fence) .. wants)
      local added = redis.call('ZADD', KEYS[2], its_end, token, '+inf', '')
      if added == 2 and type(redis.pcall('PEXPIRE', KEYS[2], math.floor((keep - now) / 1000))) == 'table' then
        redis.call('ZREM', KEYS[2], token, '')
        redis.call('PEXPIRE', KEYS[2], 1)
      end
      return its_fence
    end
  end
end

-- @include record
-- @include state
-- @include queue
-- @include memory
-- @include grant
-- @include tombstones
-- @include overtaken
-- @include sweep
-- @include handoff

local weight, limit, claim_ms = struct.unpack('<ddd', wants)

local function until_expiry()
  local first = next_expiry()
  if changed then
    save() -- what is gone is not counted any more, also by the next call
  end
  return first and math.max(0, first - now) or -1
end

load_name(KEYS[1], KEYS[2], text)
local over = finished(token)
if over == 'superseded' then
  return 'superseded '
elseif over then
  return 'finished '
end
local has_place = ticket_of(token)
local its_end, its_record = lease_of(token)
if its_record and its_end > now then
  return 'granted ' .. struct.pack('<dd', struct.unpack('<d', its_record), its_end - now)
elseif its_end then
  require_memory() -- it has expired, or its record was evicted: it is granted again
  drop_lease(token)
end
if not has_place and was_overtaken(ticket, wants) then
  if changed then
    save()
  end
  return 'superseded '
end
gives_back = has_place ~= nil and (ticket <= 0 or ticket == has_place)
sweep()
local limit_in_force, is_out = set_limit > 0 and set_limit or limit, used()
if length == 0 and is_out + weight <= limit_in_force then
  grant(token, wants, ttl_ms, ticket > 0 and ticket or now)
  return fence
elseif weight > limit_in_force then
  if has_place then
    leave_queue(token)
    hand_over()
  elseif changed then
    save()
  end
  return 'exceeds_limit ' .. struct.pack('<d', limit_in_force)
elseif wait_ms == 0 and is_out + weight > limit_in_force then
  return 'busy ' .. struct.pack('<d', until_expiry())
elseif not has_place and ticket <= 0 and length >= max_waiters then
  -- @include waiters
  evict_waiters()
  if length >= max_waiters then
    if changed then
      save()
    end
    return 'full ' .. struct.pack('<d', length)
  end
end
if ticket <= 0 then
  ticket = has_place or arrive(-ticket)
end
enter_queue(token, ticket, struct.pack('<d', now + wait_ms * 1000) .. wants, wait_ms + claim_ms + ttl_ms)
local more, my_fence = 0, nil
if is_out < limit_in_force then
  more, my_fence = hand_over(token, ttl_ms)
end
if my_fence then
  return my_fence
end
local retry_us = more == 1 and 0 or until_expiry()
if wait_ms == 0 then
  leave_queue(token)
  save()
  return 'busy ' .. struct.pack('<d', retry_us)
end
return 'queued ' .. struct.pack('<dddd', now, redis.call('ZRANK', tokens, token), retry_us, ticket)

-- once_acquire: find what was recorded of a key; or become the one that runs, or enter the queue.
--
-- KEYS state tokens result
-- ARGV token request fingerprint wants
-- PACK request <dddddd ttl_ms wait_ms max_waiters refresh_ms pause_ms ticket
-- PACK wants <ddd weight limit claim_ms
-- REPLY done outcome age_us fence value
-- REPLY reused
-- REPLY granted fence lease_us
-- REPLY - the fence, if it was granted for ttl_ms from now
-- REPLY queued now_us position retry_us ticket
-- REPLY busy retry_us
-- REPLY full length
-- REPLY finished
--
-- All is as in permit_acquire, with a limit of 1.
-- A record is the answer, and the token gives up what it was handed meanwhile. It is none in two cases: where it is
-- older than refresh_ms (-1: never) and no one runs, the first caller runs; and `begun` counts only once its run has
-- ended.
-- `reused` is the answer where the record has another fingerprint.
--
-- TWICE the same answer, as long as the record is there; a holder finds its grant and fence, a waiter its place.
-- LATE after its cancel, or after an end of its run that knows of copies, the token has a tombstone: `finished`, and
--   nothing changes.
-- MEMORY what it takes is refused by the first write; finding a record writes only what gives back, which passes. Where
--   a write is refused, a record that is older than refresh_ms is the answer.

-- @include clock
-- @include record
-- @include state
-- @include queue
-- @include memory
-- @include grant
-- @include tombstones
-- @include sweep
-- @include handoff
-- @include outcome

local token, fingerprint, wants = ARGV[1], ARGV[3], ARGV[4]
local ttl_ms, wait_ms, max_waiters, refresh_ms, pause_ms, ticket = struct.unpack('<dddddd', ARGV[2])
local _, _, claim_ms = struct.unpack('<ddd', wants)

load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
if finished(token) then
  return 'finished '
end

local its_end, its_record = lease_of(token)
local has_lease = its_record and its_end > now
local has_place = ticket_of(token)
local stored = redis.call('GET', KEYS[3])
local stale = nil -- the record that this run is to make anew
if stored then
  local outcome = read_outcome(stored)
  local is_reused = fingerprint ~= '' and outcome.fingerprint ~= '' and fingerprint ~= outcome.fingerprint
  local is_stale = refresh_ms >= 0 and outcome.state == 'done' and now - outcome.at >= refresh_ms * 1000
  local goes_on
  if outcome.state == 'begun' then
    local runner_end = lease_of(outcome.token)
    goes_on = runner_end and runner_end > now
  else
    goes_on = is_stale and (has_lease or lease_end <= now and length == 0 and (out == 0 or soonest <= now))
    if goes_on and not has_lease then
      -- @include pause
      goes_on = not is_paused(outcome)
    end
    if goes_on and not has_lease then
      stale = outcome
      goes_on = type(redis.pcall('ZADD', tokens, 'XX', 0, ' ')) ~= 'table' -- changes nothing, see lib/memory.lua
    end
  end
  if is_reused or not goes_on then
    if has_lease or length > 0 then
      leave_queue(token) -- begins with a HDEL, which passes at maxmemory
      drop_lease(token)
      dismiss()
    end
    if is_reused then
      return 'reused '
    end
    local age = math.max(0, now - outcome.at)
    return {'done', outcome.state, age, outcome.fence, string.sub(stored, outcome.start)}
  end
end

if has_lease then
  return 'granted ' .. struct.pack('<dd', struct.unpack('<d', its_record), its_end - now)
end
gives_back = has_place ~= nil and (ticket <= 0 or ticket == has_place)
sweep()
local is_held = used() > 0

local function until_expiry()
  if changed then
    save()
  end
  return math.max(lease_end, out > 0 and soonest or 0) - now -- all others that it has are a hold
end

if length == 0 and not is_held then
  grant(token, wants, ttl_ms, ticket > 0 and ticket or now)
  if stale then
    -- @include pause
    pause(stale, pause_ms) -- also if its process dies
  end
  return fence
elseif wait_ms == 0 and is_held then
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
enter_queue(token, ticket, struct.pack('<d', now + wait_ms * 1000) .. wants, wait_ms + claim_ms)
local more, my_fence = 0, nil
if not is_held then
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

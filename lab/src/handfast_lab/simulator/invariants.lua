-- invariants: the conditions that must hold for every name after every script, under all faults.
--
-- The checks read the data on the server and compare it with earlier states: the queue, the grants, the finished tokens.
-- `watch.lost` reports lost data, after which they forget what can no longer be known. The numbers are those of the design
-- pages.
local server = ...
local peek, heard, format, floor, insert = server.peek, server.heard, string.format, math.floor, table.insert

local names, by_tag, by_key = {}, {}, {} -- the watched names: in order, by tag, and by the key of the holders
local finished = {} -- tokens whose requests have ended: they must neither hold nor wait again
local ghosts = {} -- tokens whose requests had ended when data was lost, and that have not asked since
local turn = 0 -- number of scripts checked
local parsed = {} -- records, each parsed once
local complaints = {}

local function complain(number, name, words, ...)
  insert(complaints, 'invariant ' .. number .. ': ' .. name.tag .. ' ' .. format(words, ...))
end

-- Parse a record as lua/lib/record.lua writes it.
local function read(record)
  local known = parsed[record]
  if not known then
    local weight, limit, claim, wait_until, fence, since, inbox =
      string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) ')
    known = weight
        and {
          weight = tonumber(weight),
          limit = tonumber(limit),
          claim = tonumber(claim),
          wait_until = tonumber(wait_until),
          fence = tonumber(fence),
          since = tonumber(since),
          inbox = inbox,
        }
      or false
    parsed[record] = known
  end
  return known
end

local NO_SET, NO_HASH = {scores = {}, order = {}, size = 0}, {fields = {}, size = 0}

-- Return whether no request may overtake this waiter, and no script may remove it.
local function is_protected(waiter, most, now)
  return waiter.wait_until >= now and waiter.weight <= most and heard(waiter.inbox) > 0
end

-- Return whether a part of another name's data was lost: a request for both is then granted again.
local function is_torn_elsewhere(name)
  for _, other in ipairs(names) do
    if other ~= name and other.torn then
      return true
    end
  end
  return false
end

-- Invariants 1, 2 and 3: each new grant fits the limit, overtakes no waiter, and has the largest fence.
local function check_grants(name, state, caller, caller_moves, ticket, now)
  local new, all = nil, state.holders.order
  for i = 1, #all do
    local token = all[i]
    local record = state.records[token]
    if record and name.granted[token] ~= record.fence then
      new = new or {}
      insert(new, token)
    end
  end
  if not new then
    return
  end
  table.sort(new, function(one, other)
    return state.records[one].fence < state.records[other].fence
  end)
  for _, token in ipairs(new) do
    local record = state.records[token]
    if name.granted[token] and (name.held[token] or 0) > now and not is_torn_elsewhere(name) then
      complain(4, name, '%s is granted a second time, with fence %.0f', token, record.fence)
    end
    if record.fence <= name.fence then
      complain(3, name, '%s was granted with fence %.0f after %.0f', token, record.fence, name.fence)
    end
    name.fence, name.granted[token], name.granted_in[token] = math.max(name.fence, record.fence), record.fence, turn
    local out = 0
    for _, holder in ipairs(state.holders.order) do
      local other = state.records[holder]
      if other and other.fence <= record.fence and state.holders.scores[holder] > now then
        out = out + other.weight
      end
    end
    local most = state.resized or record.limit
    if out > most then
      complain(1, name, '%s was granted permit %.0f of %.0f', token, out, most)
    end
    for _, before in ipairs(name.queue) do
      if before == token or token == caller and ticket and (state.queue.scores[before] or 0) > ticket then
        break
      end
      local waiter = state.queue.scores[before] and not (before == caller and caller_moves) and state.records[before]
      if waiter and is_protected(waiter, state.resized or waiter.limit, now) then
        complain(2, name, '%s was granted before %s, which waits', token, before)
      end
    end
    if ghosts[token] then
      complain(6, name, '%s was granted for an older state of the server', token)
    end
    if token ~= caller then
      local waiter = name.waiters[token]
      if waiter and waiter.wait_until < now then
        complain(6, name, '%s was granted after the end of its wait-lease', token)
      end
      local lease = state.holders.scores[token] - now
      local message = format('granted %s %.0f %.0f %.0f', token, record.fence, now, lease)
      local published, is_sent = {server.messages()}, false
      for i = 1, #published, 2 do
        is_sent = is_sent or published[i] == record.inbox and published[i + 1] == message
      end
      if not is_sent then
        complain(6, name, '%s was granted without a message', token)
      elseif heard(record.inbox) == 0 then
        complain(6, name, '%s was granted without a listener', token)
      end
    end
  end
end

-- Invariants 2 and 6: the queue keeps its order, new requests are at its end, and no protected waiter is removed. A
-- caller with a ticket may move; that its place is the one of its ticket is checked with the reply.
local function check_queue(name, state, caller, caller_moves, ticket, unsure, now)
  local queue, was = state.queue.order, name.place
  local last, newcomer = 0, nil
  for i = 1, #queue do
    local token = queue[i]
    local place = was[token]
    if token == caller and caller_moves then
      place = nil
    end
    if token == caller and (unsure or ticket) then
      place = nil -- its position depends on the data that was lost, or on its ticket
    elseif not place then
      newcomer = token
    elseif newcomer or place < last then
      complain(2, name, '%s is queued behind %s, which came later', token, newcomer or name.queue[last])
    else
      last = place
    end
  end
  local before = name.queue
  for i = 1, #before do
    local token = before[i]
    local waiter = name.waiters[token]
    if not state.queue.scores[token] and not state.holders.scores[token] and token ~= caller and waiter and not name.torn then
      if is_protected(waiter, state.resized or waiter.limit, now) then
        complain(6, name, '%s waited and was removed', token)
      end
    end
  end
end

-- Each token has a record and either holds or waits, and `used` is the number of permits held.
local function check_records(name, state, now)
  local sum, fields = 0, state.hash.fields
  local records = state.hash.size - (fields.used and 1 or 0) - (fields.fence and 1 or 0) - (fields.limit and 1 or 0)
  local order, scores, torn = state.holders.order, state.holders.scores, name.torn
  for i = 1, #order do
    local token = order[i]
    local record = state.records[token]
    sum = sum + (record and record.weight or 0)
    if not record and not torn then
      complain('records', name, '%s holds and has no record', token)
    elseif state.queue.scores[token] and not torn then
      complain('records', name, '%s holds and waits', token)
    elseif finished[token] and scores[token] > now then
      complain(7, name, '%s holds after its end', token)
    end
  end
  order = state.queue.order
  for i = 1, #order do
    local token = order[i]
    if not state.records[token] and not torn then
      complain('records', name, '%s waits and has no record', token)
    elseif finished[token] then
      complain(7, name, '%s waits after its end', token)
    end
  end
  local used = fields.used and tonumber(fields.used)
  if used and state.holders.size > 0 and used ~= sum then
    complain('records', name, '%.0f permits are held, and used is %.0f', sum, used)
  end
  if not torn and records ~= state.holders.size + state.queue.size then
    complain('records', name, '%d records for %d holders and %d waiters', records, state.holders.size, state.queue.size)
  end
  local fence = fields.fence and not name.was_lost and tonumber(fields.fence)
  if fence and fence < name.fence then
    complain(3, name, 'the fence is %.0f, and was %.0f', fence, name.fence)
  end
end

-- A lease ends only by its owner, by its deadline, or by a revoke whose fence is not smaller.
local function check_kept(name, state, script, caller, argv, now)
  local bound = script == 'permit_revoke' and tonumber(argv[1]) or -1
  for token, deadline in pairs(name.held) do
    if deadline > now and not state.holders.scores[token] and token ~= caller and not name.torn then
      if name.granted[token] and name.granted[token] > bound then
        complain('kept', name, '%s lost its lease with %.0f us left', token, deadline - now)
      end
    end
  end
  if script == 'permit_renew' then
    local deadline, before = state.holders.scores[caller], name.held[caller]
    if deadline and (not before or deadline > math.max(before, now + tonumber(argv[2]) * 1000)) then
      complain(4, name, '%s is renewed for %.0f us', caller, deadline - now)
    end
  end
end

local function check_ttl(name, found, part, moment, now)
  if not found.expires then
    complain(5, name, 'the %s have no TTL', part)
  elseif moment > now and found.expires < floor(moment / 1000) then
    complain(5, name, 'the %s expire %.0f ms before their content', part, moment / 1000 - found.expires)
  end
end

-- Invariant 5: each key has a TTL, and outlives its content.
local function check_ttls(name, state, now)
  local longest, latest = 0, 0
  local order, scores = state.holders.order, state.holders.scores
  if order[1] then
    longest = scores[order[#order]]
    check_ttl(name, state.holders, 'holders', longest, now)
  end
  order = state.queue.order
  for i = 1, #order do
    local record = state.records[order[i]]
    if record and record.wait_until > latest then
      latest = record.wait_until
    end
  end
  if order[1] then
    check_ttl(name, state.queue, 'queue', latest, now)
  end
  if state.hash.size > 0 then
    check_ttl(name, state.hash, 'tokens', longest > latest and longest or latest, now)
  end
  local tombstones = peek(name.keys.tombstones, now)
  if tombstones then
    check_ttl(name, tombstones, 'tombstones', 0, now)
  end
end

local TICKETS = {permit_acquire = 8, multi_acquire = 5} -- which argument is the ticket

local SERVES = {
  permit_acquire = {queued = true},
  permit_release = {released = true},
  permit_cancel = {cancelled = true},
  permit_lower = {lowered = true},
  permit_resize = {resized = true},
  permit_revoke = {revoked = true},
  multi_acquire = {queued = true},
}

-- A script that serves the queue leaves no permit free that the first waiter could have.
local function check_served(name, state, script, reply, caller, now)
  local tag = reply and reply[1]
  if not (SERVES[script] and SERVES[script][tag]) or reply.more == 1 then
    return
  end
  local head = state.queue.order[1]
  local waiter = head and state.records[head]
  if not waiter or name.torn or waiter.claim == 0 then
    return
  end
  local most, out = state.resized or waiter.limit, 0
  for _, record in pairs(state.records) do
    if record.limit ~= most and not state.resized then
      return -- a request with another limit does not serve all others
    end
  end
  for token, _ in pairs(state.holders.scores) do
    local record = state.records[token]
    out = out + (record and record.weight or math.huge)
  end
  if (waiter.wait_until < now or waiter.weight > most or heard(waiter.inbox) == 0) and out < most then
    if head ~= caller then
      complain(6, name, '%s can never be granted, and is first in the queue', head)
    end
  elseif out + waiter.weight <= most then
    complain('service', name, '%s fits and waits: %.0f of %.0f are held', head, out, most)
  end
end

-- Invariants 4 and 8: the reply of a script agrees with the data.
local function check_reply(name, state, script, reply, caller, several, now)
  local tag = reply and reply[1]
  local deadline = state.holders.scores[caller]
  if tag == 'granted' then
    local record = state.records[caller]
    if not deadline or not record or record.fence ~= tonumber(reply[2]) then
      complain(4, name, 'the reply grants %s the fence %s', caller, tostring(reply[2]))
    elseif deadline - now < reply[3] or script == 'permit_acquire' and deadline - now > reply[3] then
      complain(8, name, '%s has %.0f us, and the reply says %.0f', caller, deadline - now, reply[3])
    end
  elseif tag == 'renewed' then
    if not deadline or deadline - now < reply[2] then
      complain(8, name, 'the reply gives %s %.0f us', caller, reply[2])
    end
  elseif tag == 'queued' then
    if state.queue.scores[caller] ~= reply[5] then
      complain(4, name, 'the reply queues %s at %.0f', caller, reply[5])
    end
    name.queued_in[caller] = turn
  elseif tag and tag ~= 'lowered' and not (tag == 'lost' and name.was_lost) and script ~= 'permit_inspect' and script ~= 'permit_revoke' then
    local lost = tag == 'lost' and several and (script == 'permit_renew' or script == 'permit_release')
    if deadline and deadline > now and not lost and not name.torn then
      complain(4, name, '%s holds, and the reply is %s', caller, tag)
    elseif state.queue.scores[caller] and script ~= 'permit_release' and script ~= 'permit_renew' and not lost then
      complain(4, name, '%s waits, and the reply is %s', caller, tag)
    end
  end
end

-- Return the data of a name.
local function look(name, now)
  local hash = peek(name.keys.tokens, now) or NO_HASH
  local state = {
    holders = peek(name.keys.holders, now) or NO_SET,
    queue = peek(name.keys.queue, now) or NO_SET,
    hash = hash,
    records = {},
  }
  local fields, records = hash.fields, state.records
  local order = state.holders.order
  for i = 1, #order do
    local record = fields[order[i]]
    records[order[i]] = record and (parsed[record] or read(record)) or nil
  end
  order = state.queue.order
  for i = 1, #order do
    local record = fields[order[i]]
    records[order[i]] = record and (parsed[record] or read(record)) or nil
  end
  state.resized = fields.limit and tonumber(fields.limit)
  return state
end

local function remember(name, state)
  local queue, place, waiters = {}, {}, {}
  local order = state.queue.order
  for i = 1, #order do
    local token = order[i]
    queue[i], place[token], waiters[token] = token, i, state.records[token]
  end
  name.queue, name.place, name.waiters = queue, place, waiters
  local deadlines, scores, held = name.deadlines, state.holders.scores, {}
  name.held = held
  order = state.holders.order
  for i = 1, #order do
    local token = order[i]
    local deadline, known = scores[token], deadlines[token]
    held[token] = deadline
    if not known or deadline > known then
      deadlines[token] = deadline
    end
  end
end

local watch = {}

-- Start with these names.
function watch.begin(...)
  names, by_tag, by_key, finished, ghosts, parsed = {}, {}, {}, {}, {}, {}
  for _, tag in ipairs({...}) do
    local name = {tag = tag, keys = {}, queue = {}, place = {}, waiters = {}, granted = {}, held = {}, deadlines = {}, fence = 0}
    name.granted_in, name.queued_in = {}, {}
    for _, part in ipairs({'holders', 'queue', 'tokens', 'tombstones'}) do
      name.keys[part] = tag .. ':' .. part
    end
    insert(names, name)
    by_tag[tag], by_key[name.keys.holders] = name, name
  end
end

-- Check the names of a script after its call. Return the violations as text, or nothing.
function watch.after(script, now)
  complaints, turn = {}, turn + 1
  local keys, argv, reply = server.last()
  local caller = argv[1]
  ghosts[caller] = nil
  local touched, unsure = {}, false
  local caller_moves = script == 'multi_acquire' -- unless it is in all queues already
  for i = 1, #keys do
    local name = by_key[keys[i]]
    if name then
      insert(touched, name)
      unsure = unsure or name.torn
    end
  end
  local ticket = tonumber(argv[TICKETS[script]])
  ticket = ticket ~= 0 and ticket
  if caller_moves then
    local places, since = 0, nil
    for _, name in ipairs(touched) do
      if name.place[caller] then
        places, since = places + 1, name.waiters[caller] and name.waiters[caller].since
      end
    end
    caller_moves = places < #touched
    ticket = ticket or caller_moves and since -- some of its places are left, and say which the others are
  end
  caller_moves = caller_moves or unsure
  if reply and (reply[1] == 'released' or reply[1] == 'cancelled' or reply[1] == 'lowered' or reply[1] == 'resized') then
    reply.more = reply[2]
  elseif reply and reply[1] == 'revoked' then
    reply.more = reply[3]
  elseif reply and (reply[1] == 'queued' or reply[1] == 'busy') then
    reply.more = reply[reply[1] == 'queued' and 4 or 2] == 0 and 1 or 0
  end
  for _, name in ipairs(touched) do
    local state = look(name, now)
    check_queue(name, state, caller, caller_moves, ticket, unsure, now)
    check_grants(name, state, caller, caller_moves, ticket, now)
    check_records(name, state, now)
    check_kept(name, state, script, caller, argv, now)
    check_ttls(name, state, now)
    check_served(name, state, script, reply, caller, now)
    check_reply(name, state, script, reply, caller, #touched > 1, now)
    remember(name, state)
  end
  if complaints[1] then
    return table.concat(complaints, '; ')
  end
end

-- The request of a token has ended: check that it neither holds nor waits, now and after later scripts.
function watch.finish(token, now)
  finished[token] = true
  complaints = {}
  for _, name in ipairs(names) do
    local state = look(name, now)
    if (state.holders.scores[token] or 0) > now then
      complain(7, name, '%s holds after its end', token)
    elseif state.queue.scores[token] then
      complain(7, name, '%s waits after its end', token)
    end
  end
  if complaints[1] then
    return table.concat(complaints, '; ')
  end
end

-- Return whether the latest reply or message of a token granted it the name, and the latest deadline of its lease, if
-- it ever had one.
function watch.belief(tag, token)
  local name = by_tag[tag]
  return (name.granted_in[token] or 0) > (name.queued_in[token] or 0), name.deadlines[token]
end

-- The server's clock has jumped forward: tombstones and leases may have expired early.
function watch.forget_finished()
  finished = {}
end

-- The data of a name, or of all names, was lost; if `torn`, only some of its keys were.
function watch.lost(tag, torn, forget_fences, now)
  for token in pairs(finished) do
    ghosts[token] = true
  end
  finished = {}
  for _, name in ipairs(names) do
    if not tag or name.tag == tag then
      name.granted = {}
      name.torn, name.was_lost = name.torn or torn, true
      name.fence = forget_fences and 0 or name.fence
      local state = look(name, now)
      for _, token in ipairs(state.holders.order) do
        name.granted[token] = state.records[token] and state.records[token].fence
      end
      remember(name, state)
    end
  end
end

-- The server's clock was set back while the latest fence may have been lost: the one documented exception.
function watch.forget_fences()
  for _, name in ipairs(names) do
    name.fence = 0
  end
end

-- Return the tags and tokens of all current holders and waiters.
function watch.present(now)
  local found = {}
  for _, name in ipairs(names) do
    local state = look(name, now)
    for _, token in ipairs(state.holders.order) do
      if state.holders.scores[token] > now then
        insert(found, name.tag .. ' ' .. token)
      end
    end
    for _, token in ipairs(state.queue.order) do
      if not state.records[token] or state.records[token].wait_until >= now then
        insert(found, name.tag .. ' ' .. token)
      end
    end
  end
  table.sort(found)
  return unpack(found)
end

-- Return each first live waiter that fits and nevertheless waits, as far as a client could know.
function watch.idle(now)
  local found = {}
  for _, name in ipairs(names) do
    local state = look(name, now)
    for _, token in ipairs(state.queue.order) do
      local waiter = state.records[token]
      local most = waiter and (state.resized or waiter.limit)
      if waiter and is_protected(waiter, most, now) then
        local out = 0
        for holder, deadline in pairs(state.holders.scores) do
          local record = state.records[holder]
          out = out + (deadline > now and (record and record.weight or math.huge) or 0)
        end
        if waiter.claim > 0 and out + waiter.weight <= most then
          insert(found, name.tag .. ' ' .. token)
        end
        break
      end
    end
  end
  table.sort(found)
  return unpack(found)
end

return watch

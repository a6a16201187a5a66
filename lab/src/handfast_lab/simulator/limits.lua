-- limits: the conditions that must hold for every limiter after every script, under all faults.
--
-- The checks keep a ledger of their own: what was admitted, when, and at what cost, by the true time of the simulation. So
-- they know how much a period has admitted whatever the scripts store, sum up and sweep. `watch.lost` and
-- `watch.forget_finished` report what was lost or ended early; the ledger then continues with what is stored.
local server = ...
local peek, heard, format, floor, insert = server.peek, server.heard, string.format, math.floor, table.insert
local unpack_doubles = server.struct.unpack

local names, by_key = {}, {} -- the watched limiters: in order, and by the key of their queue
local requests = {} -- by token, what its latest acquire asked for
local finished = {} -- tokens that ended without an admission, or gave it back: they must not be admitted or wait again
local admitted_at = {} -- by token, the server's instants at which it was admitted
local complaints = {}

local function complain(number, name, words, ...)
  insert(complaints, 'L' .. number .. ': ' .. name.tag .. ' ' .. format(words, ...))
end

-- --- what is stored, and what scripts are given and answer

local NO_SET, NO_HASH = {scores = {}, order = {}, size = 0}, {fields = {}, size = 0}
local TOMBSTONE_US = 20000000 -- how long a token that is over is remembered
local CLAIM_US = 2000000 -- how long a waiter that was to come has for that
local PARTS, SUM = {'queue', 'waiting', 'tombstones', 'settings'}, '='

-- The rates of an argument or of a record: for each its limit and its period, as doubles, then the metrics. Each rate has
-- the id of its window, and the cost of a request: by its metric, or where an operator has set others, as the client says.
local function read_rates(text, costs)
  local rates, names = {}, string.match(text, ';([a-z0-9_,]+)$')
  local metrics, metric = {}, nil
  for name in string.gmatch(names and names .. ',' or '', '([^,]*),') do
    metric = name ~= '' and name or metric
    insert(metrics, metric)
  end
  for i = 1, floor((#text - (names and #names + 1 or 0)) / 16) do
    local limit, per_ms = unpack_doubles('<dd', text, 16 * i - 15)
    local id = (metrics[i] and metrics[i] .. ':' or '') .. format('%.0f', per_ms)
    local cost = costs[metrics[i] or ''] or (metrics[i] == 'requests' or not metrics[i]) and 1 or 0
    insert(rates, {limit = limit, per_ms = per_ms, metric = metrics[i], id = id, cost = cost})
  end
  return rates, names ~= nil
end

-- The costs of a request by metric, of which the word lists one for each window; '' stands for no metric.
local function costs_of(text, cost, words)
  local costs, listed = {[''] = cost}, string.match(words, ' costs=([%d,]+)')
  local rates, has_metrics = read_rates(text, costs)
  if has_metrics then
    costs[''] = nil
    local i = 0
    for number in string.gmatch(listed, '%d+') do
      i = i + 1
      costs[rates[i].metric] = tonumber(number)
    end
  end
  return costs
end

-- What an acquire asks for. It waits unless its patience is 0.
local function read_request(argv)
  local wait_ms, patience_us, max_waiters, ticket = unpack_doubles('<dddd', argv[2])
  local follows, cost, text, at = unpack_doubles('<ddBc0', argv[3])
  local costs = costs_of(text, cost, string.sub(argv[3], at))
  local rates, has_metrics = read_rates(text, costs)
  local request = {costs = costs, text = text, rates = rates, has_metrics = has_metrics, ticket = ticket, max_waiters = max_waiters}
  request.wait_ms, request.patience_us, request.follows = wait_ms, patience_us, follows == 1
  return request
end

-- What a settling changes: the new cost in each window, by its id.
local function read_settling(argv)
  local _, new_cost, copies = unpack_doubles('<ddd', argv[2])
  local rates, has_metrics = read_rates(argv[3], {})
  local becomes = {}
  for i, rate in ipairs(rates) do
    becomes[rate.id] = has_metrics and unpack_doubles('<d', argv[4], 16 * i - 7) or new_cost
  end
  return {becomes = becomes, new_cost = new_cost, copies = copies, rates = rates, text = argv[3]}
end

-- The record of a waiter, as lua/lib/turns.lua describes it.
local function read_waiter(record)
  local wait_until, comes_at, follows, cost, rates, at = unpack_doubles('<ddddBc0', record)
  local costs = costs_of(rates, cost, string.sub(record, at))
  return {wait_until = wait_until, comes_at = comes_at, follows = follows == 1, costs = costs, rates = rates, inbox = string.match(record, '^%S+', at)}
end

local function read_entry(member)
  local token, cost = string.match(member, '^(%S+) (%d+)$')
  return token, tonumber(cost)
end

-- A message's token; whether it admits it, and else when the token is to come.
local function read_message(message)
  local token, numbers = string.match(message, '^granted (%S+) (.*)$')
  if token then
    local number, _, admits = unpack_doubles('<ddd', numbers)
    return token, admits == 1, number
  end
end

-- A reply as a table: its tag and its numbers.
local function read_reply(reply)
  if type(reply) ~= 'string' then
    return type(reply) == 'table' and {reply[1]} or nil -- an array, for one with a text
  end
  local tag, numbers = string.match(reply, '^(%S+) (.*)$')
  local read = {tag}
  for at = 1, #numbers, 8 do
    read[#read + 1] = (unpack_doubles('<d', numbers, at))
  end
  return read
end

local function look(name, now)
  local state = {queue = {}, place = {}, tickets = {}, waiters = {}, windows = {}}
  local sorted, waiting = peek(name.keys.queue, now) or NO_SET, peek(name.keys.waiting, now) or NO_HASH
  for i, token in ipairs(sorted.order) do
    state.queue[i], state.place[token], state.tickets[token] = token, i, sorted.scores[token]
    local record = waiting.fields[token]
    state.waiters[token] = record and read_waiter(record) or nil
  end
  state.records = waiting.size
  state.tombstones = (peek(name.keys.tombstones, now) or NO_SET).scores
  local settings = (peek(name.keys.settings, now) or NO_HASH).fields
  state.paused_until, state.set_rates = tonumber(settings.paused_until) or 0, settings.rates
  for id, key in pairs(name.windows) do
    local found = peek(key, now)
    local window = {entries = {}, order = {}, sum = 0, stored = found and -(found.scores[SUM] or 0) or 0}
    for _, member in ipairs((found or NO_SET).order) do
      if member ~= SUM then
        local token, cost = read_entry(member)
        if window.entries[token] and not name.was_cut then
          complain(5, name, '%s has two entries in the window of %s ms', token, id)
        end
        window.entries[token] = {token = token, cost = cost, at = found.scores[member]}
        insert(window.order, window.entries[token])
        window.sum = window.sum + cost
      end
    end
    state.windows[id] = window
  end
  return state
end

-- --- what the model knows

-- Whether no request may overtake this waiter, and no script may drop it: all but one that was to come, and did not
-- within two seconds, and others of its connection.
local function is_protected(waiter, now)
  return waiter and waiter.wait_until >= now and heard(waiter.inbox) > 0
end

local function is_frozen(waiter, waiters, now)
  for _, other in pairs(waiters) do
    if other.inbox == waiter.inbox and other.comes_at + CLAIM_US < now then
      return true
    end
  end
  return false
end

-- How much the last period has admitted, by the true time.
local function used(ledger, per_ms, true_now)
  local sum = 0
  for _, entry in pairs(ledger) do
    if entry.since > true_now - per_ms * 1000 and not entry.is_excused then
      sum = sum + entry.cost
    end
  end
  return sum
end

-- From when on a request fits if no other one is admitted, by what is stored; 0 if it does now.
local function due(state, request, now)
  local when = state.paused_until > now and state.paused_until or 0
  for _, rate in ipairs(request.rates) do
    local excess, per_us = rate.cost - rate.limit, rate.per_ms * 1000
    local live = {}
    for _, entry in ipairs(state.windows[rate.id].order) do
      if entry.at > now - per_us then
        excess = excess + entry.cost
        insert(live, entry)
      end
    end
    for _, entry in ipairs(live) do
      if excess <= 0 then
        break
      end
      excess, when = excess - entry.cost, math.max(when, entry.at + per_us)
    end
  end
  return when
end

-- Whether a waiter's rates are those of a request, and count.
local function is_alike(state, its, request)
  return its.text == request.text and (its.text == state.set_rates or not state.set_rates and not its.follows)
end

-- For how long a request waits at least: until it fits, and the first waiter before it: one with other rates knows its
-- time itself, or was told to come.
local function due_us(state, request, caller, now)
  local head = state.queue[1]
  local its, when = head and requests[head], due(state, request, now)
  if its and head ~= caller then
    local comes_at = state.waiters[head] and state.waiters[head].comes_at or math.huge
    if is_alike(state, its, request) then
      when = math.max(when, due(state, its, now))
    elseif comes_at < math.huge then
      when = math.max(when, comes_at)
    end
  end
  return math.max(0, when - now)
end

-- How much more the tightest rate admits; and each of them but for a pause.
local function remaining(state, request, now)
  local least, rests = state.paused_until > now and 0 or math.huge, {}
  for i, rate in ipairs(request.rates) do
    local left = rate.limit
    for _, entry in ipairs(state.windows[rate.id].order) do
      if entry.at > now - rate.per_ms * 1000 then
        left = left - entry.cost
      end
    end
    least, rests[i] = math.min(least, left), math.max(0, left)
  end
  return math.max(0, least), rests
end

-- --- the checks

-- L5, and what is known of costs: compare each window with the ledger, which then has what the window has. Returns the
-- tokens that were admitted, with the periods of the windows that they are in.
local function compare(name, state, script, caller, settling, is_cut, now, true_now)
  local new = {}
  for id, window in pairs(state.windows) do
    local ledger, per_ms = name.ledgers[id], name.periods[id]
    for token, known in pairs(ledger) do
      local entry = window.entries[token]
      local is_settled = settling and token == caller
      if not entry then
        local is_live = known.since > true_now - per_ms * 1000 and not known.is_excused
        if is_live and name.was_cut and token == caller and not settling and not name.was_told[token] then
          admitted_at[token] = nil -- its admission was cut off, and is taken back since it does not fit any more
        elseif is_live and not (is_settled and (settling.new_cost == 0 or is_cut)) and not name.torn then
          complain(1, name, '%s is forgotten %.0f us before its period of %s ms ends', token, known.since + per_ms * 1000 - true_now, id)
        end
        ledger[token] = nil
      elseif entry.cost ~= known.cost then
        if not (is_settled and entry.cost == settling.becomes[id]) then
          complain(5, name, '%s costs %.0f, and cost %.0f', token, entry.cost, known.cost)
        end
        known.cost = entry.cost
      end
    end
    for token, entry in pairs(window.entries) do
      local known = ledger[token]
      local is_stamped = known and known.at > now and entry.at == now -- the clock was set back
      local has_lapsed = known and (known.is_excused or known.since <= true_now - per_ms * 1000)
      if has_lapsed and known.at ~= entry.at and not is_stamped then
        known = nil -- the window had expired as a whole
      end
      local first = name.first[token]
      if known and known.at ~= entry.at then
        if not is_stamped and entry.at == now then
          complain(5, name, '%s is admitted again in the window of %s ms', token, id)
        elseif not is_stamped then
          complain(5, name, '%s is moved by %.0f us', token, entry.at - known.at)
        end
        known.at = entry.at
        if is_stamped then
          name.first[token].instants[entry.at] = true
        end
      elseif not known and first and first.instants[entry.at] and (name.was_cut or name.torn or name.has_stepped) then
        -- A copy has found it in another window, and has added it here, where it had been left out, lost or dropped.
        local since = name.was_told[token] and first.since or true_now
        ledger[token] = {cost = entry.cost, at = entry.at, since = since}
      elseif not known then
        ledger[token] = {cost = entry.cost, at = entry.at, since = true_now}
        new[token] = new[token] or {}
        new[token][id] = entry
      end
    end
  end
  return new
end

-- The ticket of a caller that is admitted in this step: infinite if it came without one, and earlier by its head start.
local function ticket_of(request, now)
  return request.ticket > 0 and request.ticket or request.ticket < 0 and now + request.ticket or math.huge
end

-- L1 to L3, L5, L7, L9 and L10: each new admission is in all its windows, fits all its rates, overtakes no waiter, and has
-- a message that its client receives.
local function check_admissions(name, state, new, caller, settling, reply, is_cut, now, true_now)
  local order = {}
  for token in pairs(new) do
    insert(order, token)
  end
  local before = name.before
  -- Waiters are admitted in the order of the queue, and the caller behind them.
  table.sort(order, function(one, other)
    local its = before.tickets[one] or requests[one] and ticket_of(requests[one], now) or math.huge
    local others = before.tickets[other] or requests[other] and ticket_of(requests[other], now) or math.huge
    return its < others or its == others and one < other
  end)
  local later = {} -- by window, what those admitted later in this step cost
  for i = #order, 1, -1 do
    local token = order[i]
    local request = requests[token]
    if not request then
      complain(5, name, '%s is admitted and never asked', token)
      return
    end
    -- It was admitted before: to some of its windows, by a script that was cut off; or under rates that were set then.
    local first = name.first[token]
    local is_same = first and token == caller and reply and reply[1] == 'admitted' and first.instants[reply[2]]
    local was_admitted = first and name.was_cut or is_same
    for _, rate in ipairs(request.rates) do
      local entry, id = new[token][rate.id], rate.id
      if entry then
        local sum = used(name.ledgers[id], rate.per_ms, true_now) - (later[id] or 0)
        if sum > rate.limit then
          complain(1, name, '%s is admitted, and that makes %.0f of %.0f in %s ms', token, sum, rate.limit, id)
        end
        if entry.at ~= now then
          complain(5, name, '%s is admitted %.0f us ago', token, now - entry.at)
        elseif entry.cost ~= rate.cost and not settling then
          complain(5, name, '%s is admitted for %.0f, and asked for %.0f', token, entry.cost, rate.cost)
        end
        later[id] = (later[id] or 0) + entry.cost
      elseif not is_cut and not name.ledgers[id][token] and not was_admitted then
        complain(5, name, '%s is admitted without the window of %s ms', token, id)
      end
    end
    for id in pairs(new[token]) do
      local is_own = false
      for _, rate in ipairs(request.rates) do
        is_own = is_own or rate.id == id
      end
      if not is_own then
        complain(5, name, '%s is admitted in the window of %s ms, which it did not ask for', token, id)
      end
    end
    if finished[token] then
      complain(7, name, '%s is admitted after its end', token)
    end
    -- L13: who was admitted by the call of another, and whose message was lost, is not admitted once more.
    local is_recent = first and first.by_another and not was_admitted and true_now < first.since + TOMBSTONE_US
    if is_recent and not (name.torn or name.has_stepped or name.has_lost) then
      complain(13, name, '%s is admitted once more after %.3f s', token, (true_now - first.since) / 1000000)
    end
    if state.set_rates and state.set_rates ~= request.text then
      complain(10, name, '%s is admitted under other rates than those that were set', token)
    elseif request.follows and not state.set_rates then
      complain(10, name, '%s is admitted under rates that are set no more', token)
    end
    if state.paused_until > now and not was_admitted then
      complain(9, name, '%s is admitted %.0f us before the end of a pause', token, state.paused_until - now)
    end
    local ticket = before.tickets[token] or ticket_of(request, now)
    if was_admitted then
      ticket = 0
    end
    for _, other in ipairs(before.queue) do
      if before.tickets[other] < ticket and state.place[other] and is_protected(before.waiters[other], now) then
        local number = request.patience_us == 0 and 3 or 2
        complain(number, name, '%s is admitted before %s, which waits', token, other)
      end
    end
    if token ~= caller then
      local waiter = before.waiters[token]
      if not waiter or waiter.wait_until < now then
        complain(4, name, '%s is admitted and does not wait', token)
      elseif heard(waiter.inbox) == 0 then
        complain(4, name, '%s is admitted without a listener', token)
      elseif not is_cut and not (name.told[token] and name.told[token].inbox == waiter.inbox) then
        complain(4, name, '%s is admitted without a message', token)
      end
    end
    if was_admitted then
      first.instants[now] = true
    else
      name.first[token] = {instants = {[now] = true}, since = true_now, by_another = token ~= caller}
    end
    admitted_at[token] = admitted_at[token] or {}
    insert(admitted_at[token], now)
  end
end

-- Each message that admits a token is true, and no other one has a time that is too late.
local function check_messages(name, state, now)
  name.told = {}
  local published = {server.messages()}
  for i = 1, #published, 2 do
    local token, admits, at = read_message(published[i + 1])
    if token and admits then
      name.told[token], name.was_told[token] = {inbox = published[i]}, true
      if not admitted_at[token] and not name.ledgers_have(token) then
        local is_there = false
        for _, window in pairs(state.windows) do
          is_there = is_there or window.entries[token] ~= nil
        end
        if not is_there then
          complain(5, name, 'a message admits %s, which is not admitted', token)
        end
      end
    elseif token and requests[token] then
      local exact = due(state, requests[token], now)
      if at > math.max(now, exact) then
        complain(4, name, 'a message calls %s %.0f us too late', token, at - math.max(now, exact))
      end
    end
  end
end

-- L2 and L4: the queue keeps its order, newcomers are at its end, and live waiters stay.
local function check_queue(name, state, new, caller, ticket, settling, is_cut, now)
  local before, newcomer = name.before, nil
  for _, token in ipairs(state.queue) do
    local known = before.tickets[token] or token == caller and ticket > 0 and ticket
    if known and state.tickets[token] ~= known then
      complain(2, name, '%s has the ticket %.0f, and had %.0f', token, state.tickets[token], known)
    elseif not known and ticket < 0 then
      if state.tickets[token] < now + ticket then
        complain(2, name, '%s has a ticket of %.0f us ago', token, now - state.tickets[token])
      end
    elseif not known then
      newcomer = token
      if state.tickets[token] < now then
        complain(2, name, '%s has a ticket of %.0f us ago', token, now - state.tickets[token])
      end
    elseif newcomer and before.place[token] then
      complain(2, name, '%s stands behind %s, which came later', token, newcomer)
    end
    if finished[token] then
      complain(7, name, '%s waits after its end', token)
    end
    for _, rate in ipairs(requests[token].rates) do
      if state.windows[rate.id].entries[token] and not name.torn and not name.was_cut then
        complain(5, name, '%s is admitted and waits', token)
      end
    end
    if not state.waiters[token] and not name.torn and not name.was_cut then
      complain(8, name, '%s waits without a record', token)
    end
  end
  for _, token in ipairs(before.queue) do
    if not state.place[token] and not new[token] and token ~= caller and not name.torn and not is_cut then
      local waiter = before.waiters[token]
      if is_protected(waiter, now) and not is_frozen(waiter, before.waiters, now) then
        complain(4, name, '%s waited and was removed', token)
      end
    end
  end
  if state.records ~= #state.queue and not name.torn and not name.was_cut then
    complain(8, name, '%d records for %d waiters', state.records, #state.queue)
  end
  if settling and settling.new_cost == 0 and state.place[caller] and not is_cut then
    complain(7, name, '%s waits after it was cancelled', caller)
  end
end

-- L6: the sum beside the entries is theirs.
local function check_sums(name, state)
  for id, window in pairs(state.windows) do
    if window.stored ~= window.sum and not name.was_cut then
      complain(6, name, 'the window of %s ms says %.0f for %.0f', id, window.stored, window.sum)
    end
  end
end

-- L8: each key has a TTL, and lives as long as what is in it: by the true time, since the clock may have been set back.
local function check_ttls(name, state, now, true_now)
  local function check_key(what, key, longest_us)
    local found = peek(key, now)
    if found and not found.expires then
      complain(8, name, 'the %s has no TTL', what)
    elseif found and found.expires < floor((longest_us + now - true_now) / 1000) - 1 then
      local missing = (longest_us + now - true_now) / 1000 - found.expires
      complain(8, name, 'the %s expires %.0f ms too early', what, missing)
    end
  end
  local longest = 0
  for _, token in ipairs(state.queue) do
    longest = math.max(longest, name.waits_until[token] or 0)
  end
  check_key('queue', name.keys.queue, longest)
  check_key('records of the queue', name.keys.waiting, longest)
  check_key('tombstones', name.keys.tombstones, 0)
  check_key('settings', name.keys.settings, 0)
  for token, until_us in pairs(name.over_until) do
    if until_us > true_now and not state.tombstones[token] then
      complain(7, name, '%s has ended without a tombstone', token)
    end
  end
  for id, key in pairs(name.windows) do
    local longest = 0
    for _, entry in pairs(name.ledgers[id]) do
      longest = math.max(longest, entry.is_excused and 0 or entry.since + name.periods[id] * 1000)
    end
    check_key('window', key, longest)
  end
end

-- L4: the first waiter is admitted by the next call with the same rates if it fits.
local function check_served(name, state, request, reply, caller, was_admitted, now)
  local tag = reply and reply[1]
  local head = state.queue[1]
  if not head or tag == 'finished' or tag == 'more' or tag == 'rates' or tag == 'admitted' and (was_admitted or reply[2] ~= now) then
    return
  end
  local its = requests[head]
  if its and is_alike(state, its, request) and is_protected(state.waiters[head], now) and due(state, its, now) <= now then
    if #name.before.queue <= 100 then
      complain(4, name, '%s fits and waits', head)
    end
  end
end

-- L11: a first waiter that fits and does not ask for longer than the claim window keeps no one from what is left.
local function check_frozen(name, state, request, reply, caller, now, true_now)
  local head = state.queue[1]
  local its = head and requests[head]
  local counts = its and {rates = state.set_rates and read_rates(state.set_rates, its.costs) or its.rates}
  local fits = its and not (its.follows and not state.set_rates) and due(state, counts, now) <= now
  local blocks = name.blocks
  if not fits or head == caller or not blocks or blocks.head ~= head then
    name.blocks = fits and {head = head, since = true_now} or nil
  elseif true_now > blocks.since + CLAIM_US and remaining(state, request, now) > 0 and not name.has_stepped and not name.torn then
    if reply and (reply[1] == 'queued' or reply[1] == 'refused') then
      complain(11, name, '%s keeps %s waiting for %.3f s', head, caller, (true_now - blocks.since) / 1000000)
    end
  end
end

-- L12: one that is dead is not counted where a newcomer is refused because of those before it.
local function check_dead(name, state, request, reply, caller, now)
  local is_refused = reply and (reply[1] == 'full' or reply[1] == 'refused' and reply[2] > due_us(state, request, caller, now))
  if is_refused and #state.queue <= 100 then
    for _, token in ipairs(state.queue) do
      if not is_protected(state.waiters[token], now) then
        complain(12, name, '%s is refused because of %s, which is gone', caller, token)
      end
    end
  end
end

-- L4: what is later than now was admitted before the clock was set back. It counts from now on, once a request does not fit.
local function check_redated(name, state, request, reply, now)
  if not reply or reply[1] ~= 'refused' and reply[1] ~= 'queued' then
    return
  end
  for _, rate in ipairs(request.rates) do
    local window = state.windows[rate.id]
    local newest = window.order[#window.order]
    if newest and newest.at > now and window.sum + rate.cost > rate.limit then
      complain(4, name, '%s was admitted in %.0f us, and keeps others waiting', newest.token, newest.at - now)
    end
  end
end

-- The reply agrees with the data.
local function check_reply(name, state, request, reply, caller, serves_others, now)
  local tag = reply and reply[1]
  if tag == 'admitted' then
    local at = nil
    for _, rate in ipairs(request.rates) do
      local entry = state.windows[rate.id].entries[caller]
      at = at or entry and entry.at
    end
    local known, left, rests = name.first[caller], remaining(state, request, now)
    if not (known and known.instants[reply[2]]) and not name.torn then
      complain(5, name, 'the reply admits %s at %.0f, and that was at %.0f', caller, reply[2], at or 0)
    elseif reply[3] ~= left and not (reply[3] > left and serves_others) and not name.was_cut then
      complain(1, name, 'the reply says that %.0f remain, and %.0f do', reply[3], left)
    end
    for i, rest in ipairs(request.has_metrics and rests or {}) do
      if reply[3 + i] ~= rest and not (reply[3 + i] and reply[3 + i] > rest and serves_others) and not name.was_cut then
        complain(1, name, 'the reply says that %.0f of rate %d remain, and %.0f do', reply[3 + i] or -1, i, rest)
      end
    end
  elseif tag == 'refused' then
    local exact, least = due_us(state, request, caller, now), 0
    for _, rate in ipairs(request.rates) do
      local periods = math.ceil(((request.has_metrics and 0 or #state.queue) + rate.cost) / rate.limit) - 1
      least = math.max(least, periods * rate.per_ms * 1000)
    end
    if reply[2] ~= math.max(exact, least) then
      complain(4, name, '%s is refused for %.0f us, not %.0f or %.0f', caller, reply[2], exact, least)
    elseif exact == 0 and #state.queue == 0 then
      complain(4, name, '%s fits and is refused', caller)
    elseif request.patience_us > 0 and reply[2] <= request.patience_us then
      complain(4, name, '%s is refused for %.0f us, and would wait for %.0f', caller, reply[2], request.patience_us)
    end
  elseif tag == 'queued' then
    local place, exact = state.place[caller], due_us(state, request, caller, now)
    if not place or place - 1 ~= reply[3] or reply[5] ~= state.tickets[caller] then
      complain(2, name, 'the reply gives %s the position %.0f, and it has %s', caller, reply[3], tostring(place and place - 1))
    elseif reply[4] ~= exact then
      complain(4, name, 'the reply calls %s in %.0f us, and it fits in %.0f', caller, reply[4], exact)
    end
  elseif tag == 'full' and #state.queue < request.max_waiters then
    complain(4, name, 'the reply to %s says that the queue is full', caller)
  elseif tag == 'finished' and not state.tombstones[caller] then
    complain(7, name, 'the reply says that %s has ended', caller)
  end
  if (tag == 'refused' or tag == 'full') and state.place[caller] then
    complain(7, name, '%s is %s and waits', caller, tag)
  end
end

local watch = {}

-- Start with these limiters, and with these windows: each is a metric, if there is one, and a period in ms.
function watch.begin(tags, windows)
  names, by_key, requests, finished, admitted_at = {}, {}, {}, {}, {}
  for tag in string.gmatch(tags, '%S+') do
    local name = {tag = tag, keys = {}, windows = {}, periods = {}, ledgers = {}, told = {}, waits_until = {}, was_told = {}, over_until = {}, first = {}, offset = -math.huge}
    for _, part in ipairs(PARTS) do
      name.keys[part] = tag .. ':' .. part
    end
    for id in string.gmatch(windows, '%S+') do
      name.windows[id], name.periods[id], name.ledgers[id] = tag .. ':window:' .. id, tonumber(string.match(id, '%d+$')), {}
    end
    name.ledgers_have = function(token)
      for _, ledger in pairs(name.ledgers) do
        if ledger[token] then
          return true
        end
      end
      return false
    end
    name.before = look(name, 0)
    insert(names, name)
    by_key[name.keys.queue] = name
  end
end

-- Check a limiter after a call, which may have been cut off.
local function check(name, script, caller, request, settling, reply, is_cut, now, true_now)
  name.was_cut = name.was_cut or is_cut
  name.has_stepped = name.has_stepped or now - true_now < name.offset
  name.offset = now - true_now
  if reply and reply[1] == 'admitted' then
    name.was_told[caller] = true
  end
  if request.wait_ms and not is_cut and not (reply and reply[1] == 'rates') then
    name.waits_until[caller] = true_now + request.wait_ms * 1000
  elseif settling and (settling.new_cost == 0 or settling.copies == 1) and not is_cut then
    name.over_until[caller] = true_now + TOMBSTONE_US
  end
  local was_admitted = name.ledgers_have(caller)
  local state = look(name, now)
  for token, waiter in pairs(state.waiters) do
    local its = requests[token] -- its latest may have changed nothing: it was cut off, or has been told other rates
    its.text, its.follows = waiter.rates, waiter.follows
    its.rates, its.has_metrics = read_rates(waiter.rates, waiter.costs)
  end
  check_messages(name, state, now)
  local new = compare(name, state, script, caller, settling, is_cut, now, true_now)
  check_admissions(name, state, new, caller, settling, reply, is_cut, now, true_now)
  check_queue(name, state, new, caller, request.ticket or 0, settling, is_cut, now)
  check_sums(name, state)
  check_ttls(name, state, now, true_now)
  if not is_cut then
    check_served(name, state, request, reply, caller, was_admitted, now)
    if not settling then
      local other = next(new)
      local serves_others = other ~= nil and (other ~= caller or next(new, other) ~= nil)
      check_reply(name, state, request, reply, caller, serves_others, now)
      check_redated(name, state, request, reply, now)
      check_frozen(name, state, request, reply, caller, now, true_now)
      check_dead(name, state, request, reply, caller, now)
    end
  end
  name.before = state
end

-- Check the limiters of a batch. The next call finds whether a limiter that did not admit has changed.
local function check_batch(script, keys, argv, reply, is_cut, now, true_now)
  local at, text = 1, argv[2]
  for i = 1, #keys / 4 do
    local token, cost, left
    token, cost, at = unpack_doubles('<Bc0d', argv[1], at)
    left = not is_cut and unpack_doubles('<d', reply, 8 * i + 1)
    local name = by_key[keys[4 * i - 3]]
    if name and (is_cut or left >= 0) then
      local costs = {[''] = cost}
      local request = {costs = costs, text = text, rates = read_rates(text, costs), ticket = 0, max_waiters = math.huge, patience_us = 0}
      requests[token] = request
      check(name, script, token, request, nil, not is_cut and {'admitted', now, left} or nil, is_cut, now, true_now)
    end
  end
end

-- Check the limiters of a call, which may have been cut off. Return the violations as text, or nothing.
function watch.after(script, is_cut, now, true_now)
  complaints = {}
  local keys, argv, reply = server.last()
  local name = by_key[keys[1]]
  if script == 'limit_batch' then
    check_batch(script, keys, argv, reply, is_cut, now, true_now)
  elseif name and script ~= 'limit_inspect' then
    reply = not is_cut and read_reply(reply) or nil
    local caller, settling, request = argv[1], nil, nil
    if script == 'limit_settle' then
      settling = read_settling(argv)
      request = settling
    elseif script == 'limit_pause' or script == 'limit_resize' then
      local text = argv[#argv]
      caller, settling = nil, {text = text, rates = read_rates(text, {})}
      request = settling
    else
      request = read_request(argv)
      requests[caller] = request
    end
    check(name, script, caller, request, settling, reply, is_cut, now, true_now)
  end
  if complaints[1] then
    return table.concat(complaints, '; ')
  end
end

-- A token has ended without an admission, or has given it back: check that nothing of it is there, now and later.
function watch.finish(token, now)
  finished[token] = true
  complaints = {}
  for _, name in ipairs(names) do
    local state = look(name, now)
    if state.place[token] then
      complain(7, name, '%s waits after its end', token)
    end
    for id, window in pairs(state.windows) do
      if window.entries[token] then
        complain(7, name, '%s is in the window of %s ms after its end', token, id)
      end
    end
  end
  if complaints[1] then
    return table.concat(complaints, '; ')
  end
end

-- Return the server's instants at which a token was admitted.
function watch.admitted(token)
  return unpack(admitted_at[token] or {})
end

-- The server's clock has jumped forward: windows may end early, and so may the memory of tokens that are over.
function watch.forget_finished()
  finished = {}
  for _, name in ipairs(names) do
    name.over_until, name.waits_until, name.has_lost = {}, {}, true
    for _, ledger in pairs(name.ledgers) do
      for _, entry in pairs(ledger) do
        entry.is_excused = true
      end
    end
  end
end

-- The data of a limiter, or of all, was lost; if `torn`, only some of its keys were.
function watch.lost(tag, torn, now, true_now)
  finished = {}
  for _, name in ipairs(names) do
    if not tag or name.tag == tag then
      name.torn, name.over_until, name.has_lost = name.torn or torn, {}, true
      name.before = look(name, now)
      for id, window in pairs(name.before.windows) do
        local ledger = {}
        for token, entry in pairs(window.entries) do
          -- One that is new here had lapsed before. Since when it counts is not known if the clock was set back.
          local known = name.ledgers[id][token] or {since = entry.at - (now - true_now), is_excused = entry.at > now}
          ledger[token] = {cost = entry.cost, at = entry.at, since = known.since, is_excused = known.is_excused}
        end
        name.ledgers[id] = ledger
      end
    end
  end
end

-- Return the tags and tokens of all that wait or are in a window.
function watch.present(now)
  local found = {}
  for _, name in ipairs(names) do
    local state, seen = look(name, now), {}
    for _, token in ipairs(state.queue) do
      local waiter = state.waiters[token]
      if not waiter or waiter.wait_until >= now then
        seen[token] = true
      end
    end
    for id, window in pairs(state.windows) do
      for token, entry in pairs(window.entries) do
        seen[token] = seen[token] or entry.at > now - name.periods[id] * 1000
      end
    end
    for token, is_there in pairs(seen) do
      if is_there then
        insert(found, name.tag .. ' ' .. token)
      end
    end
  end
  table.sort(found)
  return unpack(found)
end

-- Return each first live waiter that fits and nevertheless waits.
function watch.idle(now)
  local found = {}
  for _, name in ipairs(names) do
    local state = look(name, now)
    for _, token in ipairs(state.queue) do
      if is_protected(state.waiters[token], now) then
        if requests[token] and due(state, requests[token], now) <= now then
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

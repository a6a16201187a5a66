-- purchase_item: buy what is on offer, at the price that the buyer has seen.
--
-- KEYS offers goods payer payee receipt
-- ARGV item offer seen remember
-- REPLY sold price
-- REPLY gone
-- REPLY repriced price
-- REPLY short missing
-- REPLY own
--
-- `goods` are the buyer's; `payer` and `payee` are the funds of buyer and seller. `receipt` is the key of this one
-- order, and stays for `remember` seconds. `offer` is what stands among the offers, `seen` the price the buyer saw.
--
-- TWICE `sold` again, and nothing more is paid: the receipt tells. Any other answer has changed nothing and left no
--       receipt, so the question is asked afresh.
-- LATE when the receipt is gone, or where the answer was not `sold`, it buys if that offer stands at that price again.
-- MEMORY the SET is refused, and nothing has changed.
local offers, goods, payer, payee, receipt = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local item, offer, seen, remember = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

if payer == payee then
  return {'own'}
end
local paid = redis.call('GET', receipt)
if paid then
  return {'sold', tonumber(paid)}
end
local asked = redis.call('ZSCORE', offers, offer)
if not asked then
  return {'gone'}
end
local price = tonumber(asked)
if price ~= seen then
  return {'repriced', price}
end
local missing = price - tonumber(redis.call('GET', payer) or '0')
if missing > 0 then
  return {'short', missing}
end

-- A script is never rolled back. These two writes fail for keys of another type, so look at them before the first one.
redis.call('GET', payee)
redis.call('SISMEMBER', goods, item)

redis.call('SET', receipt, price, 'EX', remember)
redis.call('ZREM', offers, offer)
redis.call('DECRBY', payer, price)
redis.call('INCRBY', payee, price)
redis.call('SADD', goods, item)
return {'sold', price}

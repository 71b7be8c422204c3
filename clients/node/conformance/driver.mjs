// The client as the conformance suite drives it; ../../conformance/README.md describes the protocol.
import { createInterface } from 'node:readline'
import { Refused, RateLimiter, Unavailable, hashed, ipKey, joinKey, parseLimit, userKey } from 'ratelimitd'
import { FakeLimiter } from 'ratelimitd/testing'
import { decisionOf } from '../dist/esm/decision.js'
import { compileLimit } from '../dist/esm/limits.js'
import { keyOf } from '../dist/esm/middleware.js'
import { serviceOf } from '../dist/esm/service.js'
import { deniedRefusal, fieldsFor, unavailableRefusal } from '../dist/esm/http.js'

const clients = new Map()
const slots = new Map()
const reservations = new Map()
const running = new Map() // id to AbortController

const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`)
const bytes = (value) => (value?.base64 === undefined ? value : Buffer.from(value.base64, 'base64'))
const items = (list) => list.map(([policy, key, ...cost]) => [policy, bytes(key), ...cost])
const never = (ms) => (ms === null ? -1 : ms)

function shown(decision) {
  const fields = {}
  for (const [name, value] of Object.entries(decision))
    fields[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)] = value
  fields.retry_after_ms = never(decision.retryAfterMs)
  if (decision.members) fields.members = decision.members.map(shown)
  return fields
}

function options(command, signal, ...names) {
  const all = {
    timeoutMs: command.timeout_ms,
    signal,
    cost: command.cost,
    atMost: command.at_most,
    maxWaitMs: command.max_wait_ms,
    deadlineMs: command.deadline_ms,
    requestId: bytes(command.request_id),
    resend: command.resend,
    ttlMs: command.ttl_ms,
    onLost: () => write({ event: 'lost', slot: command.as }),
  }
  return Object.fromEntries(['timeoutMs', 'signal', ...names].map((name) => [name, all[name] ?? undefined]))
}

const sender = ({ peer, headers = [] }) => ({
  peer: peer ?? undefined,
  address: peer ?? undefined,
  believesAll: false,
  header: (name) =>
    headers
      .filter(([one]) => one.toLowerCase() === name)
      .map(([, value]) => value)
      .join(', ') || undefined,
})
const ipOptions = ({ trusted_proxies: trustedProxies, prefix, header }) => ({
  trustedProxies: trustedProxies ?? undefined,
  ipv6Prefix: prefix ?? undefined,
  header: header ?? undefined,
})

const calls = {
  check: async (client, c, o) => ({
    decision: shown(
      await client.check(c.policy, bytes(c.key), o('cost', 'atMost', 'maxWaitMs', 'deadlineMs', 'requestId', 'resend')),
    ),
  }),
  check_all: async (client, c, o) => ({
    decision: shown(await client.checkAll(items(c.items), o('deadlineMs', 'requestId', 'resend'))),
  }),
  check_many: async (client, c, o) => ({ decisions: (await client.checkMany(items(c.items), o())).map(shown) }),
  peek: async (client, c, o) => ({ decision: shown(await client.peek(c.policy, bytes(c.key), o('cost'))) }),
  reset: async (client, c, o) => ({ removed: await client.reset(c.policy, bytes(c.key), o()) }),
  refund: async (client, c, o) => ({
    decision: shown(await client.refund(c.policy, bytes(c.key), c.units, o('requestId', 'resend'))),
  }),
  acquire: async (client, c, o) => {
    const { decision, slot } = await client.tryAcquire(c.policy, bytes(c.key), o('requestId', 'deadlineMs', 'onLost'))
    if (slot) slots.set(c.as, slot)
    return { decision: shown(decision), slot: slot !== null }
  },
  reserve: async (client, c, o) => {
    const { decision, reservation } = await client.tryReserve(
      c.policy,
      bytes(c.key),
      c.estimate,
      o('requestId', 'deadlineMs', 'ttlMs'),
    )
    if (reservation) reservations.set(c.as, reservation)
    return { decision: shown(decision), reservation: reservation !== null }
  },
  release: async (_client, c) => {
    const released = await slots.get(c.slot).release()
    return { released, lost: slots.get(c.slot).lost }
  },
  settle: async (_client, c) => ({ decision: shown(await reservations.get(c.reservation).settle(c.actual)) }),
  cancel_reservation: async (_client, c) => ({ decision: shown(await reservations.get(c.reservation).cancel()) }),
  verify: async (client, c) =>
    void (await client.verify(...(c.policies ?? []), ...(c.inline ? [parseLimit('10/5s')] : []))),
}

const others = {
  open: (c) =>
    void clients.set(
      c.client,
      new RateLimiter({
        socket: c.socket ?? undefined,
        timeoutMs: c.timeout_ms ?? undefined,
        rememberDenialsMs: c.remember_denials_ms ?? undefined,
        logger: {
          warn: (message) => {
            console.error(message)
            write({ event: 'log', message })
          },
        },
      }),
    ),
  fake: (c) => void clients.set(c.client, new FakeLimiter()),
  close: (c) => clients.get(c.client)?.close(),
  stats: (c) => ({ counters: clients.get(c.client).counters, pending: clients.get(c.client).pending }),
  slot_state: (c) => ({ held: slots.get(c.slot).held, lost: slots.get(c.slot).lost }),
  cancel: (c) => running.get(c.call)?.abort(),
  block_ms: (c) => {
    write({ event: 'blocking' })
    for (const end = performance.now() + c.ms; performance.now() < end;);
  },
  threads: async (c) => {
    const counts = {}
    let allowed = 0
    await Promise.all(
      Array.from({ length: c.n }, async (_, thread) => {
        for (let time = 0; time < (c.times ?? 1); time++)
          for (const call of c.each) {
            const text = JSON.stringify(call).replaceAll('{thread}', thread).replaceAll('{time}', time)
            const answer = await perform(JSON.parse(text))
            counts[answer.status] = (counts[answer.status] ?? 0) + 1
            if (answer.decision?.allowed) allowed++
          }
      }),
    )
    return { counts, allowed }
  },
  ip_key: (c) => ({ key: ipKey(ipOptions(c))(sender(c)) }),
  user_key: (c) => ({ key: userKey(c.user ?? null, () => ipKey(ipOptions(c))(sender(c))) }),
  join_key: (c) => ({ key: joinKey(...c.parts) }),
  hashed_key: (c) => ({ key: hashed(c.value) }),
  parse_limit: (c) => ({ settings: parseLimit(c.text) }),
  headers: (c) => {
    const accept = c.accept ?? undefined
    if (c.unavailable) return asHttp(unavailableRefusal(accept))
    const { members } = c.decision
    const options = { headers: c.mode ?? undefined, reset: c.reset ?? undefined }
    const decision = decisionOf(c.decision, 1)
    const each = members ? members.map((member) => decisionOf(member, 1)) : [decision]
    const shown = each.map((one) => ({ decision: one, whole: decision, options }))
    const fields = fieldsFor(shown, c.now_ms ?? Date.now())
    return decision.allowed
      ? { http_status: null, headers: fields, body: null }
      : asHttp(deniedRefusal(decision, fields, accept))
  },
  limit: (c) => void compileLimit(limitOf(c.options)),
  endpoint_key: (c) => {
    const { perEndpoint } = compileLimit(limitOf(c.limit))
    const key = keyOf(bytes(c.key), perEndpoint ? (c.service ?? '') : '', perEndpoint ? c.endpoint : '')
    return { key: typeof key === 'string' ? key : { base64: Buffer.from(key).toString('base64') } }
  },
  service_name: (c) => ({ service: serviceOf(c.option ?? undefined, c.env, c.own ?? null).name }),
  fake_allow_all: (c) => clients.get(c.client).allowAll(),
  fake_deny: (c) =>
    clients.get(c.client).deny(c.policy, c.retry_after_ms < 0 ? {} : { retryAfterMs: c.retry_after_ms }),
  fake_unavailable: (c) => clients.get(c.client).unavailable(c.kind),
  fake_calls: (c) => ({ calls: clients.get(c.client).calls }),
}

const NAMES = { on_error: 'onError', charge_when: 'chargeWhen' }

/** Options by the names of docs/clients.md, as this client has them. */
function limitOf(options) {
  const limit = {}
  for (const [name, value] of Object.entries(options)) limit[NAMES[name] ?? name] = value?.function ? () => null : value
  return limit
}

function asHttp({ status, fields, contentType, body }) {
  return { http_status: status, headers: [...fields, ['Content-Type', contentType]], body }
}

const snake = (message) => message.replaceAll('onError', 'on_error').replaceAll('chargeWhen', 'charge_when')

function failure(error) {
  const message = error.message || String(error)
  if (error instanceof Unavailable)
    return { status: error.kind, maybe_charged: error.maybeCharged, code: error.code, message }
  if (error instanceof Refused)
    return { status: 'refused', maybe_charged: false, code: error.code, missing: error.missing, message }
  if (error.name === 'AbortError') return { status: 'cancelled', maybe_charged: error.maybeCharged ?? false, message }
  if (error instanceof TypeError) return { status: 'argument', maybe_charged: false, message: snake(message) }
  return { status: 'bug', message: error.stack }
}

async function perform(command) {
  const { id, do: name } = command
  if (!(name in calls) && !(name in others)) return { id, status: 'unknown' }

  const abort = new AbortController()
  running.set(id, abort)
  if (command.cancelled) abort.abort()
  const start = performance.now()
  try {
    const result =
      name in calls
        ? await calls[name](clients.get(command.client), command, (...names) =>
            options(command, abort.signal, ...names),
          )
        : await others[name](command)
    return { id, status: 'ok', ms: performance.now() - start, ...result }
  } catch (error) {
    return { id, ms: performance.now() - start, ...failure(error) }
  } finally {
    running.delete(id)
  }
}

write({ ready: true, pid: process.pid })
const lines = createInterface({ input: process.stdin })
lines.on('line', (line) => void perform(JSON.parse(line)).then(write))
lines.on('close', () => process.stdout.write('', () => process.exit(0)))

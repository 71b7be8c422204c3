// What a program in Node expects of the client beyond the contract that the conformance suite holds it against.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Denied, RateLimiter, Refused, Unavailable, parseLimit } from 'ratelimitd'
import { FakeLimiter } from 'ratelimitd/testing'
import { eventually, patient, silent, startDaemon } from './harness.mjs'

const HOME = fileURLToPath(new URL('..', import.meta.url))
const require = createRequire(import.meta.url)

/** What a program prints: {status, stdout, stderr}. */
async function program(code, environment) {
  const env = { ...process.env, ...environment }
  return promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], { cwd: HOME, env, timeout: 120000 })
}

/** A daemon that sends nothing: {socket, heard(), close()}; heard() is how many connections have sent it something. */
async function silentDaemon() {
  const folder = await mkdtemp(join(tmpdir(), 'ratelimitd-'))
  const connections = []
  const heard = new Set()
  const server = createServer((connection) => {
    connections.push(connection)
    connection.on('error', () => {}).on('data', () => heard.add(connection))
  }).listen(join(folder, 'socket'))
  await once(server, 'listening')
  return {
    socket: join(folder, 'socket'),
    heard: () => heard.size,
    async close() {
      for (const connection of connections) connection.destroy()
      server.close()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

describe('with a daemon', () => {
  let daemon, limiter
  before(async () => {
    daemon = await startDaemon({
      few: { algorithm: 'fixed_window', limit: 2, window: '1m', start: 'first_hit' },
      one: { algorithm: 'concurrency', limit: 1 },
      llm: { algorithm: 'token_bucket', limit: 1000, window: '1m' },
    })
    limiter = patient({ socket: daemon.socket })
  })
  after(async () => {
    limiter.close()
    await daemon.stop()
  })

  test('a process ends by itself once nothing is pending', async () => {
    const { stdout } = await program(
      `
      import { RateLimiter } from 'ratelimitd'
      const limiter = new RateLimiter({ timeoutMs: 20000 })
      await limiter.acquire('one', 'held at the end')
      console.log((await limiter.check('few', 'k')).remaining)`,
      { RATELIMIT_SOCKET: daemon.socket },
    )
    assert.equal(stdout, '1\n')
  })

  test('a process waits for the answer that it asked for', async () => {
    const { stdout } = await program(
      `
      import { RateLimiter } from 'ratelimitd'
      new RateLimiter({ timeoutMs: 20000 }).check('few', 'waits').then(({ allowed }) => console.log(allowed))`,
      { RATELIMIT_SOCKET: daemon.socket },
    )
    assert.equal(stdout, 'true\n')
  })

  test('withSlot releases after success and after an exception', async () => {
    assert.equal(await limiter.withSlot('one', 'k', (slot) => slot.held), true)
    await assert.rejects(
      limiter.withSlot('one', 'k', () => {
        throw new RangeError('mine')
      }),
      RangeError,
    )
    await limiter.withSlot('one', 'k', async () => {
      await assert.rejects(
        limiter.withSlot('one', 'k', () => assert.fail()),
        (error) => error instanceof Denied && error.decision.allowed === false,
      )
    })
  })

  test('a slot and a reservation end with their block', async () => {
    const slot = await limiter.acquire('one', 'block')
    await slot[Symbol.asyncDispose]()
    assert.equal(slot.held, false)

    const reservation = await limiter.reserve('llm', 'block', 600)
    await reservation[Symbol.asyncDispose]()
    assert.equal((await limiter.peek('llm', 'block')).remaining, 1000)
  })

  test('withReservation settles, cancels after an exception, and else lets the estimate stand', async () => {
    await limiter.withReservation('llm', 'settled', 600, (reservation) => reservation.settle(100))
    await assert.rejects(
      limiter.withReservation('llm', 'failed', 600, () => {
        throw new RangeError('mine')
      }),
      RangeError,
    )
    await limiter.withReservation('llm', 'stands', 600, () => {})

    const remaining = async (key) => (await limiter.peek('llm', key)).remaining
    assert.deepEqual(
      [await remaining('settled'), await remaining('failed'), await remaining('stands')],
      [900, 1000, 400],
    )
  })

  test('clamp makes an estimate as large as the policy can admit', async () => {
    await assert.rejects(limiter.reserve('llm', 'large', 5000), Denied)
    const reservation = await limiter.reserve('llm', 'large', 5000, { clamp: true })
    assert.equal(reservation.estimate, 1000)
    await reservation.cancel()
  })

  test('keys of any length and of any bytes', async () => {
    const long = 'ä'.repeat(2000)
    assert.equal((await limiter.check('few', long)).remaining, 1)
    assert.equal((await limiter.check('few', Buffer.from(long))).remaining, 0)
    assert.equal((await limiter.check('few', `${long}!`)).remaining, 1)
    assert.equal((await limiter.check('few', new Uint8Array([0, 255]))).remaining, 1)
    await assert.rejects(limiter.check('few', ''), { code: 'BAD_KEY' })
    await assert.rejects(limiter.check('few', undefined), TypeError)
  })

  test('explain has the reason, and keeps no bytes that are reused', async () => {
    const { why, storeKeys, limits, remaining } = await limiter.explain('few', Buffer.from([1, 2, 255]))
    assert.match(why, /2 of 2 units are free/)
    assert.equal(remaining, 1)
    assert.equal(limits.length, 1)
    const [key] = storeKeys
    await Promise.all(Array.from({ length: 100 }, () => limiter.policies()))
    assert.deepEqual([...key.slice(-3)], [1, 2, 255])
  })

  test('unknown options are refused', async () => {
    assert.throws(() => new RateLimiter({ timeoutms: 5 }), /there is no option timeoutms/)
    await assert.rejects(limiter.check('few', 'k', { costs: 5 }), /check: there is no option costs/)
    await assert.rejects(limiter.acquire('one', 'k', { cost: 1 }), /acquire: there is no option cost/)
    await assert.rejects(limiter.check('few', 'k', { timeoutMs: -1 }), /timeoutMs is not a whole number/)
    await assert.rejects(limiter.check('few', 'k', { cost: 1, atMost: 2 }), /exclude each other/)
  })

  test('addresses that are no socket are refused at once', () => {
    for (const socket of ['', 'x'.repeat(108), 'a\0b']) assert.throws(() => new RateLimiter({ socket }), TypeError)
  })

  test('verify names the policies that are missing, and what makes inline limits possible', async () => {
    await limiter.verify('few', 'one', parseLimit('10/5s'))
    await assert.rejects(
      limiter.verify('few', 'fwe'),
      (error) => error instanceof Refused && error.missing.join() === 'fwe',
    )

    const strict = await startDaemon({ few: { algorithm: 'fixed_window', limit: 2, window: '1m' } }, {})
    const other = patient({ socket: strict.socket })
    await assert.rejects(other.verify(parseLimit('10/5s')), {
      code: 'NOT_PERMITTED',
      message: /inline: \{allow: true\}/,
    })
    other.close()
    await strict.stop()
  })

  test('what onDecision throws is logged and changes nothing', async () => {
    const warnings = []
    const seen = []
    const hooked = patient({
      socket: daemon.socket,
      logger: { warn: (text) => warnings.push(text) },
      onDecision: ({ method, policies, decision }) => {
        seen.push([method, ...policies, decision.allowed])
        throw new Error('mine')
      },
    })
    await hooked.check('few', 'hook')
    await hooked.checkAll([
      ['few', 'hook a'],
      ['llm', 'hook b', 5],
    ])
    hooked.close()
    assert.deepEqual(seen, [
      ['check', 'few', true],
      ['check_all', 'few', 'llm', true],
    ])
    assert.equal(warnings.length, 2)
  })

  test('a program may mix import and require', async () => {
    const cjs = require('ratelimitd')
    const other = new cjs.RateLimiter({ socket: daemon.socket, timeoutMs: 20000 })
    const error = await other.check('nosuch', 'k').catch((reason) => reason)
    other.close()
    assert.ok(error instanceof cjs.Refused && error instanceof Refused)
    assert.ok(!(error instanceof Unavailable) && !(error instanceof cjs.Unavailable))
  })

  test('many callers share one connection', async () => {
    const before = (await limiter.stats()).connections_accepted
    await Promise.all(Array.from({ length: 500 }, (_, i) => limiter.check('few', `caller ${i}`)))
    assert.equal((await limiter.stats()).connections_accepted, before)
  })
})

describe('without an answer', () => {
  let daemon, limiter
  before(async () => {
    daemon = await silentDaemon()
    limiter = patient({ socket: daemon.socket, logger: silent })
  })
  after(() => {
    limiter.close()
    return daemon.close()
  })

  test('an abort ends the call with an AbortError that has the reason', async () => {
    const abort = new AbortController()
    const call = limiter.check('few', 'k', { signal: abort.signal })
    abort.abort(new RangeError('mine'))
    await assert.rejects(call, (error) => error.name === 'AbortError' && error.cause instanceof RangeError)
    await assert.rejects(limiter.check('few', 'k', { signal: AbortSignal.abort() }), {
      name: 'AbortError',
      maybeCharged: false,
    })
    assert.equal(limiter.pending, 0)
  })

  test('a signal that times out is a timeout', async () => {
    const abort = new AbortController()
    const first = limiter.check('few', 'k', { signal: abort.signal })
    await eventually(() => daemon.heard() > 0) // it is connected: the next request leaves at once
    abort.abort()
    await assert.rejects(first, { name: 'AbortError', maybeCharged: true })
    await assert.rejects(limiter.check('few', 'k', { signal: AbortSignal.timeout(20) }), {
      name: 'Unavailable',
      kind: 'timeout',
      maybeCharged: true,
    })
  })

  test('many calls may share a signal', async () => {
    const abort = new AbortController()
    const warnings = []
    const note = (warning) => warnings.push(warning)
    process.on('warning', note)
    const calls = Array.from({ length: 100 }, () => limiter.check('few', 'k', { signal: abort.signal }))
    abort.abort()
    const ends = await Promise.all(calls.map((call) => call.catch(({ name }) => name)))
    await new Promise((resolve) => setImmediate(resolve))
    process.off('warning', note)
    assert.deepEqual([new Set(ends), warnings], [new Set(['AbortError']), []])
  })

  test('a signal that lives on keeps nothing of an ended call', async () => {
    const { signal } = new AbortController()
    let listeners = 0
    const { addEventListener: add, removeEventListener: remove } = signal
    signal.addEventListener = function (...args) {
      listeners++
      add.apply(this, args)
    }
    signal.removeEventListener = function (...args) {
      listeners--
      remove.apply(this, args)
    }
    await assert.rejects(limiter.check('few', 'k', { signal, timeoutMs: 20 }))
    assert.equal(listeners, 0)
  })

  test('close() ends what is on the way, and what comes after fails at once', async () => {
    const other = patient({ socket: daemon.socket })
    const before = daemon.heard()
    const call = other.check('few', 'k')
    await eventually(() => daemon.heard() > before)
    other.close()
    await assert.rejects(call, { kind: 'lost', maybeCharged: true })
    await assert.rejects(other.check('few', 'k'), { kind: 'unreachable', maybeCharged: false })
  })

  test('a process ends when its call has timed out', async () => {
    const { stdout } = await program(
      `
      import { RateLimiter } from 'ratelimitd'
      await new RateLimiter({ timeoutMs: 50 }).acquire('one', 'k').catch((error) => console.log(error.kind))`,
      { RATELIMIT_SOCKET: daemon.socket },
    )
    assert.equal(stdout, 'timeout\n')
  })
})

test('RATELIMIT_ENABLED=0 allows everything without a daemon', async () => {
  const { stdout } = await program(
    `
    import { RateLimiter } from 'ratelimitd'
    const limiter = new RateLimiter({ socket: '/nonexistent' })
    await limiter.verify('anything')
    console.log(limiter.enabled, (await limiter.check('login', 'alice')).allowed, await limiter.withSlot('one', 'k', () => 'ran'))`,
    { RATELIMIT_ENABLED: '0' },
  )
  assert.equal(stdout, 'false true ran\n')
})

test('the fake limiter works with slots, reservations and counters', async () => {
  const fake = new FakeLimiter()
  await fake.withSlot('one', 'k', () => {})
  await fake.withReservation('llm', 'k', 5, (reservation) => reservation.settle(3))
  fake.deny('login', { retryAfterMs: 3000 })
  assert.equal((await fake.check('login', 'alice')).retryAfterMs, 3000)
  fake.unavailable('timeout')
  await assert.rejects(fake.check('web', 'alice', { cost: 4 }), { kind: 'timeout', maybeCharged: true })
  assert.deepEqual(fake.calls, [
    ['acquire', 'one', 'k'],
    ['reserve', 'llm', 'k', 5],
    ['check', 'login', 'alice', 1],
    ['check', 'web', 'alice', 4],
  ])
  const unavailable = { timeout: 1 }
  assert.deepEqual(fake.counters, { checks: 4, allowed: 2, denied: 1, remembered: 0, unavailable, refused: 0 })
})

test('without another name the service is the one in the package.json of the program', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'ratelimitd-'))
  try {
    await mkdir(join(folder, 'src'))
    await writeFile(join(folder, 'package.json'), '{"name": "shop", "type": "module"}')
    const service = JSON.stringify(join(HOME, 'dist', 'esm', 'service.js'))
    await writeFile(
      join(folder, 'src', 'app.js'),
      `import { packageName, serviceOf } from ${service}
      console.log(JSON.stringify(serviceOf(undefined, {}, packageName())))`,
    )
    const { stdout } = await promisify(execFile)(process.execPath, [join(folder, 'src', 'app.js')], { cwd: HOME })
    assert.deepEqual(JSON.parse(stdout), { name: 'shop', from: 'package.json' })
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
})

test('a program that only asks a daemon that is away does not stop its timers', async () => {
  const limiter = new RateLimiter({ socket: '/nonexistent/socket' })
  let isTime = false
  setTimeout(() => (isTime = true), 0)
  let asked = 0
  while (!isTime && asked++ < 100_000) await limiter.check('web', 'k').catch(() => {})
  assert.ok(isTime, `${asked} calls failed first`)
  limiter.close()
})

// The example service of each framework, asked over HTTP: all must answer alike.
import assert from 'node:assert/strict'
import { request } from 'node:http'
import { after, before, describe, test } from 'node:test'
import { parseList } from 'structured-headers'
import { FRAMEWORKS, SERVICE_POLICIES, ask, eventually, login, patient, startDaemon, startService } from './harness.mjs'

const PROBLEM = 'https://iana.org/assignments/http-problem-types#quota-exceeded'

/** [name, parameters] of each item, as an independent parser of Structured Fields reads them. */
const items = (field) => parseList(field).map(([name, parameters]) => [name, Object.fromEntries(parameters)])

/** The answer of `other`, asked while `first` still runs: again when the machine was too slow for that. */
async function meanwhile(first, isRunning, other) {
  for (;;) {
    let hasEnded = false
    const running = first().finally(() => (hasEnded = true))
    if ((await eventually(async () => (hasEnded ? 'too late' : (await isRunning()) && 'runs'))) === 'runs') {
      const answer = await other()
      if (!hasEnded) return { answer, first: await running }
    }
    await running
  }
}

for (const framework of FRAMEWORKS) {
  describe(framework, () => {
    let daemon, service, limiter, port
    before(async () => {
      daemon = await startDaemon(SERVICE_POLICIES)
      service = await startService(framework, daemon.socket)
      limiter = patient({ socket: daemon.socket })
      port = service.port
    })
    after(async () => {
      limiter?.close()
      await service?.stop()
      await daemon?.stop()
    })

    test('an allowed request gets its answer and the fields', async () => {
      const { status, headers, body } = await ask(port, '/ok')

      assert.equal(status, 200)
      assert.equal(body, 'ok\n')
      assert.equal(headers['content-type'], 'text/plain; charset=utf-8')
      assert.equal(headers['ratelimit-policy'], '"web";q=100;w=60')
      assert.equal(headers['ratelimit'], '"web";r=99;t=60')
      assert.equal(headers['retry-after'], undefined)
      assert.deepEqual(items(headers['ratelimit-policy']), [['web', { q: 100, w: 60 }]])
      assert.deepEqual(items(headers['ratelimit']), [['web', { r: 99, t: 60 }]])
    })

    test('HEAD has the fields and no body', async () => {
      const { status, headers, body } = await ask(port, '/ok', { method: 'HEAD' })

      assert.equal(status, 200)
      assert.equal(body, '')
      assert.match(headers['ratelimit'], /^"web";r=\d+;t=60$/)
    })

    test('an endpoint with settings of its own denies with a problem in JSON', async () => {
      await ask(port, '/inline')
      await ask(port, '/inline')
      const { status, headers, body } = await ask(port, '/inline')

      assert.equal(status, 429)
      assert.equal(headers['content-type'], 'application/problem+json')
      assert.equal(headers['retry-after'], '5')
      const [[name, policy]] = items(headers['ratelimit-policy'])
      assert.match(name, /^inline-[0-9a-f]{16}$/)
      assert.deepEqual(policy, { q: 2, w: 5 })
      assert.deepEqual(items(headers['ratelimit']), [[name, { r: 0, t: 5 }]])
      assert.equal(body, `{"type":"${PROBLEM}","title":"Quota exceeded","status":429,"violated-policies":["${name}"]}`)
    })

    test('a denial is one line of text for those who do not take JSON, and nothing for HEAD', async () => {
      const { status, headers, body } = await ask(port, '/inline', { headers: { Accept: 'text/html' } })
      assert.equal(status, 429)
      assert.equal(headers['content-type'], 'text/plain; charset=utf-8')
      assert.equal(body, 'Too many requests: try again in 5 s.\n')

      const head = await ask(port, '/inline', { method: 'HEAD' })
      assert.equal(head.status, 429)
      assert.equal(head.body, '')
    })

    test('after the window it goes on', async () => {
      await daemon.advance('5s')
      assert.equal((await ask(port, '/inline')).status, 200)
    })

    test('only wrong passwords count', async () => {
      for (let i = 0; i < 5; i++) {
        const { status, body } = await login(port, 'alice', 'right')
        assert.deepEqual([status, body], [200, 'welcome\n'])
      }
      for (let i = 0; i < 3; i++) assert.equal((await login(port, 'alice', 'wrong')).body, 'wrong\n')
      await eventually(async () => (await limiter.peek('login', 'alice|127.0.0.1')).remaining === 0)

      assert.equal((await login(port, 'alice', 'right')).status, 429)
      assert.equal((await login(port, 'bob', 'right')).status, 200)
    })

    test('two limits are one check: nothing is charged when one denies', async () => {
      const headers = { 'X-Tenant': 'acme' }
      const before = (await limiter.peek('web', '127.0.0.1')).remaining
      const first = await ask(port, '/two', { headers })
      await ask(port, '/two', { headers })
      const denied = await ask(port, '/two', { headers })

      assert.equal(first.headers['ratelimit-policy'], '"web";q=100;w=60, "tenant";q=2;w=60')
      assert.deepEqual(
        items(first.headers['ratelimit']).map(([name]) => name),
        ['web', 'tenant'],
      )
      assert.equal(denied.status, 429)
      assert.deepEqual(JSON.parse(denied.body)['violated-policies'], ['tenant'])
      assert.deepEqual(items(denied.headers['ratelimit'])[1][1], { r: 0, t: 60 })
      assert.equal((await limiter.peek('web', '127.0.0.1')).remaining, before - 2)
    })

    test('a slot is held until the answer has ended', async () => {
      const { answer: second, first } = await meanwhile(
        () => ask(port, '/slow?ms=400'),
        async () => (await limiter.stats()).slots === 1,
        () => ask(port, '/slow?ms=0', { headers: { Accept: 'text/plain' } }),
      )

      assert.equal(second.status, 429)
      assert.equal(second.body, 'Too many requests.\n')
      assert.equal(second.headers['retry-after'], undefined)
      assert.equal(second.headers['ratelimit'], '"slow";r=0')
      assert.equal(second.headers['ratelimit-policy'], '"slow";q=1;qu="concurrent-requests"')
      assert.equal(first.body, 'slow\n')
      await eventually(async () => (await limiter.stats()).slots === 0)
    })

    test('a slot is held until a streamed body has ended', async () => {
      const { answer, first } = await meanwhile(
        () => ask(port, '/stream'),
        async () => (await limiter.stats()).slots === 1,
        () => ask(port, '/stream'),
      )
      assert.equal(answer.status, 429)
      assert.equal(first.body, 'one\ntwo\nthree\n')
      await eventually(async () => (await limiter.stats()).slots === 0)
    })

    test('a slot ends when the client hangs up', async () => {
      const outgoing = request({ host: '127.0.0.1', port, path: '/slow?ms=20000' })
      outgoing.on('error', () => {})
      outgoing.end()
      await eventually(async () => (await limiter.stats()).slots === 1)
      outgoing.destroy()

      await eventually(async () => (await limiter.stats()).slots === 0)
    })

    test('a cost, and a request that is skipped', async () => {
      const { body, headers } = await ask(port, '/cost?n=7')
      assert.equal(body, 'cost 7\n')
      assert.equal(headers['ratelimit'], '"budget";r=3;t=42')
      assert.equal((await ask(port, '/cost?n=7')).headers['retry-after'], '24')

      const skipped = await ask(port, '/skip', { headers: { 'X-Probe': 'yes' } })
      assert.equal(skipped.body, 'skip\n')
      assert.equal(skipped.headers['ratelimit'], undefined)
    })

    test('a mistake is a 500', async () => {
      assert.equal((await ask(port, '/cost?n=-1')).status, 500)
    })

    test('without a daemon requests pass, except where the limit denies then', async () => {
      await daemon.stop()
      const passed = await eventually(async () => {
        const answer = await ask(port, '/ok')
        return answer.headers['ratelimit'] === undefined && answer
      })
      assert.equal(passed.body, 'ok\n')

      const { status, headers, body } = await ask(port, '/down')
      assert.equal(status, 503)
      assert.equal(headers['retry-after'], '1')
      assert.equal(headers['content-type'], 'application/problem+json')
      assert.equal(
        body,
        '{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary reduced capacity","status":503}',
      )
      assert.match(service.output(), /requests pass: (unreachable|lost)/)
      assert.doesNotMatch(service.output(), /RateLimitWarning/, 'no mistake was made, and none is reported')
    })
  })

  test(`${framework} with RATELIMIT_ENABLED=0 asks no daemon`, async () => {
    const service = await startService(framework, '/nonexistent/socket', { RATELIMIT_ENABLED: '0' })
    try {
      const { status, headers } = await ask(service.port, '/down')
      assert.equal(status, 200)
      assert.equal(headers['ratelimit'], undefined)
    } finally {
      await service.stop()
    }
  })
}

// The options of limits, and what each framework adds. Without a daemon where the answer does not matter.
import 'reflect-metadata'
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { getRequestListener } from '@hono/node-server'
import Router from '@koa/router'
import { Controller, Get, Module } from '@nestjs/common'
import { APP_GUARD, NestFactory } from '@nestjs/core'
import { FastifyAdapter } from '@nestjs/platform-fastify'
import express from 'express'
import express4 from 'express4'
import Fastify from 'fastify'
import { Hono } from 'hono'
import Koa from 'koa'
import { NOT_LIMITED, RateLimiter } from 'ratelimitd'
import { ip, isPreflight, rateLimit, user } from 'ratelimitd/express'
import { rateLimit as fastifyRateLimit } from 'ratelimitd/fastify'
import { rateLimit as honoRateLimit } from 'ratelimitd/hono'
import { rateLimit as koaRateLimit } from 'ratelimitd/koa'
import { RateLimit, RateLimitGuard, RateLimitModule, SkipRateLimit } from 'ratelimitd/nest'
import { FakeLimiter } from 'ratelimitd/testing'
import { ask, patient, serving, silent, startDaemon } from './harness.mjs'

process.env.RATELIMIT_SERVICE = '' // else the name in this package.json

/** An Express application with one endpoint, /x, behind these limits. */
function oneEndpoint(limiter, ...limits) {
  const app = express()
  app.get('/x', rateLimit(limiter, ...limits), (_req, res) => void res.send('through'))
  app.use((error, _req, res, _next) => void res.status(500).send(error.message))
  return app
}

/** [status, calls] of one request. */
async function requested(limits, options = {}, limiter = new FakeLimiter({ logger: silent })) {
  const { status, body } = await serving(oneEndpoint(limiter, ...limits), (port) => ask(port, '/x', options))
  return { status, body, calls: limiter.calls }
}

describe('a limit', () => {
  test('counts by address, and costs 1', async () => {
    assert.deepEqual((await requested(['web'])).calls, [['check', 'web', '127.0.0.1', 1]])
  })

  test('takes the key, cost and policy that it is given', async () => {
    const { calls } = await requested([{ policy: 'web', key: () => ['acme', 'a|b', 7], cost: () => 3 }])
    assert.deepEqual(calls, [['check', 'web', 'acme|a%7Cb|7', 3]])
  })

  test('that is written at an endpoint is named after it', async () => {
    const settings = { algorithm: 'fixed_window', limit: 10, window: '5s', start: 'first_hit' }
    const expected = [['check', settings, 'GET /x|127.0.0.1', 1]]
    assert.deepEqual((await requested(['10/5s'])).calls, expected)
    assert.deepEqual((await requested([{ limit: 10, window: '5s' }])).calls, expected)
    assert.deepEqual((await requested([{ limit: 10, window: '5s', perEndpoint: false }])).calls, [
      ['check', settings, '127.0.0.1', 1],
    ])
    assert.deepEqual((await requested([{ policy: 'web', perEndpoint: true }])).calls, [
      ['check', 'web', 'GET /x|127.0.0.1', 1],
    ])
  })

  for (const [version, framework] of [
    ['4', express4],
    ['5', express],
  ])
    test(`is named after the pattern of its route, never after what the client wrote: Express ${version}`, async () => {
      const limiter = new FakeLimiter({ logger: silent })
      const through = (_req, res) => void res.send('through')
      const app = framework()
      const inner = framework.Router().get('/:id', rateLimit(limiter, '10/5s'), through)
      const outer = framework.Router().use('/Items', inner)
      app.use('/t/:tenant', outer)
      app.use('/API', rateLimit(limiter, '10/5s'), framework.Router().get('/x', through))
      app.all('/all', rateLimit(limiter, '10/5s'), through)
      app.get(['/one', '/two'], rateLimit(limiter, '10/5s'), through)
      const shared = rateLimit(limiter, '10/5s')
      app.get('/a/x', shared, through)
      app.use('/b', framework.Router().get('/x', shared, through))
      app.use('/admin', framework().get('/users', rateLimit(limiter, '10/5s'), through))

      const keysOf = async (...requests) => {
        limiter.calls.length = 0
        for (const [path, method = 'GET'] of requests)
          assert.equal((await serving(app, (port) => ask(port, path, { method }))).status, 200, path)
        return [...new Set(limiter.calls.map(([, , key]) => key.replace('|127.0.0.1', '')))]
      }
      assert.deepEqual(await keysOf(['/t/1/items/1'], ['/T/2/ITEMS/7'], ['/t/3/Items/7/']), [
        'GET /t/:tenant/Items/:id',
      ])
      assert.deepEqual(await keysOf(['/API/x'], ['/aPi/x'], ['/api/x?y=1']), ['/API'])
      assert.deepEqual(await keysOf(['/all'], ['/all', 'POST'], ['/ALL', 'DELETE'], ['/all', 'PURGE']), ['/all'])
      assert.deepEqual(await keysOf(['/one'], ['/two'], ['/TWO']), ['GET /one|/two'.replace('|', '%7C')])
      assert.deepEqual(await keysOf(['/a/x'], ['/b/x'], ['/B/X']), ['GET /a/x', 'GET /b/x'])
      assert.deepEqual(await keysOf(['/admin/users'], ['/Admin/Users']), ['GET /admin/users'])
    })

  const everyMethod = {
    Fastify: async (limiter) => {
      const app = Fastify()
      await app.register(fastifyRateLimit, { limiter })
      const config = { rateLimit: '10/5s' }
      app.all('/all', { config }, async () => 'x')
      app.route({ method: ['GET', 'POST'], url: '/some', config, handler: async () => 'x' })
      await app.ready()
      return app.routing
    },
    Koa: async (limiter) => {
      const through = (context) => void (context.body = 'x')
      const router = new Router()
      router.all('/all', koaRateLimit(limiter, '10/5s'), through)
      router.register('/some', ['GET', 'POST'], [koaRateLimit(limiter, '10/5s'), through])
      return new Koa().use(router.routes()).callback()
    },
    Hono: async (limiter) => {
      const app = new Hono()
      app.all('/all', honoRateLimit(limiter, '10/5s'), (c) => c.text('x'))
      app.on(['GET', 'POST'], '/some', honoRateLimit(limiter, '10/5s'), (c) => c.text('x'))
      return getRequestListener(app.fetch)
    },
  }
  for (const [framework, start] of Object.entries(everyMethod))
    test(`at a route for all methods counts them together, and at one for several: ${framework}`, async () => {
      const some = { Fastify: 'GET,POST /some', Koa: 'GET,POST /some', Hono: 'GET /some' }[framework]
      const limiter = new FakeLimiter({ logger: silent })
      const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']
      await serving(await start(limiter), async (port) => {
        for (const method of methods) assert.equal((await ask(port, '/all', { method })).status, 200, method)
        for (const method of ['GET', 'POST']) assert.equal((await ask(port, '/some', { method })).status, 200, method)
      })
      assert.deepEqual(
        limiter.calls.map(([, , key]) => key.replace('|127.0.0.1', '')),
        [...methods.map(() => '/all'), some, some],
      )
    })

  test('with others is one check_all, and equal ones count once, with the highest cost', async () => {
    const { calls } = await requested([
      'web',
      { policy: 'tenant', key: () => 'acme', cost: 2 },
      { policy: 'web', cost: 5 },
    ])
    assert.deepEqual(calls, [
      ['check_all', 'web', '127.0.0.1', 5],
      ['check_all', 'tenant', 'acme', 2],
    ])
  })

  test('does not apply when it is skipped, disabled, or where a function says so', async () => {
    const { status, calls } = await requested([
      { policy: 'a', skip: () => true },
      { policy: 'b', enabled: false },
      { policy: 'c', key: () => NOT_LIMITED },
      { policy: () => NOT_LIMITED },
    ])
    assert.deepEqual([status, calls.length], [200, 0])
  })

  test('counts a preflight, unless isPreflight skips it', async () => {
    const limiter = new FakeLimiter({ logger: silent })
    const app = express()
      .use('/x', rateLimit(limiter, 'web'))
      .use('/y', rateLimit(limiter, { policy: 'web', skip: isPreflight }))
      .use((_req, res) => void res.sendStatus(204))
    const preflight = { 'Access-Control-Request-Method': 'GET' }
    await serving(app, async (port) => {
      const countOf = async (path, headers) => {
        limiter.calls.length = 0
        assert.equal((await ask(port, path, { method: 'OPTIONS', headers })).status, 204)
        return limiter.calls.length
      }
      assert.equal(await countOf('/x', { ...preflight, Origin: 'https://example.org' }), 1)
      assert.equal(await countOf('/y', { ...preflight, Origin: 'https://example.org' }), 0)
      assert.equal(await countOf('/y', preflight), 1)
    })
  })

  for (const [name, key] of [
    ['undefined', () => undefined],
    ['null', () => null],
    ['an empty text', () => ''],
    ['an empty list', () => []],
    ['a list with an empty part', () => ['a', '']],
    ['a list with a part that is missing', () => ['a', undefined]],
    ['no bytes', () => new Uint8Array()],
    ['a promise of nothing', async () => null],
  ])
    test(`with ${name} as key is answered 503, unless allow is written at it`, async () => {
      const lines = []
      const limiter = () => new FakeLimiter({ onError: 'allow', logger: { warn: (line) => lines.push(line) } })
      const { status, calls } = await requested([{ policy: 'web', key }, 'other'], {}, limiter())
      assert.deepEqual([status, calls.length], [503, 0])
      assert.equal(lines.filter((line) => /no key for a limit of GET \/x/.test(line)).length, 1)

      const allowed = await requested([{ policy: 'web', key, onError: 'allow' }, 'other'], {}, limiter())
      assert.deepEqual([allowed.status, allowed.calls], [200, [['check', 'other', '127.0.0.1', 1]]])
      const asked = await requested([{ policy: 'web', key, onError: () => 'allow' }], {}, limiter())
      assert.equal(asked.status, 503)
    })

  test('with a policy function that gives nothing is answered 503', async () => {
    for (const policy of [() => undefined, () => null, () => ''])
      assert.equal((await requested([{ policy }])).status, 503)
  })

  test('with a key function that fails is an error', async () => {
    const key = () => {
      throw new Error('failed')
    }
    assert.equal((await requested([{ policy: 'web', key }])).status, 500)
    assert.equal((await requested([{ policy: 'web', key: () => [Promise.resolve('a')] }])).status, 500)
    assert.throws(() => user(), /function that finds the user/)
  })

  test('is checked where it is declared', () => {
    const limiter = new FakeLimiter()
    const refused = (limit, message) => assert.throws(() => rateLimit(limiter, limit), { name: 'TypeError', message })
    refused({ polcy: 'web' }, /there is no option polcy/)
    refused({}, /either a policy, or limit and window/)
    refused({ policy: 'web', limit: 5, window: '1s' }, /either a policy, or limit and window/)
    refused({ limit: 5 }, /belong together/)
    refused({ policy: '' }, /not the name of a policy/)
    refused({ policy: 'web', slot: true, chargeWhen: () => true }, /exclude each other/)
    refused({ policy: 'web', onError: 'open' }, /onError is neither/)
    refused({ policy: 'web', headers: 'draft-8' }, /headers is not one of/)
    refused('ten/5s', /not a limit/)
    assert.throws(() => rateLimit(limiter), /there is no limit/)
    assert.throws(() => rateLimit('web'), /not a RateLimiter/)
    assert.throws(() => ip({ trustedProxies: ['10.0.0.0/33'] }), /10.0.0.0\/33/)
    assert.throws(() => ip({ trustedproxies: 1 }), /there is no option trustedproxies/)
  })

  test('is known to verify()', async () => {
    const daemon = await startDaemon({ web: { algorithm: 'fixed_window', limit: 5, window: '1m' } })
    const limiter = patient({ socket: daemon.socket })
    rateLimit(limiter, 'web', '10/5s')
    await limiter.verify()
    rateLimit(limiter, { policy: 'wbe', enabled: false }, { policy: 'serach' })
    await assert.rejects(limiter.verify(), { code: 'UNKNOWN_POLICY', missing: ['serach'] })
    limiter.close()
    await daemon.stop()
  })
})

describe('without an answer', () => {
  const unavailable = (options) => {
    const limiter = new FakeLimiter({ logger: silent, ...options })
    limiter.unavailable('timeout')
    return limiter
  }

  test('the limit decides, else the limiter, else the request passes', async () => {
    assert.equal((await requested(['web'], {}, unavailable())).status, 200)
    assert.equal((await requested(['web'], {}, unavailable({ onError: 'deny' }))).status, 503)
    assert.equal(
      (await requested([{ policy: 'web', onError: 'allow' }], {}, unavailable({ onError: 'deny' }))).status,
      200,
    )
    assert.equal((await requested(['web', { policy: 'login', onError: 'deny' }], {}, unavailable())).status, 503)
  })

  test('a function gets the error and the request', async () => {
    let seen
    const onError = (error, req) => {
      seen = [error.kind, error.maybeCharged, req.path]
      return 'deny'
    }
    assert.equal((await requested([{ policy: 'web', onError }], {}, unavailable())).status, 503)
    assert.deepEqual(seen, ['timeout', true, '/x'])
  })

  test('one line in ten seconds is logged', async () => {
    const lines = []
    const limiter = unavailable({ logger: { warn: (line) => lines.push(line) } })
    await serving(oneEndpoint(limiter, 'web'), async (port) => {
      for (let i = 0; i < 5; i++) await ask(port, '/x')
    })
    assert.equal(lines.filter((line) => /requests pass: timeout/.test(line)).length, 1)
  })
})

describe('a denied request', () => {
  const denying = () => {
    const limiter = new FakeLimiter()
    limiter.deny('web', { retryAfterMs: 2500 })
    return limiter
  }

  test("may be answered in the program's own way", async () => {
    const respond = (_req, res, { status, decision }) => void res.status(status).send(`wait ${decision.retryAfterMs}`)
    await serving(oneEndpoint(denying(), { policy: 'web', respond }), async (port) => {
      const { status, body, headers } = await ask(port, '/x')
      assert.deepEqual([status, body, headers['retry-after']], [429, 'wait 2500', '3'])
    })
  })

  test('is answered by the limit that denied', async () => {
    const by = (name) => (_req, res, denial) => void res.status(403).send(`${name} ${denial.decision?.boundBy}`)
    const limits = [
      { policy: 'login', respond: by('login') },
      { policy: 'web', respond: by('web') },
    ]
    await serving(oneEndpoint(denying(), ...limits), async (port) =>
      assert.equal((await ask(port, '/x')).body, 'web web'),
    )

    const away = denying()
    away.unavailable('timeout')
    limits[1].onError = 'deny'
    await serving(oneEndpoint(away, ...limits), async (port) =>
      assert.equal((await ask(port, '/x')).body, 'web undefined'),
    )
    delete limits[1].respond
    await serving(oneEndpoint(denying(), ...limits), async (port) => assert.equal((await ask(port, '/x')).status, 429))
  })

  test('has the older fields where they are wanted', async () => {
    const fields = async (options) => {
      const { headers } = await serving(oneEndpoint(denying(), { policy: 'web', ...options }), (port) =>
        ask(port, '/x'),
      )
      return [
        headers['ratelimit'],
        headers['x-ratelimit-limit'],
        headers['x-ratelimit-remaining'],
        headers['x-ratelimit-reset'],
      ]
    }
    assert.deepEqual(await fields({}), ['"web";r=0;t=3', undefined, undefined, undefined])
    assert.deepEqual(await fields({ headers: 'legacy' }), [undefined, '1', '0', '3'])
    assert.deepEqual(await fields({ headers: 'both' }), ['"web";r=0;t=3', '1', '0', '3'])
    assert.deepEqual(await fields({ headers: 'none' }), [undefined, undefined, undefined, undefined])
    const quiet = new FakeLimiter({ headers: 'none' })
    quiet.deny('web')
    const { status, headers } = await serving(oneEndpoint(quiet, 'web'), (port) => ask(port, '/x'))
    assert.deepEqual([status, headers['ratelimit']], [429, undefined])
    const [, , , epoch] = await fields({ headers: 'legacy', reset: 'epoch' })
    assert.ok(Math.abs(Number(epoch) - Date.now() / 1000 - 2.5) < 60)
  })
})

describe('with a daemon', () => {
  test('a denial gives back what other limits took, a delay is slept, two limiters add their fields', async () => {
    const daemon = await startDaemon({
      web: { algorithm: 'fixed_window', limit: 10, window: '1m' },
      few: { algorithm: 'fixed_window', limit: 1, window: '1m' },
      one: { algorithm: 'concurrency', limit: 1 },
      login: { algorithm: 'fixed_window', limit: 5, window: '1m' },
      queue: { algorithm: 'leaky_bucket', limit: 10, window: '1s', burst: 1, max_wait: '10s' },
    })
    const limiter = patient({ socket: daemon.socket })
    const app = express()
    app.use(rateLimit(limiter, 'web'))
    app.get(
      '/held',
      rateLimit(limiter, { policy: 'one', slot: true }, { policy: 'login', chargeWhen: () => true }, 'few'),
      (_req, res) => void res.send('held'),
    )
    app.get('/queue', rateLimit(limiter, { policy: 'queue' }), (_req, res) => void res.send('queued'))

    await serving(app, async (port) => {
      const { headers } = await ask(port, '/held')
      assert.equal(headers['ratelimit'], '"web";r=9;t=60, "one";r=0, "login";r=4;t=60, "few";r=0;t=60')
      assert.equal((await ask(port, '/held')).status, 429)
      assert.equal((await ask(port, '/held')).status, 429) // the slot came back
      assert.equal((await limiter.peek('login', '127.0.0.1')).remaining, 4)
      assert.equal((await limiter.peek('one', '127.0.0.1')).remaining, 1)

      await ask(port, '/queue')
      const start = performance.now()
      assert.equal((await ask(port, '/queue')).body, 'queued')
      assert.ok(performance.now() - start >= 99)
    })
    limiter.close()
    await daemon.stop()
  })
})

describe('addresses', () => {
  const keysOf = async (configure, key, headers) => {
    const limiter = new FakeLimiter()
    const app = express()
    configure(app)
    app.use(rateLimit(limiter, { policy: 'web', ...(key && { key }) }))
    await serving(app, (port) => ask(port, '/x', { headers }))
    return limiter.calls[0][2]
  }
  const spoofed = { 'X-Forwarded-For': '198.51.100.1, 203.0.113.9' }

  test('no forwarded header is believed unless it is configured', async () => {
    const warning = once(process, 'warning')
    assert.equal(await keysOf(() => {}, undefined, spoofed), '127.0.0.1')
    assert.match((await warning)[0].message, /no proxy is trusted/)
  })

  test("the framework's setting counts, or trustedProxies, from the right", async () => {
    assert.equal(await keysOf((app) => app.set('trust proxy', 1), undefined, spoofed), '203.0.113.9')
    assert.equal(await keysOf(() => {}, ip({ trustedProxies: 1 }), spoofed), '203.0.113.9')
    assert.equal(
      await keysOf(() => {}, ip({ trustedProxies: ['127.0.0.0/8', '203.0.113.0/24'] }), spoofed),
      '198.51.100.1',
    )
    assert.equal(await keysOf(() => {}, ip({ trustedProxies: ['10.0.0.0/8'] }), spoofed), '127.0.0.1')
    assert.equal(
      await keysOf(() => {}, ip({ trustedProxies: 1 }), { 'X-Forwarded-For': '2001:db8:1:2:3::4' }),
      '2001:db8:1:2::/64',
    )
  })

  test('trusting every proxy is warned about', async () => {
    const warning = once(process, 'warning')
    await keysOf((app) => app.set('trust proxy', true), undefined, spoofed)
    assert.match((await warning)[0].message, /every proxy is trusted/)
  })

  test('a user without a name counts by address', async () => {
    const key = user((req) => req.get('X-User'))
    assert.equal(await keysOf(() => {}, key, { 'X-User': 'a|b' }), 'u|a%7Cb')
    assert.equal(await keysOf(() => {}, key, {}), 'i|127.0.0.1')
  })
})

test('a limiter or a middleware that is made inside a handler is warned about', async () => {
  const warnings = []
  const note = ({ message }) => warnings.push(message)
  process.on('warning', note)
  await serving(
    (_req, res) => {
      rateLimit(new RateLimiter({ socket: '/nonexistent' }), 'web')
      res.end()
    },
    (port) => ask(port, '/x'),
  )
  await new Promise((resolve) => setImmediate(resolve))
  process.off('warning', note)
  assert.deepEqual(warnings.map((message) => message.split(' is made')[0]).sort(), ['a RateLimiter', 'rateLimit()'])
})

describe('Express', () => {
  test('limits 404s, and names endpoints of routers with their mount', async () => {
    const limiter = new FakeLimiter()
    const router = express.Router().get('/:id', rateLimit(limiter, '10/5s'), (_req, res) => void res.send('x'))
    const app = express().use('/users', router).use(rateLimit(limiter, 'web'))
    await serving(app, async (port) => {
      await ask(port, '/users/7')
      assert.equal((await ask(port, '/nowhere')).status, 404)
    })
    assert.deepEqual(
      limiter.calls.map(([, , key]) => key),
      ['GET /users/:id|127.0.0.1', '127.0.0.1'],
    )
  })
})

describe('Fastify', () => {
  test('limits every request, unknown routes, and routes of other scopes', async () => {
    const limiter = new FakeLimiter()
    const app = Fastify()
    await app.register(fastifyRateLimit, { limiter, limits: ['web'] })
    app.setNotFoundHandler({ preHandler: app.rateLimit('missing') }, async (_request, reply) =>
      reply.code(404).send('nothing'),
    )
    await app.register(
      async (scope) => {
        scope.get('/x/:id', { config: { rateLimit: '10/5s' } }, async () => 'x')
      },
      { prefix: '/api' },
    )

    await app.inject('/api/x/7')
    assert.deepEqual(
      limiter.calls.map(([, policy, key]) => [policy.limit ?? policy, key]),
      [
        ['web', '127.0.0.1'],
        [10, 'GET /api/x/:id|127.0.0.1'],
      ],
    )
    assert.equal((await app.inject('/nowhere')).statusCode, 404)
    assert.deepEqual(
      limiter.calls.slice(2).map(([, policy]) => policy),
      ['web', 'missing'],
    )

    limiter.deny('web', { retryAfterMs: 1000 })
    const denied = await app.inject('/api/x/7')
    assert.deepEqual(
      [denied.statusCode, denied.headers['content-type'], denied.headers['retry-after']],
      [429, 'application/problem+json', '1'],
    )
    await app.close()
  })

  test('limits routes that were declared before the plugin was loaded, without await', async () => {
    const limiter = new FakeLimiter()
    const app = Fastify()
    app.get('/early', { config: { rateLimit: '1/5s' } }, async () => 'early')
    app.register(fastifyRateLimit, { limiter })
    app.get('/late', { config: { rateLimit: { limits: ['web'], hook: 'preHandler' } } }, async () => 'late')
    assert.equal((await app.inject('/early')).statusCode, 200)
    assert.equal((await app.inject('/late')).statusCode, 200)
    assert.deepEqual(
      limiter.calls.map(([, policy, key]) => [policy.limit ?? policy, key]),
      [
        [1, 'GET /early|127.0.0.1'],
        ['web', '127.0.0.1'],
      ],
    )
    await app.close()

    const wrong = Fastify()
    wrong.register(fastifyRateLimit, { limiter })
    wrong.get('/wrong', { config: { rateLimit: { polcy: 'web' } } }, async () => 'wrong')
    await assert.rejects(wrong.ready(), /there is no option polcy/)
  })

  test('refuses what it does not know when the route is declared', async () => {
    const app = Fastify()
    await app.register(fastifyRateLimit, { limiter: new FakeLimiter() })
    assert.throws(
      () => app.get('/a', { config: { rateLimit: { polcy: 'web' } } }, async () => 'a'),
      /there is no option polcy/,
    )
    assert.throws(
      () => app.get('/b', { config: { rateLimit: { limits: ['web'], hook: 'onSend' } } }, async () => 'b'),
      /hook is not one of/,
    )
    await app.close()
  })

  test('may answer a denied request in its own way', async () => {
    const limiter = new FakeLimiter()
    limiter.deny('web')
    const app = Fastify()
    await app.register(fastifyRateLimit, { limiter })
    const respond = (_request, reply, { status }) => void reply.code(status).send({ own: true })
    app.get('/x', { config: { rateLimit: { policy: 'web', respond } } }, async () => 'x')
    const { statusCode, body } = await app.inject('/x')
    assert.deepEqual([statusCode, body], [429, '{"own":true}'])
    await app.close()
  })
})

describe('Koa', () => {
  test("stands in front of everything, knows the router's endpoints, and hands on errors", async () => {
    const limiter = new FakeLimiter()
    const router = new Router().get('/users/:id', koaRateLimit(limiter, '10/5s'), (ctx) => void (ctx.body = 'x'))
    const app = new Koa({ proxy: false })
      .use(koaRateLimit(limiter, { policy: 'web', key: (ctx) => (ctx.path === '/bad' ? ctx.state.session.user : 'k') }))
      .use(router.routes())
    app.silent = true
    await serving(app.callback(), async (port) => {
      assert.equal((await ask(port, '/users/7')).status, 200)
      assert.equal((await ask(port, '/bad')).status, 500)
      limiter.deny('web')
      assert.deepEqual(
        (await ask(port, '/users/7', { headers: { Accept: 'text/plain' } })).body,
        'Too many requests.\n',
      )
    })
    assert.deepEqual(
      limiter.calls.slice(0, 2).map(([, , key]) => key),
      ['k', 'GET /users/:id|127.0.0.1'],
    )
  })
})

describe('Hono', () => {
  test('works without a server, adds fields to answers of every kind, and frees slots', async () => {
    const daemon = await startDaemon({
      web: { algorithm: 'fixed_window', limit: 9, window: '1m' },
      one: { algorithm: 'concurrency', limit: 1 },
    })
    const limiter = patient({ socket: daemon.socket })
    const key = () => 'k'
    const app = new Hono()
    app.get('/raw', honoRateLimit(limiter, { policy: 'web', key }), () => new Response('raw'))
    app.get('/slot', honoRateLimit(limiter, { policy: 'one', slot: true, key }), (c) => c.text('slot'))
    app.get('/address', honoRateLimit(limiter, 'web'), (c) => c.text('address'))

    assert.equal((await app.request('/raw')).headers.get('ratelimit'), '"web";r=8;t=60')
    assert.equal((await app.request('/slot')).status, 200)
    assert.equal((await app.request('/slot')).status, 200)
    const original = console.error
    console.error = () => {} // Hono prints what ends in a 500
    assert.equal((await app.request('/address')).status, 500) // there is no address here
    console.error = original
    limiter.close()
    await daemon.stop()
  })
})

describe('NestJS', () => {
  class Search {
    find() {
      return 'found'
    }
    both() {
      return 'both'
    }
    health() {
      return 'ok'
    }
  }
  const decorate = (name, ...decorators) =>
    Reflect.decorate(decorators, Search.prototype, name, Object.getOwnPropertyDescriptor(Search.prototype, name))
  decorate('find', RateLimit({ limit: 10, window: '5s' }), Get())
  decorate('both', RateLimit('a'), RateLimit('b', 'c'), Get('both'))
  decorate('health', SkipRateLimit(), Get('health'))
  Reflect.decorate([Controller('search'), RateLimit('class')], Search)

  class Plain {
    get() {
      return 'plain'
    }
  }
  Reflect.decorate([Get()], Plain.prototype, 'get', Object.getOwnPropertyDescriptor(Plain.prototype, 'get'))
  Reflect.decorate([Controller('plain')], Plain)

  for (const [platform, adapter] of [
    ['Express', () => undefined],
    ['Fastify', () => new FastifyAdapter()],
  ])
    test(`limits of module, class and handler are one check; on ${platform}`, async () => {
      const limiter = new FakeLimiter()
      class App {}
      Reflect.decorate(
        [
          Module({
            imports: [RateLimitModule.forRoot({ limiter, limits: ['web'] })],
            controllers: [Search],
            providers: [{ provide: APP_GUARD, useExisting: RateLimitGuard }],
          }),
        ],
        App,
      )
      const app = await NestFactory.create(App, ...[adapter()].filter(Boolean), { logger: false })
      await app.listen(0, '127.0.0.1')
      const { port } = app.getHttpServer().address()
      const policies = async (path) => {
        const before = limiter.calls.length
        assert.equal((await ask(port, path)).status, 200)
        return limiter.calls.slice(before).map(([, policy, key]) => [policy.limit ?? policy, key])
      }

      assert.deepEqual(await policies('/search'), [
        ['web', '127.0.0.1'],
        ['class', '127.0.0.1'],
        [10, 'GET /search|127.0.0.1'],
      ])
      assert.deepEqual(
        (await policies('/search/both')).map(([policy]) => policy),
        ['web', 'class', 'a', 'b', 'c'],
      )
      assert.deepEqual(await policies('/search/health'), [])

      limiter.deny('c', { retryAfterMs: 1500 })
      const { status, headers, body } = await ask(port, '/search/both')
      assert.deepEqual(
        [status, headers['retry-after'], headers['content-type']],
        [429, '2', 'application/problem+json'],
      )
      assert.deepEqual(JSON.parse(body)['violated-policies'], ['c'])
      assert.equal(headers['ratelimit'], '"c";r=0;t=2')
      await app.close()
    })

  for (const [platform, adapter] of [
    ['Express', () => undefined],
    ['Fastify', () => new FastifyAdapter()],
  ])
    test(`answers that pass have the fields, and a limit may deny in its own way; on ${platform}`, async () => {
      const daemon = await startDaemon({ web: { algorithm: 'fixed_window', limit: 1, window: '1m' } })
      const limiter = patient({ socket: daemon.socket })
      class App {}
      const respond = (_req, res, { status }) => void res.status(status).send('not now')
      Reflect.decorate(
        [
          Module({
            imports: [RateLimitModule.forRoot({ limiter, limits: [{ policy: 'web', respond }] })],
            controllers: [Plain],
            providers: [{ provide: APP_GUARD, useExisting: RateLimitGuard }],
          }),
        ],
        App,
      )
      const app = await NestFactory.create(App, ...[adapter()].filter(Boolean), { logger: false })
      await app.listen(0, '127.0.0.1')
      const { port } = app.getHttpServer().address()

      const passed = await ask(port, '/plain')
      assert.deepEqual(
        [passed.body, passed.headers['ratelimit'], passed.headers['ratelimit-policy']],
        ['plain', '"web";r=0;t=60', '"web";q=1;w=60'],
      )
      const denied = await ask(port, '/plain')
      assert.deepEqual([denied.status, denied.body, denied.headers['retry-after']], [429, 'not now', '60'])
      await app.close()
      limiter.close()
      await daemon.stop()
    })
})

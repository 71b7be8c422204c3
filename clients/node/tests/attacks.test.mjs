// What got past a limit, or was charged too often: what the table of attacks does not have, because only Node has it.
import 'reflect-metadata'
import assert from 'node:assert/strict'
import { AsyncLocalStorage } from 'node:async_hooks'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { describe, test } from 'node:test'
import { getRequestListener } from '@hono/node-server'
import Router from '@koa/router'
import { ApolloDriver } from '@nestjs/apollo'
import { Body, Catch, Controller, Get, Injectable, Module, UseGuards } from '@nestjs/common'
import { APP_GUARD, NestFactory } from '@nestjs/core'
import { Args, GraphQLModule, Mutation, Parent, Query, ResolveField, Resolver } from '@nestjs/graphql'
import { WsAdapter } from '@nestjs/platform-ws'
import { SubscribeMessage, WebSocketGateway } from '@nestjs/websockets'
import { ROOT_CONTEXT, context as otelContext, trace } from '@opentelemetry/api'
import express from 'express'
import Fastify from 'fastify'
import { Hono } from 'hono'
import Koa from 'koa'
import { NOT_LIMITED, RateLimiter } from 'ratelimitd'
import { ip, rateLimit } from 'ratelimitd/express'
import { rateLimit as fastifyRateLimit } from 'ratelimitd/fastify'
import { rateLimit as honoRateLimit } from 'ratelimitd/hono'
import { rateLimit as koaRateLimit } from 'ratelimitd/koa'
import { RateLimit, RateLimitGuard, RateLimitModule, ip as nestIp, user as nestUser } from 'ratelimitd/nest'
import { FakeLimiter } from 'ratelimitd/testing'
import WebSocket from 'ws'
import { ask, eventually, patient, serving, silent, startDaemon } from './harness.mjs'

process.env.RATELIMIT_SERVICE = '' // else the name in this package.json

/** Runs `work` with a daemon of these policies, and a limiter for it. */
async function withDaemon(policies, work) {
  const daemon = await startDaemon(policies)
  const limiter = patient({ socket: daemon.socket, logger: silent })
  try {
    return await work(limiter, daemon)
  } finally {
    limiter.close()
    await daemon.stop()
  }
}

const fixed = (limit) => ({ algorithm: 'fixed_window', limit, window: '1m', start: 'first_hit' })
const through = (_req, res) => void res.send('through')
const left = async (limiter, policy, key = '127.0.0.1') => (await limiter.peek(policy, key)).remaining
const times = async (n, work) => {
  const found = []
  for (let i = 0; i < n; i++) found.push(await work(i))
  return found
}

describe('several places of one request', () => {
  test('are charged once, and the field has each policy once', () =>
    withDaemon({ web: fixed(10) }, async (limiter) => {
      const app = express()
        .use(rateLimit(limiter, 'web'))
        .get('/x', rateLimit(limiter, 'web'), rateLimit(limiter, { policy: 'web', cost: 3 }), through)
      await serving(app, async (port) => {
        const { headers } = await ask(port, '/x')
        assert.equal(headers['ratelimit'], '"web";r=7;t=60')
        assert.equal(headers['ratelimit-policy'], '"web";q=10;w=60')
      })
      assert.equal(await left(limiter, 'web'), 7)
    }))

  for (const [framework, start] of Object.entries({
    Express: (limiter) => express().get('/x', rateLimit(limiter, 'web'), rateLimit(limiter, 'never'), through),
    Koa: (limiter) => {
      const router = new Router().get('/x', koaRateLimit(limiter, 'web'), koaRateLimit(limiter, 'never'), (ctx) => {
        ctx.body = 'through'
      })
      return new Koa().use(router.routes()).callback()
    },
    Hono: (limiter) => {
      const app = new Hono()
      app.get('/x', honoRateLimit(limiter, 'web'), honoRateLimit(limiter, 'never'), (c) => c.text('through'))
      return getRequestListener(app.fetch)
    },
  }))
    test(`are asked together where nothing stands between them: ${framework}`, async () => {
      const limiter = new FakeLimiter({ logger: silent })
      const server = start(limiter)
      await serving(server, async (port) => {
        assert.equal((await ask(port, '/x')).body, 'through')
        limiter.deny('never')
        assert.equal((await ask(port, '/x')).status, 429)
      })
      const both = [
        ['check_all', 'web', '127.0.0.1', 1],
        ['check_all', 'never', '127.0.0.1', 1],
      ]
      assert.deepEqual(limiter.calls, [...both, ...both])
    })

  test('give everything back when the last one denies: units, reservations and slots', () =>
    withDaemon(
      { web: fixed(10), login: fixed(5), one: { algorithm: 'concurrency', limit: 1 }, never: fixed(0) },
      async (limiter) => {
        const app = express()
          .use(rateLimit(limiter, 'web'))
          .use(rateLimit(limiter, { policy: 'one', slot: true }))
          .use(rateLimit(limiter, { policy: 'login', chargeWhen: () => true }))
          .get('/x', rateLimit(limiter, 'never'), through)
        await serving(app, async (port) => {
          for (let i = 0; i < 2; i++) {
            const { status, headers } = await ask(port, '/x')
            assert.equal(status, 429)
            assert.match(headers['ratelimit'], /^"web";r=10;t=\d+, "one";r=0, "login";r=5.*, "never";r=0$/)
          }
        })
        assert.equal(await left(limiter, 'web'), 10)
        assert.equal(await left(limiter, 'login'), 5)
        assert.equal((await limiter.stats()).slots, 0)
      },
    ))

  test('keep what was charged where denials count, and after a failure answer', async () => {
    await withDaemon(
      { strict: { ...fixed(9), algorithm: 'sliding_log', start: undefined, count_denied: true }, never: fixed(0) },
      async (limiter) => {
        const app = express().use(rateLimit(limiter, 'strict')).get('/x', rateLimit(limiter, 'never'), through)
        await serving(app, (port) => times(3, () => ask(port, '/x')))
        assert.equal(await left(limiter, 'strict'), 6)
      },
    )

    const fake = new FakeLimiter({ logger: silent }) // its answers have the source `unlimited`
    fake.deny('never')
    const app = express().use(rateLimit(fake, 'web')).get('/x', rateLimit(fake, 'never'), through)
    await serving(app, (port) => ask(port, '/x'))
    assert.deepEqual(
      fake.calls.map(([method]) => method),
      ['check', 'check'],
    )
  })

  test('give back what a limit with settings of its own charged', () =>
    withDaemon({ never: fixed(0) }, async (limiter) => {
      const app = express().use('/x', rateLimit(limiter, '3/h')).get('/x', rateLimit(limiter, 'never'), through)
      app.get('/x', through)
      await serving(app, async (port) => {
        const answers = await times(5, () => ask(port, '/x'))
        assert.deepEqual(
          answers.map(({ headers }) => /"inline-\w+";r=3/.test(headers['ratelimit'])),
          [true, true, true, true, true],
        )
      })
    }))

  test('a reservation and a check of one policy are charged once', () =>
    withDaemon({ web: fixed(10) }, async (limiter) => {
      const app = express()
      app.get('/a', rateLimit(limiter, { policy: 'web', chargeWhen: () => false }), rateLimit(limiter, 'web'), through)
      app.get('/b', rateLimit(limiter, 'web'), rateLimit(limiter, { policy: 'web', chargeWhen: () => 4 }), through)
      await serving(app, async (port) => {
        await ask(port, '/a')
        await eventually(async () => (await left(limiter, 'web')) === 9)
        await ask(port, '/b')
        await eventually(async () => (await left(limiter, 'web')) === 5)
      })
    }))

  test('of Express in front of Nest, and of two limiters, are one request', () =>
    withDaemon({ web: fixed(10), never: fixed(0) }, async (limiter) => {
      const app = await nestApp({ limiter }, { controllers: [controller('x', RateLimit('web'))] }, (app) =>
        app.use(rateLimit(limiter, 'web')),
      )
      await ask(app.port, '/x')
      assert.equal(await left(limiter, 'web'), 9)
      await app.close()
    }))
})

describe('a cost that is known later', () => {
  test('may be a number, also beyond the estimate', async () => {
    const lines = []
    const policies = { web: fixed(10), debt: { algorithm: 'token_bucket', limit: 10, window: '1m', debt: true } }
    const daemon = await startDaemon(policies)
    const limiter = patient({ socket: daemon.socket, logger: { warn: (line) => lines.push(line) } })
    let units = 4
    const app = express()
      .get('/web', rateLimit(limiter, { policy: 'web', chargeWhen: () => units }), through)
      .get('/debt', rateLimit(limiter, { policy: 'debt', chargeWhen: () => units }), through)
    await serving(app, async (port) => {
      await ask(port, '/web')
      await eventually(async () => (await left(limiter, 'web')) === 6)
      units = 0
      await ask(port, '/web')
      await eventually(
        async () => (await limiter.stats()).reservations_open !== 1 && (await left(limiter, 'web')) === 6,
      )
      units = 50
      await ask(port, '/web')
      await eventually(async () => (await left(limiter, 'web')) === 0)
      await eventually(() => lines.some((line) => /chargeWhen of web gave more units than are left/.test(line)))
      await ask(port, '/debt')
      await eventually(async () => (await left(limiter, 'debt')) === 0)
      units = 1.5 // a mistake counts as it was reserved
      await limiter.reset('web', '127.0.0.1')
      await ask(port, '/web')
      await eventually(() => lines.some((line) => /not a whole number/.test(line)))
      await eventually(async () => (await left(limiter, 'web')) === 9)
    })
    limiter.close()
    await daemon.stop()
  })
})

describe('a wait', () => {
  test('above 2^31 ms is not a short one, and ends with the client', () =>
    withDaemon({ queue: { algorithm: 'leaky_bucket', limit: 1, window: '30d', max_wait: '90d' } }, async (limiter) => {
      let reached = 0
      const app = express().get('/x', rateLimit(limiter, 'queue'), (_req, res) => void res.send(String(++reached)))
      await serving(app, async (port) => {
        await ask(port, '/x')
        const gone = new AbortController()
        const waits = fetch(`http://127.0.0.1:${port}/x`, { signal: gone.signal }).catch((error) => error.name)
        await eventually(async () => limiter.counters.allowed === 2)
        await times(5, () => ask(port, '/nothing'))
        gone.abort()
        assert.equal(await waits, 'AbortError')
        assert.equal(reached, 1)
      })
    }))
})

describe('names', () => {
  const router = (limiter) => express.Router().get('/x', rateLimit(limiter, '3/h'), through)
  const first = async (handler, requests) =>
    serving(handler, async (port) => {
      const found = []
      for (const [path, headers] of requests) found.push(await ask(port, path, { headers }))
      return found
    })

  test('that are equal are an error: routers by host in Express', async () => {
    const limiter = new FakeLimiter({ logger: silent })
    const [cats, dogs] = [router(limiter), router(limiter)]
    const app = express().use((req, res, next) => (req.hostname === 'cats' ? cats : dogs)(req, res, next))
    const [one, two, again] = await first(app, [
      ['/x', { Host: 'cats' }],
      ['/x', { Host: 'dogs' }],
      ['/x', { Host: 'cats' }],
    ])
    assert.deepEqual([one.status, two.status, again.status], [200, 500, 200])
    assert.match(two.body, /two endpoints have the name GET \/x/)
  })

  test('that are equal are an error: two routes with one pattern in Express', async () => {
    const limiter = new FakeLimiter({ logger: silent })
    const version = (v) => (req, _res, next) => next(req.get('X-Version') === v ? undefined : 'route')
    const app = express()
      .get('/x', version('1'), rateLimit(limiter, '3/h'), through)
      .get('/x', version('2'), rateLimit(limiter, '3/h'), through)
    const [one, two] = await first(app, [
      ['/x', { 'X-Version': '1' }],
      ['/x', { 'X-Version': '2' }],
    ])
    assert.deepEqual([one.status, two.status], [200, 500])
  })

  test('may be equal where they are written', async () => {
    const limiter = new FakeLimiter({ logger: silent })
    const limit = { limit: 3, window: '1h', endpoint: 'x' }
    const app = express().get('/a', rateLimit(limiter, limit), through).get('/b', rateLimit(limiter, limit), through)
    assert.deepEqual(
      (await first(app, [['/a'], ['/b']])).map(({ status }) => status),
      [200, 200],
    )
    assert.deepEqual(
      limiter.calls.map(([, , key]) => key),
      ['x|127.0.0.1', 'x|127.0.0.1'],
    )
  })

  test('must be written where the framework shows no pattern', async () => {
    const wrapped = (limit) => {
      const limiter = new FakeLimiter({ logger: silent })
      const handler = rateLimit(limiter, limit)
      return express().use((req, res, next) => handler(req, res, next), through)
    }
    assert.equal((await first(wrapped('3/h'), [['/x']]))[0].status, 500)
    assert.equal((await first(wrapped({ limit: 3, window: '1h', endpoint: 'all' }), [['/x']]))[0].status, 200)

    const koa = (limit) => {
      const limiter = new FakeLimiter({ logger: silent })
      const handler = koaRateLimit(limiter, limit)
      const app = new Koa().use((ctx, next) => handler(ctx, next)).use((ctx) => void (ctx.body = 'x'))
      app.silent = true
      return app.callback()
    }
    assert.equal((await first(koa('3/h'), [['/x']]))[0].status, 500)
    assert.equal((await first(koa('web'), [['/x']]))[0].status, 200)
  })

  test('of Fastify have constraints, and a HEAD that it adds has that of its GET', async () => {
    const limiter = new FakeLimiter({ logger: silent })
    const app = Fastify()
    await app.register(fastifyRateLimit, { limiter, limits: ['100/h'] })
    const config = { rateLimit: '3/h' }
    app.get('/x', { config }, async () => 'x')
    for (const version of ['1.0.0', '2.0.0']) app.get('/x', { config, constraints: { version } }, async () => version)
    app.get('/x', { config, constraints: { host: /^a/ } }, async () => 'host')
    await app.inject('/x')
    await app.inject({ url: '/x', method: 'HEAD' })
    await app.inject({ url: '/x', headers: { 'Accept-Version': '1.x' } })
    await app.inject({ url: '/x', headers: { 'Accept-Version': '2.x' } })
    await app.inject({ url: '/x', headers: { Host: 'a' } })
    const names = limiter.calls.map(([, , key]) => key.replace('|127.0.0.1', ''))
    const expected = ['GET /x', 'GET /x', 'GET /x version=1.0.0', 'GET /x version=2.0.0', 'GET /x host=/^a/']
    assert.deepEqual(
      names,
      expected.flatMap((name) => [name, name]),
    )
    await app.close()
  })

  test('two limits of one route in Hono are one endpoint', async () => {
    const limiter = new FakeLimiter({ logger: silent })
    const key = () => 'k'
    const app = new Hono().get(
      '/x',
      honoRateLimit(limiter, { limit: 3, window: '1h', key }),
      honoRateLimit(limiter, { limit: 9, window: '1d', key }),
      (c) => c.text('x'),
    )
    assert.equal((await app.request('/x')).status, 200)
    assert.deepEqual(
      limiter.calls.map(([, , key]) => key),
      ['GET /x|k', 'GET /x|k'],
    )
  })

  test('a service without a name, or with a usual one, is warned about once', () => {
    const lines = []
    const logger = { warn: (line) => lines.push(line) }
    for (const service of ['app', 'shop']) {
      const limiter = new FakeLimiter({ logger, service })
      rateLimit(limiter, '3/h')
      rateLimit(limiter, '3/h')
    }
    assert.deepEqual(
      lines.map((line) => /warning: the service is app/.test(line)),
      [true, false],
    )
  })
})

describe('a limit that moves', () => {
  test('is sent with the id of its endpoint, where the daemon has that', async () => {
    const limiter = new FakeLimiter({ logger: silent })
    let limit = 10
    const app = express().get(
      '/x',
      rateLimit(
        limiter,
        { limit: () => limit--, window: '1h' },
        { limit: () => 100, window: '1d' },
        { policy: () => '5/s' },
        '3/h',
        { limit: () => 1, window: '1h', algorithm: 'token_bucket', burst: 5 },
      ),
      through,
    )
    await serving(app, (port) => times(2, () => ask(port, '/x')))
    const ids = ['GET /x', 'GET /x#2', 'GET /x#3', undefined, undefined]
    assert.deepEqual(
      limiter.calls.map(([, { id }]) => id),
      [...ids, ...ids],
    )
    assert.equal(limiter.calls[5][1].limit, 9)
  })

  test('keeps one counter from the first request of a process on', async (t) => {
    await withDaemon({}, async (limiter) => {
      const { features = [] } = await limiter.call('hello', [{ describe: true }])
      if (!features.includes('id')) return t.skip('this daemon has no feature id')
    })
    await withDaemon({}, async (limiter) => {
      let load = 0
      const limit = { limit: () => 10 - (load++ % 5), window: '1h', key: (req) => req.get('X-Key') ?? 'k' }
      const app = express().get('/x', rateLimit(limiter, limit), through)
      await serving(app, async (port) => {
        const answers = await times(40, () => ask(port, '/x'))
        assert.ok(answers.filter(({ status }) => status === 200).length <= 10)
      })
    })
  })

  test('is sent without an id to a daemon without that feature', () =>
    withDaemon({}, async (limiter) => {
      const app = express().get('/x', rateLimit(limiter, { limit: () => 10, window: '1h' }), through)
      await serving(app, async (port) =>
        assert.deepEqual(
          (await times(3, () => ask(port, '/x'))).map(({ status }) => status),
          [200, 200, 200],
        ),
      )
    }))
})

describe('Fastify', () => {
  const never = () => {
    const limiter = new FakeLimiter({ logger: silent })
    limiter.deny('never')
    return limiter
  }

  test('does not start with a limit outside the scope of the plugin', async () => {
    const app = Fastify()
    app.register(async (scope) => void (await scope.register(fastifyRateLimit, { limiter: never() })))
    app.get('/x', { config: { rateLimit: 'never' } }, async () => 'x')
    await assert.rejects(app.ready(), /\/x: the plugin is registered neither in the scope/)

    const without = Fastify()
    without.get('/x', { config: { rateLimit: 'never' } }, async () => 'x')
    await assert.rejects(without.ready(), /this limit would never be asked/)
  })

  test('does not start with a limit outside config', async () => {
    const app = Fastify()
    assert.throws(() => app.get('/x', { rateLimit: 'never' }, async () => 'x'), /config: {rateLimit/)
  })

  test('asks in scopes that were made before the plugin was loaded', async () => {
    const app = Fastify()
    app.register(async (scope) => {
      scope.get('/own', { config: { rateLimit: 'never' } }, async () => 'x')
      scope.get('/all', async () => 'x')
    })
    const limiter = never()
    app.register(fastifyRateLimit, { limiter, limits: ['web'] })
    assert.equal((await app.inject('/own')).statusCode, 429)
    assert.equal((await app.inject('/all')).statusCode, 200)
    assert.equal(limiter.calls.at(-1)[1], 'web')
    await app.close()
  })

  test('asks where this module is loaded after the application was made', async () => {
    const { execFileSync } = await import('node:child_process')
    const program = `
      const app = require('fastify')()
      app.get('/early', { config: { rateLimit: 'never' } }, async () => 'early')
      const { rateLimit } = require('ratelimitd/fastify')
      const { FakeLimiter } = require('ratelimitd/testing')
      const limiter = new FakeLimiter({ logger: { warn() {} } })
      limiter.deny('never')
      app.register(rateLimit, { limiter })
      app.get('/late', { config: { rateLimit: 'never' } }, async () => 'late')
      Promise.all(['/early', '/late'].map((url) => app.inject(url))).then((all) => console.log(all.map((one) => one.statusCode).join()))`
    const cwd = new URL('..', import.meta.url)
    assert.equal(execFileSync(process.execPath, ['-e', program], { cwd, encoding: 'utf8' }).trim(), '429,429')
  })

  test('asks behind the hooks of the application, which find the user', async () => {
    const limiter = new FakeLimiter({ logger: silent })
    const app = Fastify()
    await app.register(fastifyRateLimit, { limiter })
    app.get('/x', { config: { rateLimit: { policy: 'web', key: (request) => request.found } } }, async () => 'x')
    app.addHook('preHandler', async (request) => void (request.found = 'alice'))
    assert.equal((await app.inject('/x')).statusCode, 200)
    assert.deepEqual(limiter.calls, [['check', 'web', 'alice', 1]])
    await app.close()
  })
})

// ---- NestJS --------------------------------------------------------------------------------------------------------

function decorated(type, { methods = {}, ...own }) {
  for (const [name, decorators] of Object.entries(methods))
    Reflect.decorate(decorators, type.prototype, name, Object.getOwnPropertyDescriptor(type.prototype, name))
  Reflect.decorate(own.type, type)
  return type
}

/** A class with one route. */
function controller(path, ...decorators) {
  class One {
    get() {
      return 'through'
    }
  }
  return decorated(One, { type: [Controller(path)], methods: { get: [...decorators, Get()] } })
}

const GUARD = { provide: APP_GUARD, useExisting: RateLimitGuard }

async function nestApp(options, { imports = [], providers = [GUARD], controllers = [] }, prepare = () => {}) {
  class App {}
  Reflect.decorate([Module({ imports: [RateLimitModule.forRoot(options), ...imports], providers, controllers })], App)
  const app = await NestFactory.create(App, { logger: false, abortOnError: false })
  prepare(app)
  await app.listen(0, '127.0.0.1')
  return { port: app.getHttpServer().address().port, close: () => app.close() }
}

describe('NestJS', () => {
  const never = () => {
    const limiter = new FakeLimiter({ logger: silent })
    limiter.deny('never', { retryAfterMs: 2000 })
    return limiter
  }

  test('does not start with a limit that would never be asked', async () => {
    const limiter = never()
    const controllers = [controller('x', RateLimit('never'))]
    await assert.rejects(nestApp({ limiter }, { controllers, providers: [] }), /RateLimitGuard is not registered/)

    class Plain {}
    Reflect.decorate([Module({ controllers })], Plain)
    await assert.rejects(NestFactory.create(Plain, { logger: false, abortOnError: false }), /RateLimitModule.forRoot/)

    class Service {
      work() {}
    }
    decorated(Service, { type: [Injectable()], methods: { work: [RateLimit('never')] } })
    await assert.rejects(nestApp({ limiter }, { providers: [GUARD, Service] }), /Service.work: Nest calls no guards/)
    const other = decorated(
      class Other {
        work() {}
      },
      { type: [Injectable(), RateLimit('never')] },
    )
    await assert.rejects(nestApp({ limiter }, { providers: [GUARD, other] }), /it has no handlers/)
  })

  test('does not start with two handlers of one name', async () => {
    const limiter = never()
    const limit = RateLimit('3/h')
    await assert.rejects(
      nestApp({ limiter }, { controllers: [controller('x', limit), controller('x', limit)] }),
      /two endpoints have the name GET \/x/,
    )
  })

  test('asks behind the other guards, and then the fields are there whatever filter answers', async () => {
    const limiter = never()
    class Auth {
      canActivate(context) {
        const request = context.switchToHttp().getRequest()
        request.user = request.get('X-User')
        return request.user !== undefined
      }
    }
    class Everything {
      catch(_error, host) {
        host.switchToHttp().getResponse().status(418).json({ own: true })
      }
    }
    Reflect.decorate([Catch()], Everything)
    const key = nestUser((request) => request.user)
    const type = controller(
      'x',
      UseGuards(Auth),
      RateLimit({ policy: 'web', key }, { policy: 'never', skip: (request) => request.user !== 'bad' }),
    )
    const app = await nestApp({ limiter, limits: ['all'] }, { controllers: [type] }, (app) =>
      app.useGlobalFilters(new Everything()),
    )
    await ask(app.port, '/x')
    assert.deepEqual(limiter.calls.splice(0), [['check', 'all', '127.0.0.1', 1]])
    assert.equal((await ask(app.port, '/x', { headers: { 'X-User': 'alice' } })).body, 'through')
    assert.deepEqual(limiter.calls.splice(0), [
      ['check', 'all', '127.0.0.1', 1],
      ['check', 'web', 'u|alice', 1],
    ])
    const denied = await ask(app.port, '/x', { headers: { 'X-User': 'bad' } })
    assert.deepEqual([denied.status, denied.body, denied.headers['retry-after']], [418, '{"own":true}', '2'])
    assert.equal(denied.headers['ratelimit'], '"never";r=0;t=2')
    await app.close()
  })

  test('names the patterns, versions and hosts of a route', async () => {
    const limiter = new FakeLimiter({ logger: silent })
    const limit = RateLimit('3/h')
    const versioned = (version) =>
      decorated(
        class V {
          get() {
            return version
          }
        },
        { type: [Controller({ path: 'v', version })], methods: { get: [limit, Get()] } },
      )
    const many = decorated(
      class Many {
        get() {
          return 'many'
        }
      },
      { type: [Controller('m')], methods: { get: [limit, Get(['a', 'b'])] } },
    )
    const app = await nestApp({ limiter }, { controllers: [versioned('1'), versioned('2'), many] }, (app) => {
      app.setGlobalPrefix('api')
      app.enableVersioning({ type: 1, header: 'X-Version' })
    })
    for (const version of ['1', '2'])
      assert.equal((await ask(app.port, '/api/v', { headers: { 'X-Version': version } })).body, version)
    for (const path of ['a', 'b']) assert.equal((await ask(app.port, `/api/m/${path}`)).status, 200)
    const names = limiter.calls.map(([, , key]) => key.replace('|127.0.0.1', ''))
    const m = 'GET /api/m/a%7C/api/m/b'
    assert.deepEqual(names, ['GET /api/v version=1', 'GET /api/v version=2', m, m])
    await app.close()
  })

  const graphql = (more = {}) =>
    GraphQLModule.forRoot({ driver: ApolloDriver, autoSchemaFile: true, playground: false, ...more })
  const send = async (port, query) => {
    const body = JSON.stringify({ query })
    const answer = await ask(port, '/graphql', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body,
    })
    return { ...answer, ...JSON.parse(answer.body) }
  }
  class Accounts {
    hello() {
      return 'hello'
    }
    login(name) {
      return name
    }
  }
  Reflect.metadata('design:paramtypes', [String])(Accounts.prototype, 'login')
  Args('name', { type: () => String })(Accounts.prototype, 'login', 0)
  const byName = {
    policy: 'login',
    key: (request, _response, context) => [context.getArgs()[1].name, nestIp()(request)],
  }
  decorated(Accounts, {
    type: [Resolver()],
    methods: { hello: [Query(() => String)], login: [RateLimit(byName), Mutation(() => String)] },
  })

  test('counts each call of a resolver, not each request, and a denial gives nothing back to the others', () =>
    withDaemon({ login: fixed(2), web: fixed(10) }, async (limiter) => {
      const app = await nestApp({ limiter, limits: ['web'] }, { imports: [graphql()], providers: [GUARD, Accounts] })
      const guesses =
        'mutation { d: login(name: "eve") a: login(name: "bob") b: login(name: "bob") c: login(name: "bob") }'
      const { errors, headers } = await send(app.port, guesses)
      assert.equal(errors.length, 1)
      assert.equal(errors[0].path[0], 'c')
      assert.match(errors[0].message, /Quota exceeded|Exception/)
      assert.equal(headers['retry-after'], '60')
      assert.equal(await left(limiter, 'login', 'bob|127.0.0.1'), 0)
      assert.equal(await left(limiter, 'login', 'eve|127.0.0.1'), 1)
      assert.equal(await left(limiter, 'web'), 9)
      await app.close()
    }))

  test('counts the calls of several resolvers with one policy and key, also if the module has it', () =>
    withDaemon({ login: fixed(9) }, async (limiter) => {
      class Doors {
        front() {
          return 'front'
        }
        back() {
          return 'back'
        }
      }
      decorated(Doors, {
        type: [Resolver()],
        methods: { front: [RateLimit('login'), Query(() => String)], back: [RateLimit('login'), Query(() => String)] },
      })
      const app = await nestApp({ limiter, limits: ['login'] }, { imports: [graphql()], providers: [GUARD, Doors] })
      await send(app.port, '{ a: front b: back c: front d: back }')
      assert.equal(await left(limiter, 'login'), 5)
      await app.close()
    }))

  test('does not start with a limit at a field of GraphQL that is not asked', async () => {
    const { ObjectType, Field } = await import('@nestjs/graphql')
    class Cat {}
    Field(() => String)(Cat.prototype, 'name')
    ObjectType()(Cat)
    const cats = () => {
      class Cats {
        cat() {
          return {}
        }
        name() {
          return 'Tom'
        }
      }
      return decorated(Cats, {
        type: [Resolver(() => Cat)],
        methods: { cat: [Query(() => Cat)], name: [RateLimit('never'), ResolveField('name', () => String)] },
      })
    }
    const limiter = never()
    await assert.rejects(
      nestApp({ limiter }, { imports: [graphql()], providers: [GUARD, cats()] }),
      /fieldResolverEnhancers/,
    )
    const app = await nestApp(
      { limiter },
      {
        imports: [graphql({ fieldResolverEnhancers: ['guards', 'interceptors', 'filters'] })],
        providers: [GUARD, cats()],
      },
    )
    assert.equal((await send(app.port, '{ cat { name } }')).errors.length, 1)
    await app.close()
  })

  test('counts each message of a gateway', () =>
    withDaemon({ web: fixed(2) }, async (limiter) => {
      class Chat {
        say() {
          return { event: 'said', data: 'yes' }
        }
      }
      decorated(Chat, { type: [WebSocketGateway()], methods: { say: [RateLimit('web'), SubscribeMessage('say')] } })
      const app = await nestApp({ limiter }, { providers: [GUARD, Chat] }, (app) =>
        app.useWebSocketAdapter(new WsAdapter(app)),
      )
      const client = new WebSocket(`ws://127.0.0.1:${app.port}`)
      await once(client, 'open')
      const heard = []
      client.on('message', (data) => heard.push(JSON.parse(data)))
      for (let i = 0; i < 3; i++) client.send(JSON.stringify({ event: 'say', data: i }))
      await eventually(() => heard.length === 3)
      assert.deepEqual(heard.map(({ event }) => event).sort(), ['exception', 'said', 'said'])
      const { data } = heard.find(({ event }) => event === 'exception')
      assert.deepEqual([data.status, data['retry-after']], [429, 60])
      client.terminate()
      await app.close()
    }))
})

test('the span of OpenTelemetry gets what was decided', async () => {
  const storage = new AsyncLocalStorage()
  otelContext.setGlobalContextManager({
    active: () => storage.getStore() ?? ROOT_CONTEXT,
    with: (context, run, self, ...args) => storage.run(context, () => run.call(self, ...args)),
    bind: (_context, target) => target,
    enable() {},
    disable() {},
  })
  const attributes = []
  const spans = (_req, _res, next) => {
    const span = { setAttributes: (found) => attributes.push(found) }
    otelContext.with(trace.setSpan(otelContext.active(), span), next)
  }
  await withDaemon({ web: fixed(1) }, async (limiter) => {
    const app = express()
      .use(spans)
      .get('/x', rateLimit(limiter, { limit: 9, window: '1h', name: 'nine' }, 'web'), through)
    await serving(app, (port) => times(2, () => ask(port, '/x')))
  })
  otelContext.disable()
  const result = (policy, result) => ({
    'ratelimit.policy': policy,
    'ratelimit.result': result,
    'ratelimit.source': 'memory',
  })
  assert.deepEqual(attributes, [result('web', 'allowed'), result('web', 'denied')])
})

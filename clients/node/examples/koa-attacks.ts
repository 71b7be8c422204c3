// The routes of the table of attacks (clients/conformance/attacks.yaml), with Koa.
import { text } from 'node:stream/consumers'
import Router from '@koa/router'
import type Koa from 'koa'
import type { RateLimiter } from 'ratelimitd'
import { NOT_LIMITED, ip, isPreflight, rateLimit, user } from 'ratelimitd/koa'

export function attacks(app: Koa, limiter: RateLimiter): void {
  const router = new Router({ prefix: '/attack', sensitive: true })
  const says =
    (body: string): Koa.Middleware =>
    (ctx) =>
      void (ctx.body = `${body}\n`)
  const inline = { limit: 2, window: '1m' }
  const apiKey = (ctx: Koa.Context): string => ctx.get('X-Api-Key')
  const address = ip()

  router.all('/any', rateLimit(limiter, { policy: 'never', onError: 'deny' }), says('any'))
  router.all('/preflight', rateLimit(limiter, { policy: 'never', skip: isPreflight }), says('preflight'))
  router.get('/key', rateLimit(limiter, { policy: 'never', key: apiKey }), says('key'))
  const allowed = rateLimit(limiter, { policy: 'never', key: apiKey, onError: 'allow' })
  router.get('/key-allowed', allowed, says('key-allowed'))
  router.get('/key-said', rateLimit(limiter, { policy: 'never', key: apiKey }), says('key-said'))
  const readJson: Koa.Middleware = async (ctx, next) => {
    const body = await text(ctx.req)
    try {
      ctx.state.json = ctx.is('json') ? JSON.parse(body) : null
    } catch {
      ctx.state.json = null
    }
    await next()
  }
  const jsonUser = (ctx: Koa.Context): unknown =>
    typeof ctx.state.json?.user === 'string' ? ctx.state.json.user : undefined
  router.post('/json', readJson, rateLimit(limiter, { policy: 'never', key: jsonUser as () => string }), says('json'))
  const parts = rateLimit(limiter, { policy: 'never', key: (ctx) => [address(ctx), apiKey(ctx)] })
  router.get('/parts', parts, says('parts'))
  const param = rateLimit(limiter, { policy: 'never', key: (ctx) => ctx.query['user'] as string | undefined })
  router.get('/param', param, says('param'))
  const exempt = (ctx: Koa.Context) => (ctx.get('X-Exempt') === 'yes' ? NOT_LIMITED : address(ctx))
  router.get('/exempt', rateLimit(limiter, { policy: 'never', key: exempt }), says('exempt'))
  const named = user((ctx) => ctx.headers['x-user'] as string | undefined)
  router.get('/user', rateLimit(limiter, { policy: 'pair', key: named }), says('user'))
  const broken = user((ctx) => ctx.state.session.user as string)
  router.get('/user-broken', rateLimit(limiter, { policy: 'never', key: broken }), says('user-broken'))

  const finds: Koa.Middleware = (ctx, next) => {
    ctx.state.user = ctx.headers['x-user']
    return next()
  }
  const found = user((ctx) => ctx.state.user as string | undefined)
  app.use(finds)
  router.get('/late-hook', rateLimit(limiter, { policy: 'pair', key: found }), says('late-hook'))
  const guard: Koa.Middleware = (ctx, next) => {
    if (ctx.headers['x-user'] === undefined) ctx.throw(401)
    ctx.state.user = ctx.headers['x-user']
    return next()
  }
  router.get('/late-guard', guard, rateLimit(limiter, { policy: 'pair', key: found }), says('late-guard'))

  const forwards =
    (path: string): Koa.Middleware =>
    (ctx, next) => {
      ctx.path = path
      return router.routes()(ctx as never, next)
    }
  router.get('/forward', forwards('/attack/forwarded'))
  router.get('/forwarded', rateLimit(limiter, 'pair'), says('forwarded'))
  router.get('/redirect', rateLimit(limiter, 'web'), forwards('/attack/redirected'))
  router.get('/redirected', rateLimit(limiter, 'web'), says('redirected'))
  router.use(
    new Router({ prefix: '/raw', sensitive: true }).use(rateLimit(limiter, 'never')).get('/x', says('raw')).routes(),
  )

  const outer = new Router({ prefix: '/outer', sensitive: true }).use(rateLimit(limiter, 'web'))
  outer.get('/twice', rateLimit(limiter, 'web'), says('twice'))
  outer.get('/cost', rateLimit(limiter, { policy: 'web', cost: 5 }), says('cost'))
  outer.get('/inner', rateLimit(limiter, 'pair'), says('inner'))
  outer.get('/key', rateLimit(limiter, { policy: 'never', key: apiKey }), says('key'))
  router.use(outer.routes())
  const strict = new Router({ prefix: '/strict', sensitive: true }).use(rateLimit(limiter, 'strict'))
  strict.get('/inner', rateLimit(limiter, 'never'), says('inner'))
  router.use(strict.routes())
  router.get('/number', rateLimit(limiter, { policy: 'web', chargeWhen: () => 5 }), says('number'))

  const factory = (name: string) => router.get(`/names/factory/${name}`, rateLimit(limiter, inline), says(name))
  factory('a')
  factory('b')
  router.get('/names/lambda/a', rateLimit(limiter, inline), (ctx) => void (ctx.body = 'a\n'))
  router.get('/names/lambda/b', rateLimit(limiter, inline), (ctx) => void (ctx.body = 'b\n'))
  router.get('/names/method', rateLimit(limiter, inline), says('method'))
  router.post('/names/method', rateLimit(limiter, inline), says('method'))
  router.register('/names/both', ['GET', 'POST'], [rateLimit(limiter, inline), says('both')] as never)
  const mounted = new Router().get('/x', rateLimit(limiter, inline), says('x'))
  router.use('/names/mounted-a', mounted.routes())
  router.use('/names/mounted-b', mounted.routes())
  router.get('/names/item/:id', rateLimit(limiter, inline), (ctx) => void (ctx.body = `${String(ctx.params['id'])}\n`))
  for (const name of ['shared-a', 'shared-b'])
    router.get(`/names/${name}`, rateLimit(limiter, { ...inline, endpoint: 'shared' }), says(name))
  const moves = { limit: (ctx: Koa.Context) => Number(ctx.query['limit']), window: '1m', key: () => 'moves' }
  router.get('/moves', rateLimit(limiter, moves), says('moves'))

  switch (process.env.MISTAKE) {
    case 'equal-names':
      router.get('/mistake/1', rateLimit(limiter, { ...inline, endpoint: 'GET /attack/mistake/2' }), says('1'))
      router.get('/mistake/2', rateLimit(limiter, inline), says('2'))
      break
    case 'no-user-layer':
      router.get('/mistake/1', rateLimit(limiter, { policy: 'web', key: user(undefined as never) }), says('1'))
  }
  app.use(router.routes())
}

// The routes of the table of attacks (clients/conformance/attacks.yaml), with Hono.
import { type Context, Hono, type MiddlewareHandler } from 'hono'
import type { RateLimiter } from 'ratelimitd'
import { NOT_LIMITED, ip, isPreflight, rateLimit, user } from 'ratelimitd/hono'

export function attacks(app: Hono, limiter: RateLimiter): void {
  const at = (name: string): string => `/attack/${name}`
  const text = (c: Context, body: string): Response =>
    c.body(body, 200, { 'Content-Type': 'text/plain; charset=utf-8' })
  const says = (body: string) => (c: Context) => text(c, `${body}\n`)
  const inline = { limit: 2, window: '1m' }
  const apiKey = (c: Context): string | undefined => c.req.header('X-Api-Key')
  const address = ip()

  app.all(at('any'), rateLimit(limiter, { policy: 'never', onError: 'deny' }), says('any'))
  app.all(at('preflight'), rateLimit(limiter, { policy: 'never', skip: isPreflight }), says('preflight'))
  app.get(at('key'), rateLimit(limiter, { policy: 'never', key: apiKey }), says('key'))
  const allowed = rateLimit(limiter, { policy: 'never', key: apiKey, onError: 'allow' })
  app.get(at('key-allowed'), allowed, says('key-allowed'))
  app.get(at('key-said'), rateLimit(limiter, { policy: 'never', key: apiKey }), says('key-said'))
  const jsonUser = async (c: Context): Promise<string | undefined> => {
    const body: unknown = await c.req.json().catch(() => null)
    const name = (body as { user?: unknown } | null)?.user
    return typeof name === 'string' ? name : undefined
  }
  app.post(at('json'), rateLimit(limiter, { policy: 'never', key: jsonUser }), says('json'))
  const parts = rateLimit(limiter, { policy: 'never', key: (c) => [address(c), apiKey(c)] })
  app.get(at('parts'), parts, says('parts'))
  app.get(at('param'), rateLimit(limiter, { policy: 'never', key: (c) => c.req.query('user') }), says('param'))
  const exempt = (c: Context) => (c.req.header('X-Exempt') === 'yes' ? NOT_LIMITED : address(c))
  app.get(at('exempt'), rateLimit(limiter, { policy: 'never', key: exempt }), says('exempt'))
  const named = user((c) => c.req.header('X-User'))
  app.get(at('user'), rateLimit(limiter, { policy: 'pair', key: named }), says('user'))
  const broken = user((c) => (c.get('session' as never) as { user: string }).user)
  app.get(at('user-broken'), rateLimit(limiter, { policy: 'never', key: broken }), says('user-broken'))

  const finds: MiddlewareHandler = (c, next) => {
    c.set('user', c.req.header('X-User'))
    return next()
  }
  const found = user((c) => c.get('user' as never) as string | undefined)
  app.use(at('late-hook'), finds)
  app.get(at('late-hook'), rateLimit(limiter, { policy: 'pair', key: found }), says('late-hook'))
  const guard: MiddlewareHandler = async (c, next) =>
    c.req.header('X-User') === undefined ? c.text('who?', 401) : void (await finds(c, next))
  app.get(at('late-guard'), guard, rateLimit(limiter, { policy: 'pair', key: found }), says('late-guard'))

  const forwards = (path: string) => (c: Context) => app.fetch(new Request(new URL(path, c.req.url), c.req.raw), c.env)
  app.get(at('forward'), forwards(at('forwarded')))
  app.get(at('forwarded'), rateLimit(limiter, 'pair'), says('forwarded'))
  app.get(at('redirect'), rateLimit(limiter, 'web'), forwards(at('redirected')))
  app.get(at('redirected'), rateLimit(limiter, 'web'), says('redirected'))
  app.use(at('raw/*'), rateLimit(limiter, 'never'))
  app.get(at('raw/x'), says('raw'))

  app.use(at('outer/*'), rateLimit(limiter, 'web'))
  app.get(at('outer/twice'), rateLimit(limiter, 'web'), says('twice'))
  app.get(at('outer/cost'), rateLimit(limiter, { policy: 'web', cost: 5 }), says('cost'))
  app.get(at('outer/inner'), rateLimit(limiter, 'pair'), says('inner'))
  app.get(at('outer/key'), rateLimit(limiter, { policy: 'never', key: apiKey }), says('key'))
  app.use(at('strict/*'), rateLimit(limiter, 'strict'))
  app.get(at('strict/inner'), rateLimit(limiter, 'never'), says('inner'))
  app.get(at('number'), rateLimit(limiter, { policy: 'web', chargeWhen: () => 5 }), says('number'))

  const factory = (name: string) => app.get(at(`names/factory/${name}`), rateLimit(limiter, inline), says(name))
  factory('a')
  factory('b')
  app.get(at('names/lambda/a'), rateLimit(limiter, inline), (c) => text(c, 'a\n'))
  app.get(at('names/lambda/b'), rateLimit(limiter, inline), (c) => text(c, 'b\n'))
  app.get(at('names/method'), rateLimit(limiter, inline), says('method'))
  app.post(at('names/method'), rateLimit(limiter, inline), says('method'))
  app.on(['GET', 'POST'], at('names/both'), rateLimit(limiter, inline), says('both'))
  const mounted = new Hono().get('/x', rateLimit(limiter, inline), says('x'))
  app.route(at('names/mounted-a'), mounted)
  app.route(at('names/mounted-b'), mounted)
  app.get(at('names/item/:id'), rateLimit(limiter, inline), (c) => text(c, `${c.req.param('id')}\n`))
  for (const name of ['shared-a', 'shared-b'])
    app.get(at(`names/${name}`), rateLimit(limiter, { ...inline, endpoint: 'shared' }), says(name))
  const moves = { limit: (c: Context) => Number(c.req.query('limit')), window: '1m', key: () => 'moves' }
  app.get(at('moves'), rateLimit(limiter, moves), says('moves'))

  switch (process.env.MISTAKE) {
    case 'equal-names':
      app.get(at('mistake/1'), rateLimit(limiter, { ...inline, endpoint: 'GET /attack/mistake/2' }), says('1'))
      app.get(at('mistake/2'), rateLimit(limiter, inline), says('2'))
      break
    case 'no-user-layer':
      app.get(at('mistake/1'), rateLimit(limiter, { policy: 'web', key: user(undefined as never) }), says('1'))
  }
}

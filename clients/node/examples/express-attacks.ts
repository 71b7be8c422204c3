// The routes of the table of attacks (clients/conformance/attacks.yaml), with Express.
import express, { type Express, type Request, type RequestHandler, type Response } from 'express'
import type { RateLimiter } from 'ratelimitd'
import { NOT_LIMITED, ip, isPreflight, rateLimit, user } from 'ratelimitd/express'

export function attacks(app: Express, limiter: RateLimiter): void {
  const at = (name: string): string => `/attack/${name}`
  const says =
    (body: string): RequestHandler =>
    (_req, res) =>
      void res.type('text').send(`${body}\n`)
  const inline = { limit: 2, window: '1m' }
  const apiKey = (req: Request): string | undefined => req.get('X-Api-Key')
  const address = ip()

  app.all(at('any'), rateLimit(limiter, { policy: 'never', onError: 'deny' }), says('any'))
  app.all(at('preflight'), rateLimit(limiter, { policy: 'never', skip: isPreflight }), says('preflight'))
  app.get(at('key'), rateLimit(limiter, { policy: 'never', key: apiKey }), says('key'))
  app.get(
    at('key-allowed'),
    rateLimit(limiter, { policy: 'never', key: apiKey, onError: 'allow' }),
    says('key-allowed'),
  )
  app.get(at('key-said'), rateLimit(limiter, { policy: 'never', key: apiKey }), says('key-said'))
  const jsonUser = (req: Request): string | undefined =>
    typeof req.body?.user === 'string' ? req.body.user : undefined
  app.post(at('json'), express.json(), rateLimit(limiter, { policy: 'never', key: jsonUser }), says('json'))
  const parts = (req: Request, res: Response) => [address(req, res), apiKey(req)]
  app.get(at('parts'), rateLimit(limiter, { policy: 'never', key: parts }), says('parts'))
  const param = (req: Request) => req.query['user'] as string | undefined
  app.get(at('param'), rateLimit(limiter, { policy: 'never', key: param }), says('param'))
  const exempt = (req: Request, res: Response) => (req.get('X-Exempt') === 'yes' ? NOT_LIMITED : address(req, res))
  app.get(at('exempt'), rateLimit(limiter, { policy: 'never', key: exempt }), says('exempt'))
  app.get(at('user'), rateLimit(limiter, { policy: 'pair', key: user((req) => req.get('X-User')) }), says('user'))
  const broken = user((req) => (req as unknown as { session: { user: string } }).session.user)
  app.get(at('user-broken'), rateLimit(limiter, { policy: 'never', key: broken }), says('user-broken'))

  const finds: RequestHandler = (req, res, next) => {
    res.locals.user = req.get('X-User')
    next()
  }
  const found = user((_req, res) => res.locals.user as string | undefined)
  app.use(at('late-hook'), finds)
  app.get(at('late-hook'), rateLimit(limiter, { policy: 'pair', key: found }), says('late-hook'))
  const guard: RequestHandler = (req, res, next) => {
    if (req.get('X-User') === undefined) res.sendStatus(401)
    else finds(req, res, next)
  }
  app.get(at('late-guard'), guard, rateLimit(limiter, { policy: 'pair', key: found }), says('late-guard'))

  const forwards =
    (path: string): RequestHandler =>
    (req, res, next) => {
      req.url = path
      app(req, res, next)
    }
  app.get(at('forward'), forwards(at('forwarded')))
  app.get(at('forwarded'), rateLimit(limiter, 'pair'), says('forwarded'))
  app.get(at('redirect'), rateLimit(limiter, 'web'), forwards(at('redirected')))
  app.get(at('redirected'), rateLimit(limiter, 'web'), says('redirected'))
  app.use(at('raw'), rateLimit(limiter, 'never'), express.Router().get('/x', says('raw')))

  const outer = express.Router()
  outer.get('/twice', rateLimit(limiter, 'web'), says('twice'))
  outer.get('/cost', rateLimit(limiter, { policy: 'web', cost: 5 }), says('cost'))
  outer.get('/inner', rateLimit(limiter, 'pair'), says('inner'))
  outer.get('/key', rateLimit(limiter, { policy: 'never', key: apiKey }), says('key'))
  app.use(at('outer'), rateLimit(limiter, 'web'), outer)
  const strict = express.Router().get('/inner', rateLimit(limiter, 'never'), says('inner'))
  app.use(at('strict'), rateLimit(limiter, 'strict'), strict)
  app.get(at('number'), rateLimit(limiter, { policy: 'web', chargeWhen: () => 5 }), says('number'))

  const factory = (name: string) => app.get(at(`names/factory/${name}`), rateLimit(limiter, inline), says(name))
  factory('a')
  factory('b')
  app.get(at('names/lambda/a'), rateLimit(limiter, inline), (_req, res) => void res.type('text').send('a\n'))
  app.get(at('names/lambda/b'), rateLimit(limiter, inline), (_req, res) => void res.type('text').send('b\n'))
  app.get(at('names/method'), rateLimit(limiter, inline), says('method'))
  app.post(at('names/method'), rateLimit(limiter, inline), says('method'))
  const both = [rateLimit(limiter, inline), says('both')]
  app.route(at('names/both')).get(both).post(both)
  const mounted = express.Router().get('/x', rateLimit(limiter, inline), says('x'))
  app.use(at('names/mounted-a'), mounted)
  app.use(at('names/mounted-b'), mounted)
  app.get(at('names/item/:id'), rateLimit(limiter, inline), (req, res) =>
    says(String(req.params['id']))(req, res, () => {}),
  )
  for (const name of ['shared-a', 'shared-b'])
    app.get(at(`names/${name}`), rateLimit(limiter, { ...inline, endpoint: 'shared' }), says(name))
  const moves = { limit: (req: Request) => Number(req.query['limit']), window: '1m', key: () => 'moves' }
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

// A small service with Hono on Node. PORT, RATELIMIT_SOCKET and TIMEOUT_MS come from the environment.
import { setTimeout as sleep } from 'node:timers/promises'
import { serve } from '@hono/node-server'
import { type Context, Hono } from 'hono'
import { stream } from 'hono/streaming'
import { RateLimiter } from 'ratelimitd'
import { NOT_LIMITED, ip, rateLimit } from 'ratelimitd/hono'
import { attacks } from './hono-attacks.js'

const limiter = new RateLimiter({ timeoutMs: Number(process.env.TIMEOUT_MS ?? 250) })
const app = new Hono()

const text = (c: Context, body: string, status: 200 | 401 | 403 | 418 = 200): Response =>
  c.body(body, status, { 'Content-Type': 'text/plain; charset=utf-8' })

app.get('/ok', rateLimit(limiter, 'web'), (c) => text(c, 'ok\n'))

// A body may be anything: a broken form is one without fields, and a field may be a file or missing.
type Form = Record<string, unknown>
const formOf = (c: Context): Promise<Form> => c.req.parseBody().catch(() => ({}))
const account = ({ user }: Form): string => (typeof user === 'string' && user) || '-'
const address = ip()
const login = rateLimit(limiter, {
  policy: 'login',
  key: async (c) => [account(await formOf(c)), address(c)],
  onError: 'deny',
  chargeWhen: (c) => c.res.status === 401, // only wrong passwords count
})
app.post('/login', login, async (c) => {
  const { password } = await formOf(c)
  return password === 'right' ? text(c, 'welcome\n') : text(c, 'wrong\n', 401)
})

app.get('/inline', rateLimit(limiter, { limit: 2, window: '5s' }), (c) => text(c, 'inline\n'))

const two = rateLimit(limiter, 'web', { policy: 'tenant', key: (c) => c.req.header('X-Tenant') || NOT_LIMITED })
app.get('/two', two, (c) => text(c, 'two\n'))

app.get('/slow', rateLimit(limiter, { policy: 'slow', slot: true }), async (c) => {
  await sleep(Number(c.req.query('ms') ?? 0))
  return text(c, 'slow\n')
})

app.get('/stream', rateLimit(limiter, { policy: 'stream', slot: true }), (c) => {
  c.header('Content-Type', 'text/plain; charset=utf-8')
  return stream(c, async (out) => {
    for (const chunk of ['one\n', 'two\n', 'three\n']) {
      await out.write(chunk)
      await sleep(100)
    }
  })
})

app.get('/cost', rateLimit(limiter, { policy: 'budget', cost: (c) => Number(c.req.query('n')) }), (c) =>
  text(c, `cost ${c.req.query('n')}\n`),
)
app.get('/skip', rateLimit(limiter, { policy: 'login', skip: (c) => c.req.header('X-Probe') === 'yes' }), (c) =>
  text(c, 'skip\n'),
)
app.get('/down', rateLimit(limiter, { policy: 'web', onError: 'deny' }), (c) => text(c, 'down\n'))

// limits by the request, the decision in the handler, and answers of the program's own
const plan = rateLimit(limiter, {
  name: 'plan',
  limit: (c) => (c.req.header('X-Plan') === 'gold' ? 3 : 1),
  window: (c) => (c.req.header('X-Plan') === 'gold' ? '30s' : '60s'),
})
app.get('/plan', plan, (c) => text(c, 'plan\n'))
const choose = rateLimit(limiter, {
  policy: (c) => (c.req.query('policy') === 'free' ? NOT_LIMITED : c.req.query('policy')),
})
app.get('/choose', choose, (c) => text(c, 'choose\n'))
app.get('/left', rateLimit(limiter, 'web'), (c) => {
  const decision = c.get('rateLimit')
  return text(c, decision ? `left ${decision.remaining} of ${decision.of}\n` : 'left unknown\n')
})
const guess = rateLimit(limiter, { name: 'guess', limit: 2, window: '1m', chargeWhen: (c) => c.res.status === 403 })
app.get('/guess', guess, (c) => (c.req.query('right') === 'yes' ? text(c, 'right\n') : text(c, 'wrong\n', 403)))
const own = rateLimit(limiter, {
  policy: 'budget',
  cost: (c) => Number(c.req.query('n')),
  headers: 'both',
  respond: (c) => {
    c.header('Retry-After', '99')
    c.header('X-RateLimit-Limit', '99')
    return text(c, 'slow down\n', 418)
  },
})
app.get('/own', own, (c) => {
  c.header('X-RateLimit-Limit', '99')
  return text(c, 'own\n')
})

attacks(app, limiter)
serve({ fetch: app.fetch, port: Number(process.env.PORT), hostname: '127.0.0.1' }, () => console.log('ready'))
process.once('SIGTERM', () => process.exit())

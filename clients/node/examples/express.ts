// A small service with Express. PORT, RATELIMIT_SOCKET and TIMEOUT_MS come from the environment.
import { setTimeout as sleep } from 'node:timers/promises'
import express from 'express'
import { RateLimiter } from 'ratelimitd'
import { NOT_LIMITED, ip, rateLimit } from 'ratelimitd/express'
import { attacks } from './express-attacks.js'

const limiter = new RateLimiter({ timeoutMs: Number(process.env.TIMEOUT_MS ?? 250) })
const app = express()

app.get('/ok', rateLimit(limiter, 'web'), (_req, res) => void res.type('text').send('ok\n'))

/** The name of the account, or `-`: a body may have anything in its place, or nothing. */
const account = (body?: { user?: unknown } | null): string => (typeof body?.user === 'string' && body.user) || '-'
const address = ip()
const login = rateLimit(limiter, {
  policy: 'login',
  key: (req, res) => [account(req.body), address(req, res)],
  onError: 'deny',
  chargeWhen: (_req, res) => res.statusCode === 401, // only wrong passwords count
})
app.post('/login', express.urlencoded(), login, (req, res) => {
  if (req.body?.password === 'right') res.type('text').send('welcome\n')
  else res.status(401).type('text').send('wrong\n')
})

app.get(
  '/inline',
  rateLimit(limiter, { limit: 2, window: '5s' }),
  (_req, res) => void res.type('text').send('inline\n'),
)

const two = rateLimit(limiter, 'web', { policy: 'tenant', key: (req) => req.get('X-Tenant') || NOT_LIMITED })
app.get('/two', two, (_req, res) => void res.type('text').send('two\n'))

app.get('/slow', rateLimit(limiter, { policy: 'slow', slot: true }), async (req, res) => {
  await sleep(Number(req.query.ms ?? 0))
  res.type('text').send('slow\n')
})

app.get('/stream', rateLimit(limiter, { policy: 'stream', slot: true }), async (_req, res) => {
  res.type('text')
  for (const chunk of ['one\n', 'two\n', 'three\n']) {
    res.write(chunk)
    await sleep(100)
  }
  res.end()
})

app.get(
  '/cost',
  rateLimit(limiter, { policy: 'budget', cost: (req) => Number(req.query.n) }),
  (req, res) => void res.type('text').send(`cost ${String(req.query.n)}\n`),
)
app.get(
  '/skip',
  rateLimit(limiter, { policy: 'login', skip: (req) => req.get('X-Probe') === 'yes' }),
  (_req, res) => void res.type('text').send('skip\n'),
)
app.get(
  '/down',
  rateLimit(limiter, { policy: 'web', onError: 'deny' }),
  (_req, res) => void res.type('text').send('down\n'),
)

// limits by the request, the decision in the handler, and answers of the program's own
const plan = rateLimit(limiter, {
  name: 'plan',
  limit: (req) => (req.get('X-Plan') === 'gold' ? 3 : 1),
  window: (req) => (req.get('X-Plan') === 'gold' ? '30s' : '60s'),
})
app.get('/plan', plan, (_req, res) => void res.type('text').send('plan\n'))
app.get(
  '/choose',
  rateLimit(limiter, {
    policy: (req) => (req.query.policy === 'free' ? NOT_LIMITED : (req.query.policy as string | undefined)),
  }),
  (_req, res) => void res.type('text').send('choose\n'),
)
app.get('/left', rateLimit(limiter, 'web'), (req, res) => {
  const decision = req.rateLimit
  res.type('text').send(decision ? `left ${decision.remaining} of ${decision.of}\n` : 'left unknown\n')
})
const guess = rateLimit(limiter, {
  name: 'guess',
  limit: 2,
  window: '1m',
  chargeWhen: (_req, res) => res.statusCode === 403,
})
app.get('/guess', guess, (req, res) => {
  if (req.query.right === 'yes') res.type('text').send('right\n')
  else res.status(403).type('text').send('wrong\n')
})
const own = rateLimit(limiter, {
  policy: 'budget',
  cost: (req) => Number(req.query.n),
  headers: 'both',
  respond: (_req, res) =>
    res.status(418).set({ 'Retry-After': '99', 'X-RateLimit-Limit': '99' }).type('text').send('slow down\n'),
})
app.get('/own', own, (_req, res) => void res.set('X-RateLimit-Limit', '99').type('text').send('own\n'))

attacks(app, limiter)
app.listen(Number(process.env.PORT), '127.0.0.1', () => console.log('ready'))
process.once('SIGTERM', () => process.exit())

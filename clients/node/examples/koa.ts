// A small service with Koa. PORT, RATELIMIT_SOCKET and TIMEOUT_MS come from the environment.
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import Router from '@koa/router'
import Koa from 'koa'
import { RateLimiter } from 'ratelimitd'
import { NOT_LIMITED, ip, rateLimit } from 'ratelimitd/koa'
import { attacks } from './koa-attacks.js'

const limiter = new RateLimiter({ timeoutMs: Number(process.env.TIMEOUT_MS ?? 250) })
const app = new Koa()
const router = new Router()

router.get('/ok', rateLimit(limiter, 'web'), (ctx) => void (ctx.body = 'ok\n'))

const readForm: Koa.Middleware = async (ctx, next) => {
  ctx.state.form = new URLSearchParams(await text(ctx.req))
  await next()
}
const address = ip()
const login = rateLimit(limiter, {
  policy: 'login',
  key: (ctx) => [ctx.state.form.get('user') || '-', address(ctx)],
  onError: 'deny',
  chargeWhen: (ctx) => ctx.status === 401, // only wrong passwords count
})
router.post('/login', readForm, login, (ctx) => {
  const isRight = ctx.state.form.get('password') === 'right'
  ctx.status = isRight ? 200 : 401
  ctx.body = isRight ? 'welcome\n' : 'wrong\n'
})

router.get('/inline', rateLimit(limiter, { limit: 2, window: '5s' }), (ctx) => void (ctx.body = 'inline\n'))

const two = rateLimit(limiter, 'web', { policy: 'tenant', key: (ctx) => ctx.get('X-Tenant') || NOT_LIMITED })
router.get('/two', two, (ctx) => void (ctx.body = 'two\n'))

router.get('/slow', rateLimit(limiter, { policy: 'slow', slot: true }), async (ctx) => {
  await sleep(Number(ctx.query.ms ?? 0))
  ctx.body = 'slow\n'
})

async function* chunks(): AsyncGenerator<string> {
  for (const chunk of ['one\n', 'two\n', 'three\n']) {
    yield chunk
    await sleep(100)
  }
}
router.get('/stream', rateLimit(limiter, { policy: 'stream', slot: true }), (ctx) => {
  ctx.type = 'text'
  ctx.body = Readable.from(chunks())
})

router.get(
  '/cost',
  rateLimit(limiter, { policy: 'budget', cost: (ctx) => Number(ctx.query.n) }),
  (ctx) => void (ctx.body = `cost ${String(ctx.query.n)}\n`),
)
router.get(
  '/skip',
  rateLimit(limiter, { policy: 'login', skip: (ctx) => ctx.get('X-Probe') === 'yes' }),
  (ctx) => void (ctx.body = 'skip\n'),
)
router.get('/down', rateLimit(limiter, { policy: 'web', onError: 'deny' }), (ctx) => void (ctx.body = 'down\n'))

// limits by the request, the decision in the handler, and answers of the program's own
const plan = rateLimit(limiter, {
  name: 'plan',
  limit: (ctx) => (ctx.get('X-Plan') === 'gold' ? 3 : 1),
  window: (ctx) => (ctx.get('X-Plan') === 'gold' ? '30s' : '60s'),
})
router.get('/plan', plan, (ctx) => void (ctx.body = 'plan\n'))
router.get(
  '/choose',
  rateLimit(limiter, {
    policy: (ctx) => (ctx.query.policy === 'free' ? NOT_LIMITED : (ctx.query.policy as string | undefined)),
  }),
  (ctx) => void (ctx.body = 'choose\n'),
)
router.get('/left', rateLimit(limiter, 'web'), (ctx) => {
  const decision = ctx.state.rateLimit
  ctx.body = decision ? `left ${decision.remaining} of ${decision.of}\n` : 'left unknown\n'
})
const guess = rateLimit(limiter, { name: 'guess', limit: 2, window: '1m', chargeWhen: (ctx) => ctx.status === 403 })
router.get('/guess', guess, (ctx) => {
  const isRight = ctx.query.right === 'yes'
  ctx.status = isRight ? 200 : 403
  ctx.body = isRight ? 'right\n' : 'wrong\n'
})
const own = rateLimit(limiter, {
  policy: 'budget',
  cost: (ctx) => Number(ctx.query.n),
  headers: 'both',
  respond: (ctx) => {
    ctx.status = 418
    ctx.set({ 'Retry-After': '99', 'X-RateLimit-Limit': '99' })
    ctx.body = 'slow down\n'
  },
})
router.get('/own', own, (ctx) => {
  ctx.set('X-RateLimit-Limit', '99')
  ctx.body = 'own\n'
})

app.use(router.routes())
attacks(app, limiter)
app.listen(Number(process.env.PORT), '127.0.0.1', () => console.log('ready'))
process.once('SIGTERM', () => process.exit())

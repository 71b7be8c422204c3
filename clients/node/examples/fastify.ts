// A small service with Fastify. PORT, RATELIMIT_SOCKET and TIMEOUT_MS come from the environment.
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import formbody from '@fastify/formbody'
import Fastify from 'fastify'
import { RateLimiter } from 'ratelimitd'
import { type Limit, type Args, NOT_LIMITED, ip, rateLimit } from 'ratelimitd/fastify'
import { attacks } from './fastify-attacks.js'

const limiter = new RateLimiter({ timeoutMs: Number(process.env.TIMEOUT_MS ?? 250) })
const app = Fastify()
await app.register(formbody)
await app.register(rateLimit, { limiter })

interface Form {
  user?: string
  password?: string
}

app.get('/ok', { config: { rateLimit: 'web' } }, async () => 'ok\n')

/** The name of the account, or `-`: a body may have anything in its place, or nothing. */
const account = (body?: { user?: unknown } | null): string => (typeof body?.user === 'string' && body.user) || '-'
const address = ip()
const login: Limit<Args> = {
  policy: 'login',
  key: (request, reply) => [account(request.body as Form | null), address(request, reply)],
  onError: 'deny',
  chargeWhen: (_request, reply) => reply.statusCode === 401, // only wrong passwords count
}
app.post<{ Body: Form | null }>(
  '/login',
  { config: { rateLimit: { limits: [login], hook: 'preHandler' } } },
  async (request, reply) => {
    if (request.body?.password === 'right') return 'welcome\n'
    reply.code(401)
    return 'wrong\n'
  },
)

app.get('/inline', { config: { rateLimit: { limit: 2, window: '5s' } } }, async () => 'inline\n')

const tenant: Limit<Args> = {
  policy: 'tenant',
  key: (request) => (request.headers['x-tenant'] as string | undefined) || NOT_LIMITED,
}
app.get('/two', { config: { rateLimit: { limits: ['web', tenant] } } }, async () => 'two\n')

app.get<{ Querystring: { ms?: string } }>(
  '/slow',
  { config: { rateLimit: { policy: 'slow', slot: true } } },
  async (request) => {
    await sleep(Number(request.query.ms ?? 0))
    return 'slow\n'
  },
)

async function* chunks(): AsyncGenerator<string> {
  for (const chunk of ['one\n', 'two\n', 'three\n']) {
    yield chunk
    await sleep(100)
  }
}
app.get('/stream', { config: { rateLimit: { policy: 'stream', slot: true } } }, async (_request, reply) =>
  reply.type('text/plain; charset=utf-8').send(Readable.from(chunks())),
)

const cost: Limit<Args> = { policy: 'budget', cost: (request) => Number((request.query as { n: string }).n) }
app.get<{ Querystring: { n: string } }>(
  '/cost',
  { config: { rateLimit: cost } },
  async (request) => `cost ${request.query.n}\n`,
)

const skip: Limit<Args> = { policy: 'login', skip: (request) => request.headers['x-probe'] === 'yes' }
app.get('/skip', { config: { rateLimit: skip } }, async () => 'skip\n')

app.get('/down', { config: { rateLimit: { policy: 'web', onError: 'deny' } } }, async () => 'down\n')

// limits by the request, the decision in the handler, and answers of the program's own
const isGold = (request: Args[0]): boolean => request.headers['x-plan'] === 'gold'
const plan: Limit<Args> = {
  name: 'plan',
  limit: (request) => (isGold(request) ? 3 : 1),
  window: (request) => (isGold(request) ? '30s' : '60s'),
}
app.get('/plan', { config: { rateLimit: plan } }, async () => 'plan\n')
const choose: Limit<Args> = {
  policy: (request) => {
    const { policy } = request.query as { policy?: string }
    return policy === 'free' ? NOT_LIMITED : policy
  },
}
app.get('/choose', { config: { rateLimit: choose } }, async () => 'choose\n')
app.get('/left', { config: { rateLimit: 'web' } }, async ({ rateLimit: decision }) =>
  decision ? `left ${decision.remaining} of ${decision.of}\n` : 'left unknown\n',
)
const guess: Limit<Args> = {
  name: 'guess',
  limit: 2,
  window: '1m',
  chargeWhen: (_request, reply) => reply.statusCode === 403,
}
app.get<{ Querystring: { right: string } }>('/guess', { config: { rateLimit: guess } }, async (request, reply) => {
  if (request.query.right === 'yes') return 'right\n'
  reply.code(403)
  return 'wrong\n'
})
const own: Limit<Args> = {
  policy: 'budget',
  cost: (request) => Number((request.query as { n: string }).n),
  headers: 'both',
  respond: (_request, reply) =>
    reply.code(418).headers({ 'Retry-After': '99', 'X-RateLimit-Limit': '99' }).send('slow down\n'),
}
app.get('/own', { config: { rateLimit: own } }, async (_request, reply) => {
  reply.header('X-RateLimit-Limit', '99')
  return 'own\n'
})

await app.register(attacks, { prefix: '/attack' })
await app.listen({ port: Number(process.env.PORT), host: '127.0.0.1' })
console.log('ready')
process.once('SIGTERM', () => process.exit())

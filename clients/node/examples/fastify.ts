// A small service with Fastify. PORT and RATELIMIT_SOCKET come from the environment.
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import formbody from '@fastify/formbody'
import Fastify from 'fastify'
import { RateLimiter } from 'ratelimitd'
import { type Limit, type Args, rateLimit } from 'ratelimitd/fastify'

const limiter = new RateLimiter()
const app = Fastify()
await app.register(formbody)
await app.register(rateLimit, { limiter })

interface Form {
  user: string
  password: string
}

app.get('/ok', { config: { rateLimit: 'web' } }, async () => 'ok\n')

const login: Limit<Args> = {
  policy: 'login',
  key: (request) => (request.body as Form).user,
  onError: 'deny',
  chargeWhen: (_request, reply) => reply.statusCode === 401, // only wrong passwords count
}
app.post<{ Body: Form }>(
  '/login',
  { config: { rateLimit: { limits: [login], hook: 'preHandler' } } },
  async (request, reply) => {
    if (request.body.password === 'right') return 'welcome\n'
    reply.code(401)
    return 'wrong\n'
  },
)

app.get('/inline', { config: { rateLimit: { limit: 2, window: '5s' } } }, async () => 'inline\n')

const tenant: Limit<Args> = {
  policy: 'tenant',
  key: (request) => (request.headers['x-tenant'] as string | undefined) ?? null,
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

await app.listen({ port: Number(process.env.PORT), host: '127.0.0.1' })
console.log('ready')
process.once('SIGTERM', () => process.exit())

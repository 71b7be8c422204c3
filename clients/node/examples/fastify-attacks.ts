// The routes of the table of attacks (clients/conformance/attacks.yaml), with Fastify.
import type { FastifyInstance, FastifyReply, FastifyRequest, HTTPMethods, onRequestAsyncHookHandler } from 'fastify'
import { type LimitInput, type Args, NOT_LIMITED, ip, isPreflight, user } from 'ratelimitd/fastify'

declare module 'fastify' {
  interface FastifyRequest {
    user?: string | undefined
  }
}

const field = (name: string) => (request: FastifyRequest) => request.headers[name] as string | undefined

/** Routes below /attack; the plugin is registered around them. */
export async function attacks(app: FastifyInstance): Promise<void> {
  const METHODS: HTTPMethods[] = ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT']
  const route = (methods: HTTPMethods | HTTPMethods[], url: string, limit: LimitInput<Args>, scope = app): void =>
    void scope.route({
      method: methods,
      url: `/${url}`,
      config: { rateLimit: limit },
      handler: async () => `${url.split('/').at(-1)!}\n`,
    })
  const inline = { limit: 2, window: '1m' }
  const apiKey = field('x-api-key')
  const address = ip()

  route(METHODS, 'any', { policy: 'never', onError: 'deny' })
  route(METHODS, 'preflight', { policy: 'never', skip: isPreflight })
  route('GET', 'key', { policy: 'never', key: apiKey })
  route('GET', 'key-allowed', { policy: 'never', key: apiKey, onError: 'allow' })
  route('GET', 'key-said', { policy: 'never', key: apiKey })
  const jsonUser = (request: FastifyRequest): string | undefined => {
    const name = (request.body as { user?: unknown } | null | undefined)?.user
    const isJson = field('content-type')(request)?.startsWith('application/json') === true
    return typeof name === 'string' && isJson ? name : undefined
  }
  route('POST', 'json', { policy: 'never', key: jsonUser })
  route('GET', 'parts', { policy: 'never', key: (request, reply) => [address(request, reply), apiKey(request)] })
  route('GET', 'param', { policy: 'never', key: (request) => (request.query as { user?: string }).user })
  const exempt = (request: FastifyRequest, reply: FastifyReply) =>
    field('x-exempt')(request) === 'yes' ? NOT_LIMITED : address(request, reply)
  route('GET', 'exempt', { policy: 'never', key: exempt })
  route('GET', 'user', { policy: 'pair', key: user(field('x-user')) })
  route('GET', 'user-broken', {
    policy: 'never',
    key: user((request) => (request as unknown as { session: { user: string } }).session.user),
  })

  const finds: onRequestAsyncHookHandler = async (request) => void (request.user = field('x-user')(request))
  const found = user((request) => request.user)
  route('GET', 'late-hook', { policy: 'pair', key: found })
  app.addHook('preHandler', finds) // behind the plugin
  app.get(
    '/late-guard',
    {
      config: { rateLimit: { policy: 'pair', key: found } },
      preHandler: async (request, reply) => (request.user === undefined ? reply.code(401).send('who?') : undefined),
    },
    async () => 'late-guard\n',
  )

  const forwards = (path: string) => (request: FastifyRequest, reply: FastifyReply) => {
    reply.hijack()
    request.raw.url = path
    app.routing(request.raw, reply.raw)
  }
  app.get('/forward', forwards('/attack/forwarded'))
  route('GET', 'forwarded', 'pair')
  app.get('/redirect', { config: { rateLimit: 'web' } }, forwards('/attack/redirected'))
  route('GET', 'redirected', 'web')

  /** A scope whose own plugin has this limit. */
  const around = (prefix: string, limit: string, declare: (scope: FastifyInstance) => void): void =>
    void app.register(
      async (scope) => {
        scope.addHook('onRequest', scope.rateLimit(limit))
        declare(scope)
      },
      { prefix },
    )
  around('/raw', 'never', (scope) => void scope.get('/x', async () => 'raw\n'))
  around('/outer', 'web', (scope) => {
    route('GET', 'twice', 'web', scope)
    route('GET', 'cost', { policy: 'web', cost: 5 }, scope)
    route('GET', 'inner', 'pair', scope)
    route('GET', 'key', { policy: 'never', key: apiKey }, scope)
  })
  around('/strict', 'strict', (scope) => route('GET', 'inner', 'never', scope))
  route('GET', 'number', { policy: 'web', chargeWhen: () => 5 })

  for (const name of ['a', 'b']) route('GET', `names/factory/${name}`, inline)
  app.get('/names/lambda/a', { config: { rateLimit: inline } }, async () => 'a\n')
  app.get('/names/lambda/b', { config: { rateLimit: inline } }, async () => 'b\n')
  route('GET', 'names/method', inline)
  route('POST', 'names/method', inline)
  route(['GET', 'POST'], 'names/both', inline)
  const mounted = async (scope: FastifyInstance): Promise<void> => route('GET', 'x', inline, scope)
  app.register(mounted, { prefix: '/names/mounted-a' })
  app.register(mounted, { prefix: '/names/mounted-b' })
  route('GET', 'names/item/:id', inline)
  for (const name of ['shared-a', 'shared-b']) route('GET', `names/${name}`, { ...inline, endpoint: 'shared' })
  const asked = (request: FastifyRequest): number => Number((request.query as { limit: string }).limit)
  route('GET', 'moves', { limit: asked, window: '1m', key: () => 'moves' })

  switch (process.env.MISTAKE) {
    case 'equal-names':
      route('GET', 'mistake/1', { ...inline, endpoint: 'GET /attack/mistake/2' })
      route('GET', 'mistake/2', inline)
      break
    case 'misplaced':
      app.get('/mistake/1', { rateLimit: 'never' } as never, async () => '1\n')
      break
    case 'no-user-layer':
      route('GET', 'mistake/1', { policy: 'web', key: user(undefined as never) })
  }
}

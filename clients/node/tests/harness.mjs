// What the tests share: a daemon with a standing clock, the example services, and requests that show every byte.
import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { Agent, createServer as createHttpServer, request } from 'node:http'
import { createServer } from 'node:net'
import { fileURLToPath } from 'node:url'
import { RateLimiter } from 'ratelimitd'
import { startDaemon as start } from 'ratelimitd/testing'

export const FRAMEWORKS = ['express', 'fastify', 'koa', 'hono', 'nest']

const BUILD = process.env.RATELIMITD_BUILD ?? fileURLToPath(new URL('../../../build/release', import.meta.url))

export const PROGRAM = `${BUILD}/bin/ratelimitd`

export function startDaemon(policies, settings = { inline: { allow: true } }) {
  return start({ policies, settings, program: PROGRAM })
}

/** A busy machine may stop for a second: only the tests of a timeout have a short one. */
export const PATIENCE_MS = 20000

export const patient = (options) => new RateLimiter({ timeoutMs: PATIENCE_MS, ...options })

/** For a test that expects warnings. */
export const silent = { warn() {} }

/** Serves with a handler of node:http, asks, and closes. */
export async function serving(handler, work) {
  const server = createHttpServer(handler).listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    return await work(server.address().port)
  } finally {
    server.closeAllConnections()
    server.close()
  }
}

/** The policies of the example services. */
export const SERVICE_POLICIES = {
  web: { algorithm: 'fixed_window', limit: 100, window: '1m', start: 'first_hit' },
  login: { algorithm: 'fixed_window', limit: 3, window: '1m', start: 'first_hit' },
  tenant: { algorithm: 'fixed_window', limit: 2, window: '1m', start: 'first_hit' },
  slow: { algorithm: 'concurrency', limit: 1 },
  stream: { algorithm: 'concurrency', limit: 1 },
  budget: { algorithm: 'token_bucket', limit: 10, window: '1m' },
}

/** A port that is free now, below those that the kernel gives to outgoing connections. */
async function freePort() {
  for (;;) {
    const port = randomInt(15000, 30000)
    const server = createServer()
    const isFree = once(server.listen(port, '127.0.0.1'), 'listening').then(
      () => true,
      () => false,
    )
    if (!(await isFree)) continue
    server.close()
    await once(server, 'close')
    return port
  }
}

/** start(port), again with another port if somebody took it before the child listened. */
export async function onFreePort(start) {
  for (let attempt = 1; ; attempt++)
    try {
      return await start(await freePort())
    } catch (error) {
      if (attempt === 5 || !/EADDRINUSE/.test(error.message)) throw error
    }
}

/** {port, stop()} of an example service. */
export const startService = (framework, socket, environment) =>
  onFreePort((port) => startServiceOn(port, framework, socket, environment))

async function startServiceOn(port, framework, socket, environment = {}) {
  const program = fileURLToPath(new URL(`../build/examples/${framework}.js`, import.meta.url))
  const child = spawn(process.execPath, [program], {
    env: {
      ...process.env,
      PORT: String(port),
      RATELIMIT_SOCKET: socket,
      TIMEOUT_MS: String(PATIENCE_MS),
      ...environment,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  child.stderr.on('data', (data) => (output += data))
  const ended = once(child, 'exit')
  await Promise.race([
    once(child.stdout, 'data'),
    ended.then(([status]) => Promise.reject(new Error(`${framework} ended with ${status}: ${output}`))),
  ])
  return {
    port,
    output: () => output,
    async stop() {
      child.kill('SIGTERM')
      await ended
    },
  }
}

const agent = new Agent({ keepAlive: false })

/** {status, headers (in small letters), raw (as they came), body} */
export async function ask(port, path, { method = 'GET', headers = {}, body } = {}) {
  const outgoing = request({ host: '127.0.0.1', port, path, method, headers, agent })
  outgoing.end(body)
  const [response] = await once(outgoing, 'response')
  let text = ''
  response.setEncoding('utf8')
  for await (const chunk of response) text += chunk
  return { status: response.statusCode, headers: response.headers, raw: response.rawHeaders, body: text }
}

export const login = (port, user, password) =>
  ask(port, '/login', {
    method: 'POST',
    headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
    body: `user=${user}&password=${password}`,
  })

/** Waits until `look` returns something true. */
export async function eventually(look) {
  for (const start = performance.now(); performance.now() - start < PATIENCE_MS;) {
    const seen = await look()
    if (seen) return seen
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  throw new Error(`it did not come true: ${look}`)
}
